//! Scenes: declarative end-to-end tests that are isolated, compared, timed, and explained when they hang.
//!
//! A scene says what to run and what must come out. Each of its cases runs in a process of its own,
//! on devices that it has for itself, under a time limit; what it prints is kept and shown if it
//! does not pass; and if it hangs, the report says where every thread of every process stands.
//!
//! ```no_run
//! use facade::{ChipCallable, Kernel, args, core_args, on};
//! use scenetest::{Case, HostTensor, Scene, Tensors, Tolerance};
//!
//! static ADD: ChipCallable = ChipCallable {
//!     name: "add",
//!     orchestration: |orch, args| {
//!         let (x, y, z) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
//!         orch.submit("add", core_args().input(x).input(y).output(z))?;
//!         Ok(())
//!     },
//!     kernels: &[Kernel::vector("add", |cx| {
//!         let (x, y, z) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(2)?);
//!         z.iter_mut().zip(x).zip(y).for_each(|((z, x), y)| *z = x + y);
//!         Ok(())
//!     })],
//! };
//!
//! fn vector_add() -> Scene {
//!     Scene::new("vector_add", |cx| {
//!         let n = cx.case().size("n")?;
//!         let node = cx.node().build()?;
//!         let add = node.register_chip(&ADD)?;
//!         node.init()?;
//!         let (x, y) = (cx.input::<f32>(&node, "x")?, cx.input::<f32>(&node, "y")?);
//!         let z = cx.output::<f32>(&node, "z", &[n])?;
//!         cx.rounds(|_| {
//!             node.run(|orch| orch.submit_next_level(&add, args().input(&x).input(&y).output(&z), on(0)))
//!         })?;
//!         Ok(node.close()?)
//!     })
//!     .inputs(|case| {
//!         let (mut random, n) = (case.random(), case.size("n")?);
//!         Ok(Tensors::new().with("x", random.tensor(&[n], |x| x)?).with("y", random.tensor(&[n], |y| y)?))
//!     })
//!     .reference(|_, inputs| {
//!         let (x, y) = (inputs.get("x")?.elements::<f32>()?, inputs.get("y")?.elements::<f32>()?);
//!         let z: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
//!         Ok(Tensors::new().with("z", HostTensor::new(&z, &[z.len()])?))
//!     })
//!     .tolerance("z", Tolerance::EXACT)
//!     .case(Case::new("small").param("n", 1_000))
//! }
//!
//! scenetest::main!(vector_add);
//! ```
//!
//! ```text
//!   scene program (one thread)
//!     args, select, limits          what runs, and whether it can
//!     session ---- pool             devices taken and given back
//!       |  ^  \
//!       |  |   display, junit       for people, for CI
//!  fork |  | record: Event          through a descriptor of its own, see `record` and `channel`
//!       v  |
//!     process of a case -- body --- facade: the tree of workers
//!       context, compare            inputs, outputs, rounds, reference
//! ```
//!
//! # Guarantees
//! - A case passes only if its process said so through that descriptor and then ended well. Text proves
//!   nothing, silence is a failure, and a comparison that compared nothing is one too.
//! - Every selected case has exactly one outcome; a filter that matches nothing is an error.
//! - A case that is over its time is ended whole, with everything that descends from it; what a
//!   case leaves behind is named.
//! - Outputs are poisoned before every round, so that the last round's values cannot pass for this one's.
//!
//! # What it refuses to do
//! It never judges by what a scene prints, never runs two cases in one process or on one device, makes
//! no golden file that was not asked for, and does not start with time limits that cannot be kept.

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "ndarray")]
mod array;
mod random;
mod scene;
mod tensor;
mod value;

mod compare;
mod context;
mod failure;
mod golden;
mod heat_map;
mod limits;
mod png;
mod safetensors;

mod case_process;
mod channel;
mod compile;
mod heard;
mod record;

mod args;
mod disk;
mod pool;
mod select;

mod hung;
mod running;
mod session;

mod display;
mod entry;
pub mod exit;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod junit;
mod outcome;
mod trace;

pub use compare::{
    CompareError, Comparison, Difference, FIRST_MAX, Tolerance, compare, compare_all,
};
pub use context::{Round, SceneContext};
pub use disk::Sources;
pub use entry::{main, main_of};
pub use failure::Failure;
pub use limits::Limits;
pub use outcome::{CaseReport, Outcome, RoundsTable, SessionReport};
pub use random::Random;
pub use scene::{Body, Case, Inputs, Reference, Scene};
pub use tensor::{HostTensor, TensorError, Tensors};
