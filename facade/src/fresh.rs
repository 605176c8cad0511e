//! Tensors that a task brings into being: their memory comes with the submit of the task that writes them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use taskgraph::Tensor;

use crate::args::Backing;
use crate::buffer::View;
use crate::element::Element;
use crate::error::{BufferError, Error};
use crate::orchestrator::byte_size;

/// A tensor without memory, until a task is submitted that names it as an [output](crate::ArgList::output).
///
/// That submit allocates it in the innermost scope, as [`Orchestrator::alloc`](crate::Orchestrator::alloc) would, and
/// takes the memory back when it is refused. From then on it is a tensor like any other: later tasks name it, and
/// [`Fresh::view`] has it for slices and other shapes. Named as anything else before, or as an output by
/// [`output_existing`](crate::ArgList::output_existing), it is refused.
///
/// ```no_run
/// # fn build(orch: &mut facade::Orchestrator<'_>, f: &facade::FunctionHandle, g: &facade::FunctionHandle,
/// #          x: &facade::Buffer<f32>, y: &facade::Buffer<f32>) -> Result<(), facade::Error> {
/// use facade::{args, fresh};
///
/// let between = fresh::<f32>(1024)?;
/// orch.submit_sub(f, args().input(x).output(&between))?; // allocates it
/// orch.submit_sub(g, args().input(&between).output(y))?;
/// # Ok(())
/// # }
/// ```
pub struct Fresh<T: Element> {
    core: Arc<FreshCore>,
    element: PhantomData<T>,
}

/// What all clones of one such tensor, and the arguments that name it, share.
#[derive(Debug)]
pub(crate) struct FreshCore {
    /// What stands for it in arguments as long as it has no memory.
    placeholder: Tensor,
    made: OnceLock<(Tensor, Backing)>,
}

/// A tensor of `n_elements` that the first task which names it as an output brings into being.
///
/// # Errors
///
/// [`Error::Buffer`] when no tensor can have this size.
pub fn fresh<T: Element>(n_elements: usize) -> Result<Fresh<T>, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    byte_size::<T>(n_elements)?;
    // Relaxed: only uniqueness matters.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let placeholder = Tensor::unbacked(number, T::DTYPE, &[n_elements as u64]);
    let core = FreshCore {
        placeholder: placeholder.map_err(BufferError::View)?,
        made: OnceLock::new(),
    };
    Ok(Fresh {
        core: Arc::new(core),
        element: PhantomData,
    })
}

impl<T: Element> Fresh<T> {
    /// The tensor, which a task has brought into being.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when no task was submitted yet that names it as an output.
    pub fn view(&self) -> Result<View<T>, Error> {
        let (tensor, backing) = self.core.made().ok_or(BufferError::Unbacked)?;
        Ok(View::backed(backing.clone(), *tensor))
    }

    /// What stands for it in arguments now.
    pub(crate) fn parts(&self) -> (Tensor, Backing) {
        let unmade = || {
            let core = Arc::clone(&self.core);
            (self.core.placeholder, Backing::Fresh(core))
        };
        self.core.made().cloned().unwrap_or_else(unmade)
    }
}

impl FreshCore {
    /// What it is of, without memory.
    pub(crate) fn placeholder(&self) -> &Tensor {
        &self.placeholder
    }

    pub(crate) fn made(&self) -> Option<&(Tensor, Backing)> {
        self.made.get()
    }

    /// It has memory from now on; the first one stays.
    pub(crate) fn make(&self, tensor: Tensor, backing: Backing) {
        let _ = self.made.set((tensor, backing));
    }
}

impl<T: Element> Clone for Fresh<T> {
    /// The same tensor.
    fn clone(&self) -> Self {
        let (core, element) = (Arc::clone(&self.core), PhantomData);
        Self { core, element }
    }
}

impl<T: Element> fmt::Debug for Fresh<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.core.made().map(|(tensor, _)| tensor);
        f.debug_struct("Fresh")
            .field("shape", &self.core.placeholder.shape())
            .field("made", &made)
            .finish()
    }
}
