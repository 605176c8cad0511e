//! What the body of a scene works with: its case, its devices, its tensors, its rounds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use facade::{Buffer, Element, Platform, View, Worker, WorkerBuilder};

use crate::compare::{Comparison, compare_all};
use crate::failure::Failure;
use crate::golden;
use crate::heat_map;
use crate::limits::Limits;
use crate::record::{Event, Reporter, RoundTime};
use crate::scene::{Case, Scene};
use crate::tensor::{HostTensor, Tensors, count};
use crate::value::Reader;

/// Where a case runs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) platform: Platform,
    /// As many as the case asked for.
    pub(crate) devices: Vec<u32>,
    pub(crate) rounds: u32,
    /// When its process was started.
    pub(crate) started: Instant,
    /// Where the new content of its golden file goes, if that is to be rewritten.
    pub(crate) staged_golden: Option<PathBuf>,
    /// Where pictures of wrong outputs go.
    pub(crate) heat_maps: Option<PathBuf>,
    /// Where its workers write what their tasks did.
    pub(crate) traces: Option<PathBuf>,
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
    /// What the first comparison found that did not hold, whatever the body makes of it.
    refuted: Option<String>,
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
            refuted: None,
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
    /// start and close within the limit of a device operation, and so must each core task of a simulated
    /// chip, or each run on a card. With `--trace` its tasks are traced, and
    /// those of the workers below it.
    pub fn node(&self) -> WorkerBuilder {
        let limit = self.limits().device;
        let node = Worker::node()
            .platform(self.platform())
            .devices(self.setup.devices.iter().copied())
            .device_timeout(limit)
            .start_timeout(limit)
            .close_timeout(limit);
        match &self.setup.traces {
            Some(dir) => node.trace_to(dir),
            None => node,
        }
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
    /// When the node has no memory for it, the shape is empty, or there is an output of that name already.
    pub fn output<T: Element>(
        &mut self,
        node: &Worker,
        name: &str,
        shape: &[usize],
    ) -> Result<View<T>, Failure> {
        if self.shared.iter().any(|shared| shared.is_output(name)) {
            return Err(twice(name));
        }
        let buffer = node.buffer::<T>(count(shape)?)?;
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
    /// What `run` returned, or that outputs differ; no further round is run then. A case whose outputs
    /// differed fails, also if its body drops this error.
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
            let ns = nanos(begin.elapsed());
            let begin_ns = nanos(begin.saturating_duration_since(self.setup.started));
            self.reporter
                .send(&Event::Round(RoundTime { begin_ns, ns }));
            if let Err(failure) = self.compare(round) {
                self.refuted.get_or_insert_with(|| failure.to_string());
                return Err(failure);
            }
        }
        Ok(())
    }

    fn compare(&mut self, round: Round) -> Result<(), Failure> {
        if !self.scene.has_expectation() {
            return Ok(());
        }
        let mut actual = round.produced;
        for shared in &self.shared {
            if let Some((name, tensor)) = shared.read()? {
                if actual.get(&name).is_ok() {
                    return Err(twice(&name));
                }
                actual.put(name, tensor);
            }
        }
        let expected = match self.expected.take() {
            Some(expected) => expected,
            None => self.expectation(&actual)?,
        };
        let compared = compare_all(&actual, &expected, |name| self.scene.tolerance_of(name))?;
        self.compared |= compared.iter().any(|one| one.elements > 0);
        let wrong: Vec<String> = compared
            .iter()
            .filter(|one| !one.holds())
            .map(Comparison::to_string)
            .collect();
        self.reporter.send(&Event::Compared {
            comparisons: compared.clone(),
        });
        if wrong.is_empty() {
            self.expected = Some(expected);
            return Ok(());
        }
        let pictures = self.pictures(&actual, &expected, &compared)?;
        Err(Failure::new(format!(
            "round {}: {}{pictures}",
            round.number,
            wrong.join("\n")
        )))
    }

    /// What the outputs are compared with: the golden file, or else the reference. A golden file
    /// that is to be rewritten is not asked: its new content is what it will say.
    fn expectation(&self, actual: &Tensors) -> Result<Tensors, Failure> {
        match self.scene.golden_of(self.case) {
            Some(path) if self.setup.staged_golden.is_none() => {
                Ok(golden::read(&path, &self.name())?)
            }
            _ => match self.scene.reference {
                Some(reference) => reference(self.case, &self.inputs),
                None => {
                    golden::refuse_unwritten(actual)?;
                    Ok(actual.clone())
                }
            },
        }
    }

    /// At the end of a case that passes: writes what was found right where the runner takes it as the new
    /// golden file, if that was asked for.
    pub(crate) fn stage_golden(&self) -> Result<(), Failure> {
        if let (Some(path), Some(staged)) =
            (self.scene.golden_of(self.case), &self.setup.staged_golden)
            && let Some(right) = &self.expected
            && let Some(changes) = golden::stage(&path, staged, right)?
        {
            self.reporter.send(&Event::GoldenStaged { changes });
        }
        Ok(())
    }

    fn name(&self) -> String {
        format!("{}::{}", self.scene.name, self.case.name)
    }

    /// Heat maps of the wrong outputs, if they were asked for; says where they are.
    fn pictures(
        &self,
        actual: &Tensors,
        expected: &Tensors,
        compared: &[Comparison],
    ) -> Result<String, Failure> {
        let mut text = String::new();
        let Some(dir) = self.setup.heat_maps.as_deref() else {
            return Ok(text);
        };
        for one in compared.iter().filter(|one| one.wrong > 0) {
            let (actual, expected) = (actual.get(&one.name)?, expected.get(&one.name)?);
            let written = heat_map::write(dir, &self.name(), &one.name, actual, expected);
            let written = written.map_err(|error| cannot_draw(dir, &error))?;
            if let Some(path) = written {
                text.push_str(&format!("\n  heat map: {}", path.display()));
            }
        }
        Ok(text)
    }

    /// Whether the scene promises a comparison that has not taken place.
    pub(crate) fn compared_nothing(&self) -> bool {
        self.scene.has_expectation() && !self.compared
    }

    /// What a comparison found wrong.
    pub(crate) fn refuted(&self) -> Option<&str> {
        self.refuted.as_deref()
    }

    pub(crate) fn rounds_begun(&self) -> u32 {
        self.rounds_begun
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn cannot_draw(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("write a heat map into {}: {error}", dir.display()))
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
    /// When the round has produced one of that name already.
    pub fn produced(&mut self, name: impl Into<String>, tensor: HostTensor) -> Result<(), Failure> {
        let name = name.into();
        if self.produced.get(&name).is_ok() {
            return Err(twice(&name));
        }
        self.produced.put(name, tensor);
        Ok(())
    }
}

/// One of two would be compared, and the other never.
fn twice(name: &str) -> Failure {
    Failure::new(format!(
        "there are two outputs named `{name}`; give each a name of its own"
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    Output,
}

/// A tensor of any type in a shared buffer.
trait Shared: fmt::Debug {
    fn is_output(&self, name: &str) -> bool;
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
    fn is_output(&self, name: &str) -> bool {
        self.role == Role::Output && self.name == name
    }

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
