//! Callables: an orchestration function with its kernels, as a `static`, and the digest that names
//! it.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::args::ChipArgs;
use crate::error::OrchestrationError;
use crate::kernel::{Kernel, KernelBody};
use crate::orchestrator::ChipOrchestrator;

/// Builds the core tasks of one run. It names data and never touches it.
pub type Orchestration = fn(&mut ChipOrchestrator<'_>, &ChipArgs) -> Result<(), OrchestrationError>;

/// Something a chip can run: an orchestration and the kernels that it submits by name.
///
/// Every field is public and constant, so that a callable can be a `static`:
///
/// ```
/// use device::{
///     ChipArgs, ChipCallable, ChipOrchestrator, Kernel, KernelContext, KernelError,
///     OrchestrationError, core_args,
/// };
///
/// static DOUBLE: ChipCallable = ChipCallable {
///     name: "double",
///     orchestration: double,
///     kernels: &[Kernel::vector("scale", scale)],
/// };
///
/// fn double(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
///     let (x, y) = (args.tensor(0)?, args.tensor(1)?);
///     orch.submit("scale", core_args().input(x).output(y))?;
///     Ok(())
/// }
///
/// fn scale(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
///     let (x, y) = (cx.input::<f32>(0)?, cx.output::<f32>(1)?);
///     for (y, x) in y.iter_mut().zip(x) {
///         *y = 2.0 * x;
///     }
///     Ok(())
/// }
/// assert_eq!(DOUBLE.digest(), DOUBLE.digest());
/// ```
#[derive(Debug)]
pub struct ChipCallable {
    /// Its name in messages and in the digest.
    pub name: &'static str,
    /// Builds the tasks of a run.
    pub orchestration: Orchestration,
    /// The kernels it may submit; their names are distinct.
    pub kernels: &'static [Kernel],
}

impl ChipCallable {
    /// A callable from its parts; nothing is checked before it is registered.
    #[must_use]
    pub const fn new(
        name: &'static str,
        orchestration: Orchestration,
        kernels: &'static [Kernel],
    ) -> Self {
        Self {
            name,
            orchestration,
            kernels,
        }
    }

    /// The position of a kernel by name.
    #[must_use]
    pub fn kernel_idx(&self, name: &str) -> Option<usize> {
        self.kernels.iter().position(|kernel| kernel.name == name)
    }

    /// The canonical bytes that the digest is taken of.
    ///
    /// Functions enter as their distance from a fixed function of this crate, which is the same in
    /// every process that runs the same executable, and different between two functions of the same
    /// name. So a digest names a callable within one build of one program, which is where handles
    /// travel.
    #[must_use]
    pub fn descriptor(&self) -> Vec<u8> {
        let mut out = Descriptor::default();
        out.text("device callable 1");
        out.text(self.name);
        out.function(self.orchestration as *const () as usize);
        out.number(self.kernels.len() as u64);
        for kernel in self.kernels {
            out.kernel(kernel);
        }
        out.0
    }

    /// SHA-256 of the canonical bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.descriptor())
    }

    /// What is wrong with it, if anything: empty or repeated names, sources without a file.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.name.is_empty() {
            return Some("its name is empty".to_owned());
        }
        for (idx, kernel) in self.kernels.iter().enumerate() {
            if kernel.name.is_empty() {
                return Some(format!("the name of kernel {idx} is empty"));
            }
            if self.kernel_idx(kernel.name) != Some(idx) {
                return Some(format!("two kernels are named `{}`", kernel.name));
            }
            if matches!(kernel.body, KernelBody::Source(source) if source.sources.is_empty()) {
                return Some(format!("kernel `{}` has no source file", kernel.name));
            }
        }
        None
    }
}

/// A SHA-256 digest; shown as 64 hexadecimal digits, or 12 with the alternate flag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if f.alternate() { 6 } else { 32 };
        self.0[..shown]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Builds the canonical bytes: every item carries its length, so that no two descriptors collide by
/// joining.
#[derive(Default)]
struct Descriptor(Vec<u8>);

impl Descriptor {
    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn texts(&mut self, texts: &[&str]) {
        self.number(texts.len() as u64);
        texts.iter().for_each(|text| self.text(text));
    }

    fn function(&mut self, address: usize) {
        let anchor = anchor as *const () as usize;
        self.number(address.wrapping_sub(anchor) as u64);
    }

    fn kernel(&mut self, kernel: &Kernel) {
        self.text(kernel.name);
        self.text(kernel.core.name());
        match kernel.body {
            KernelBody::Rust(body) => {
                self.text("rust");
                self.function(body as *const () as usize);
            }
            KernelBody::Source(source) => {
                self.text("source");
                self.texts(source.sources);
                self.texts(source.defines);
                self.number(source.extra_include_dirs.len() as u64);
                source
                    .extra_include_dirs
                    .iter()
                    .for_each(|group| self.texts(group));
            }
        }
    }
}

/// The fixed point that functions are measured from.
fn anchor() {}

#[cfg(test)]
mod tests;
