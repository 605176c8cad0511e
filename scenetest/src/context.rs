//! What the body of a scene works with: its case, its devices, its tensors, its rounds.

use std::fmt;
use std::time::Instant;

use facade::{Buffer, Element, Platform, View, Worker, WorkerBuilder};

use crate::compare::{Comparison, compare_all};
use crate::failure::Failure;
use crate::limits::Limits;
use crate::record::{Event, Reporter};
use crate::scene::{Case, Scene};
use crate::tensor::{HostTensor, Tensors};
use crate::value::Reader;

/// Where a case runs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) platform: Platform,
    /// As many as the case asked for.
    pub(crate) devices: Vec<u32>,
    pub(crate) rounds: u32,
}

/// The case that a body runs for, and everything that it can ask the harness for.
///
/// Dropped at the end of the case, however that ends; the shared buffers that it made are given
/// back then, the last one first.
#[derive(Debug)]
pub struct SceneContext<'s> {
    scene: &'s Scene,
    case: &'s Case,
    setup: Setup,
    inputs: Tensors,
    shared: Vec<Box<dyn Shared>>,
    expected: Option<Tensors>,
    reporter: &'s Reporter,
    rounds_begun: u32,
    compared: bool,
}

impl<'s> SceneContext<'s> {
    pub(crate) fn new(
        scene: &'s Scene,
        case: &'s Case,
        setup: Setup,
        reporter: &'s Reporter,
    ) -> Result<Self, Failure> {
        let inputs = scene
            .inputs
            .map_or(Ok(Tensors::new()), |inputs| inputs(case))?;
        Ok(Self {
            scene,
            case,
            setup,
            inputs,
            shared: Vec::new(),
            expected: None,
            reporter,
            rounds_begun: 0,
            compared: false,
        })
    }

    /// The case: its name, parameters and seed.
    pub fn case(&self) -> &'s Case {
        self.case
    }

    /// The platform.
    pub fn platform(&self) -> Platform {
        self.setup.platform
    }

    /// The devices that the case has for itself: as many as it asked for.
    pub fn devices(&self) -> &[u32] {
        &self.setup.devices
    }

    /// The time limits of the case. The runner enforces that of the case; that of a device
    /// operation is the scene's to hand down.
    pub fn limits(&self) -> Limits {
        self.case.limits
    }

    /// Tells the runner that the time of the case is over, now: for a scene that watches its
    /// progress itself and found that there is none. The runner shows where everything stands and ends it.
    pub fn time_is_over(&self) {
        self.reporter.send(&Event::TimeIsOver);
    }

    /// The inputs of the case.
    pub fn inputs(&self) -> &Tensors {
        &self.inputs
    }

    /// A node with one chip worker per device of the case, ready to be added to and built. It must
    /// start and close within the limit of a device operation.
    pub fn node(&self) -> WorkerBuilder {
        let limit = self.limits().device;
        Worker::node()
            .platform(self.platform())
            .devices(self.setup.devices.iter().copied())
            .start_timeout(limit)
            .close_timeout(limit)
    }

    /// An input in a shared buffer of `node`, in its shape, with its values.
    ///
    /// # Errors
    /// When there is no input of that name and type, or the node has no memory for it.
    pub fn input<T: Element>(&mut self, node: &Worker, name: &str) -> Result<View<T>, Failure> {
        let tensor = self.inputs.get(name)?;
        let (elements, shape) = (tensor.elements::<T>()?, tensor.shape().to_vec());
        let buffer = node.buffer_from(&elements)?;
        let view = buffer.reshape(&shape)?;
        self.shared.push(Box::new(SharedTensor {
            name: name.to_owned(),
            shape,
            buffer,
            role: Role::Input,
        }));
        Ok(view)
    }

    /// A shared buffer of `node` for an output: poisoned before each round, read and compared after
    /// it.
    ///
    /// # Errors
    /// When the node has no memory for it, or the shape is empty.
    pub fn output<T: Element>(
        &mut self,
        node: &Worker,
        name: &str,
        shape: &[usize],
    ) -> Result<View<T>, Failure> {
        let buffer = node.buffer::<T>(shape.iter().product())?;
        let view = buffer.reshape(shape)?;
        let (name, shape) = (name.to_owned(), shape.to_vec());
        self.shared.push(Box::new(SharedTensor {
            name,
            shape,
            buffer,
            role: Role::Output,
        }));
        Ok(view)
    }

    /// Runs `run` as often as the runner was asked for, once unless `--rounds` says otherwise.
    ///
    /// Before each round the outputs are poisoned; the time of each is recorded; after each the
    /// outputs are compared with the reference, if the scene has one.
    ///
    /// # Errors
    /// What `run` returned, or that outputs differ; no further round is run then.
    pub fn rounds<R, E: Into<Failure>>(
        &mut self,
        mut run: impl FnMut(&mut Round) -> Result<R, E>,
    ) -> Result<(), Failure> {
        for number in 0..self.setup.rounds {
            self.shared.iter().try_for_each(|shared| shared.poison())?;
            self.rounds_begun += 1;
            let mut round = Round {
                number,
                produced: Tensors::new(),
            };
            let begin = Instant::now();
            run(&mut round).map_err(Into::into)?;
            let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.reporter.send(&Event::Round { ns });
            self.compare(round)?;
        }
        Ok(())
    }

    fn compare(&mut self, round: Round) -> Result<(), Failure> {
        let Some(reference) = self.scene.reference else {
            return Ok(());
        };
        let mut actual = round.produced;
        for shared in &self.shared {
            if let Some((name, tensor)) = shared.read()? {
                actual.put(name, tensor);
            }
        }
        let expected = match self.expected.take() {
            Some(expected) => expected,
            None => reference(self.case, &self.inputs)?,
        };
        let compared = compare_all(&actual, &expected, |name| self.scene.tolerance_of(name))?;
        self.expected = Some(expected);
        self.compared |= compared.iter().any(|one| one.elements > 0);
        let wrong: Vec<String> = compared
            .iter()
            .filter(|one| one.wrong > 0)
            .map(Comparison::to_string)
            .collect();
        self.reporter.send(&Event::Compared {
            comparisons: compared,
        });
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "round {}: {}",
            round.number,
            wrong.join("\n")
        )))
    }

    /// Whether the scene promises a comparison that has not taken place.
    pub(crate) fn compared_nothing(&self) -> bool {
        self.scene.reference.is_some() && !self.compared
    }

    pub(crate) fn rounds_begun(&self) -> u32 {
        self.rounds_begun
    }
}

impl Drop for SceneContext<'_> {
    fn drop(&mut self) {
        while let Some(last) = self.shared.pop() {
            drop(last);
        }
    }
}

/// One round of a scene.
#[derive(Debug)]
pub struct Round {
    number: u32,
    produced: Tensors,
}

impl Round {
    /// Which one, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// An output that is not in a shared buffer.
    ///
    /// # Errors
    /// None now; it returns a result so that it can be the last expression of a round.
    pub fn produced(&mut self, name: impl Into<String>, tensor: HostTensor) -> Result<(), Failure> {
        self.produced.put(name, tensor);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    Output,
}

/// A tensor of any type in a shared buffer.
trait Shared: fmt::Debug {
    fn poison(&self) -> Result<(), Failure>;
    fn read(&self) -> Result<Option<(String, HostTensor)>, Failure>;
}

struct SharedTensor<T: Element> {
    name: String,
    shape: Vec<usize>,
    buffer: Buffer<T>,
    role: Role,
}

impl<T: Element> fmt::Debug for SharedTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} `{}` {:?} {:?}",
            self.role,
            self.name,
            T::DTYPE,
            self.shape
        )
    }
}

impl<T: Element> Shared for SharedTensor<T> {
    fn poison(&self) -> Result<(), Failure> {
        if self.role == Role::Output
            && let Some(reader) = Reader::of(T::DTYPE)
        {
            reader.poison(bytemuck::cast_slice_mut(&mut self.buffer.view_mut()?));
        }
        Ok(())
    }

    fn read(&self) -> Result<Option<(String, HostTensor)>, Failure> {
        if self.role == Role::Input {
            return Ok(None);
        }
        let tensor = HostTensor::new(&self.buffer.view()?, &self.shape)?;
        Ok(Some((self.name.clone(), tensor)))
    }
}
