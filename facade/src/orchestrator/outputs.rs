//! Outputs without memory: allocated before their task is submitted, taken back when it is refused.

use std::sync::Arc;

use taskgraph::Tensor;

use super::Orchestrator;
use crate::args::{ArgList, Backing};
use crate::error::Error;
use crate::fresh::FreshCore;

/// What was allocated for a task that is not submitted yet, in that order. Mostly nothing, so that it is small and
/// does not cost every submit a copy.
#[derive(Default)]
pub(crate) struct Outputs(Vec<(Arc<FreshCore>, Tensor, Backing)>);

impl Orchestrator<'_> {
    /// Gives memory to the outputs in these lists that have none.
    pub(crate) fn back_outputs<'a>(
        &mut self,
        lists: impl Iterator<Item = &'a mut ArgList>,
    ) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        for list in lists.filter(|list| list.is_unbacked()) {
            if let Err(error) = self.back_list(list, &mut outputs) {
                return self.keep_outputs(outputs, Err(error));
            }
        }
        Ok(outputs)
    }

    /// The task was submitted, and its outputs are; or it was not, and they go.
    pub(crate) fn keep_outputs<R>(
        &mut self,
        outputs: Outputs,
        submitted: Result<R, Error>,
    ) -> Result<R, Error> {
        for (core, tensor, backing) in outputs.0.into_iter().rev() {
            match submitted {
                Ok(_) => core.make(tensor, backing),
                Err(_) => self.unallocate(&tensor),
            }
        }
        submitted
    }

    fn back_list(&mut self, list: &mut ArgList, outputs: &mut Outputs) -> Result<(), Error> {
        for (at, core) in list.unbacked() {
            let (tensor, backing) = self.back_output(&core, outputs)?;
            list.back(at, tensor, backing)?;
        }
        Ok(())
    }

    /// The memory of an output: what it has got since it was named, in this submit or before, else new one.
    fn back_output(
        &mut self,
        core: &Arc<FreshCore>,
        outputs: &mut Outputs,
    ) -> Result<(Tensor, Backing), Error> {
        let mut here = outputs.0.iter();
        let here = here.find(|(other, ..)| Arc::ptr_eq(other, core));
        let here = here.map(|(_, tensor, backing)| (*tensor, backing.clone()));
        if let Some(made) = here.or_else(|| core.made().cloned()) {
            return Ok(made);
        }
        let wanted = core.placeholder();
        let (tensor, backing) = self.allocate(wanted.dtype(), wanted.num_elements())?;
        outputs.0.push((Arc::clone(core), tensor, backing.clone()));
        Ok((tensor, backing))
    }
}
