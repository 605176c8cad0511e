//! A scene: what to run and what must come out, as plain data.

use std::collections::BTreeMap;
use std::panic::Location;
use std::path::PathBuf;

use facade::{Arch, ChipCallable, Level, Platform};

use crate::compare::Tolerance;
use crate::context::SceneContext;
use crate::failure::Failure;
use crate::golden;
use crate::limits::Limits;
use crate::random::Random;
use crate::tensor::Tensors;

/// What a scene does in the process of one of its cases.
pub type Body = fn(&mut SceneContext<'_>) -> Result<(), Failure>;
/// Makes the inputs of a case.
pub type Inputs = fn(&Case) -> Result<Tensors, Failure>;
/// Computes what a case must produce from its inputs, in a way that is slow and obviously right.
pub type Reference = fn(&Case, &Tensors) -> Result<Tensors, Failure>;

/// An end-to-end test: one body, run for each of its cases in a process of its own.
///
/// Collecting scenes runs none of their functions, touches no device and needs no compiler.
///
/// ```
/// use scenetest::{Case, HostTensor, Scene, Tensors, Tolerance};
///
/// fn doubled() -> Scene {
///     Scene::new("doubled", |cx| {
///         let twice: Vec<f32> = cx.inputs().get("x")?.elements::<f32>()?.iter().map(|x| x + x).collect();
///         cx.rounds(|round| round.produced("y", HostTensor::new(&twice, &[twice.len()])?))
///     })
///     .inputs(|case| Ok(Tensors::new().with("x", case.random().tensor(&[case.size("n")?], |x| x)?)))
///     .reference(|_, inputs| {
///         let twice: Vec<f32> = inputs.get("x")?.elements::<f32>()?.iter().map(|x| 2.0 * x).collect();
///         Ok(Tensors::new().with("y", HostTensor::new(&twice, &[twice.len()])?))
///     })
///     .tolerance("y", Tolerance::relative(1e-6))
///     .case(Case::new("small").param("n", 10))
///     .case(Case::new("large").param("n", 1 << 20).seed(3))
/// }
/// # assert_eq!(doubled().cases().len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Scene {
    pub(crate) name: &'static str,
    pub(crate) place: &'static Location<'static>,
    pub(crate) level: Level,
    pub(crate) platforms: Vec<Platform>,
    pub(crate) cases: Vec<Case>,
    pub(crate) body: Body,
    pub(crate) inputs: Option<Inputs>,
    pub(crate) reference: Option<Reference>,
    pub(crate) golden: Option<&'static str>,
    pub(crate) callables: Vec<&'static ChipCallable>,
    pub(crate) tolerances: BTreeMap<String, Tolerance>,
}

impl Scene {
    /// A scene at the level of a node, for the simulators, with no inputs and nothing to compare:
    /// what it checks, its body checks itself.
    #[track_caller]
    pub fn new(name: &'static str, body: Body) -> Self {
        Self {
            name,
            place: Location::caller(),
            level: Level::Node,
            platforms: vec![Platform::Sim(Arch::A2a3), Platform::Sim(Arch::A5)],
            cases: Vec::new(),
            body,
            inputs: None,
            reference: None,
            golden: None,
            callables: Vec::new(),
            tolerances: BTreeMap::new(),
        }
    }

    /// At which level of the tree it works. For filters, and for people.
    #[must_use]
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// The platforms that it is for; on others it is skipped. `Platform::ALL` for a scene whose kernels
    /// all have sources: a Rust function runs on the simulators alone.
    #[must_use]
    pub fn platforms(mut self, platforms: impl Into<Vec<Platform>>) -> Self {
        self.platforms = platforms.into();
        self
    }

    /// One more case. A scene without any has one, named `default`.
    #[must_use]
    pub fn case(mut self, case: Case) -> Self {
        self.cases.push(case);
        self
    }

    /// How its inputs are made.
    #[must_use]
    pub fn inputs(mut self, inputs: Inputs) -> Self {
        self.inputs = Some(inputs);
        self
    }

    /// What its outputs are compared with after every round: exactly in names, types and shapes,
    /// within their tolerance in values. A scene with a reference that compares nothing fails.
    #[must_use]
    pub fn reference(mut self, reference: Reference) -> Self {
        self.reference = Some(reference);
        self
    }

    /// What its outputs are compared with is kept in files in this directory, one for each case:
    /// `SCENE.CASE.safetensors`. Usually `concat!(env!("CARGO_MANIFEST_DIR"), "/scenes/golden")`.
    ///
    /// A missing file is a failure. `--update-golden NAME` writes it: from the reference if the scene
    /// has one too, else from what came out.
    #[must_use]
    pub fn golden(mut self, dir: &'static str) -> Self {
        self.golden = Some(dir);
        self
    }

    /// The chip callables that it registers. Kernels of theirs that have sources are compiled before
    /// the body runs, several at once, and by the command `compile`; a compiler's refusal is the
    /// failure of the case.
    #[must_use]
    pub fn callables(mut self, callables: impl IntoIterator<Item = &'static ChipCallable>) -> Self {
        self.callables.extend(callables);
        self
    }

    /// How far an output may be off; [`Tolerance::EXACT`] for those that are not named.
    #[must_use]
    pub fn tolerance(mut self, output: impl Into<String>, tolerance: Tolerance) -> Self {
        self.tolerances.insert(output.into(), tolerance);
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its cases: at least one.
    pub fn cases(&self) -> Vec<Case> {
        if self.cases.is_empty() {
            vec![Case::new("default")]
        } else {
            self.cases.clone()
        }
    }

    /// Whether its outputs are compared with something.
    pub(crate) fn has_expectation(&self) -> bool {
        self.reference.is_some() || self.golden.is_some()
    }

    /// Where the golden file of a case is, if the scene has such.
    pub(crate) fn golden_of(&self, case: &Case) -> Option<PathBuf> {
        let dir = self.golden?;
        Some(golden::path(dir, self.name, case.name))
    }

    pub(crate) fn tolerance_of(&self, output: &str) -> Tolerance {
        self.tolerances.get(output).copied().unwrap_or_default()
    }
}

/// One way to run a scene.
#[derive(Clone, Debug)]
pub struct Case {
    pub(crate) name: &'static str,
    pub(crate) params: BTreeMap<&'static str, i64>,
    pub(crate) seed: u64,
    pub(crate) manual: bool,
    pub(crate) step: Option<&'static str>,
    pub(crate) devices: u32,
    pub(crate) limits: Limits,
}

impl Case {
    /// A case with one device, the default limits, seed 0 and no parameters.
    pub fn new(name: &'static str) -> Self {
        let (params, limits) = (BTreeMap::new(), Limits::default());
        Self {
            name,
            params,
            seed: 0,
            manual: false,
            step: None,
            devices: 1,
            limits,
        }
    }

    /// A number that the scene's functions ask for by name.
    #[must_use]
    pub fn param(mut self, name: &'static str, value: i64) -> Self {
        self.params.insert(name, value);
        self
    }

    /// What random inputs are made from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Run only when it is asked for: it takes long, or needs something special.
    #[must_use]
    pub fn manual(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Run in a step of its own, with `--step NAME`, and skipped otherwise: for cases that take long,
    /// so that the limits of the common run stay those of a hang.
    #[must_use]
    pub fn step(mut self, name: &'static str) -> Self {
        self.step = Some(name);
        self
    }

    /// How many devices it has for itself; 0 for a case on the host alone.
    #[must_use]
    pub fn devices(mut self, n_devices: u32) -> Self {
        self.devices = n_devices;
        self
    }

    /// How long its parts may take.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A parameter.
    ///
    /// # Errors
    /// When the case has none of that name; the failure lists those that it has.
    pub fn get(&self, name: &str) -> Result<i64, Failure> {
        self.params.get(name).copied().ok_or_else(|| {
            let known: Vec<_> = self.params.keys().collect();
            Failure::new(format!(
                "case `{}` has no parameter `{name}`, only {known:?}",
                self.name
            ))
        })
    }

    /// A parameter that is a size.
    ///
    /// # Errors
    /// When the case has none of that name, or it is negative.
    pub fn size(&self, name: &str) -> Result<usize, Failure> {
        let value = self.get(name)?;
        usize::try_from(value).map_err(|_| {
            Failure::new(format!(
                "parameter `{name}` of case `{}` is no size: {value}",
                self.name
            ))
        })
    }

    /// The random stream of its seed, from the beginning.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }
}
