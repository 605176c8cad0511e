//! What several modules need: small workers, gates between processes, and a look into `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use facade::{
    Args, ChipArgs, ChipCallable, ChipOrchestrator, DeviceBuffer, Error, Kernel, KernelContext,
    KernelError, OrchestrationError, TaskResult, TreeNode, Worker, WorkerBuilder, core_args,
};

/// `c = a + b`.
pub(crate) static VECTOR_ADD: ChipCallable = ChipCallable {
    name: "vector_add",
    orchestration: add_orchestration,
    kernels: &[Kernel::vector("add", add_kernel)],
};

fn add_orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    orch.submit("add", core_args().input(a).input(b).output(c))?;
    Ok(())
}

fn add_kernel(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (a, b, c) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.output::<f32>(2)?,
    );
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
    Ok(())
}

/// `x = x + 1`, in place.
pub(crate) static INCREMENT: ChipCallable = ChipCallable {
    name: "increment",
    orchestration: increment_orchestration,
    kernels: &[Kernel::vector("increment", increment_kernel)],
};

fn increment_orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    orch.submit("increment", core_args().inout(args.tensor(0)?))?;
    Ok(())
}

fn increment_kernel(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<f32>(0)?.iter_mut().for_each(|x| *x += 1.0);
    Ok(())
}

/// Stands at the gate whose path is in its argument (see [`stand_at`]) until that is opened. A kernel is a plain function: it
/// captures nothing.
pub(crate) static STAND: ChipCallable = ChipCallable {
    name: "stand",
    orchestration: stand_orchestration,
    kernels: &[Kernel::vector("stand", stand_kernel)],
};

fn stand_orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    orch.submit("stand", core_args().input(args.tensor(0)?))?;
    Ok(())
}

fn stand_kernel(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let path = String::from_utf8(cx.input::<u8>(0)?.to_vec()).expect("a path");
    // The end of the file comes when the last writer has gone.
    fs::read(path).expect("the gate's pipe");
    Ok(())
}

/// Memory of a chip that names the gate, for [`STAND`].
pub(crate) fn stand_at(node: &Worker, chip: u32, gate: &Gate) -> DeviceBuffer<u8> {
    let path = gate.path.to_str().expect("a readable path").as_bytes();
    let place = node.malloc::<u8>(chip, path.len()).expect("memory");
    node.copy_to(place, path).expect("a copy");
    place
}

/// A builder with so many chips and sub workers, and short limits.
pub(crate) fn builder(chips: u32, sub_workers: u32) -> WorkerBuilder {
    Worker::node()
        .chips(chips)
        .sub_workers(sub_workers)
        .start_timeout(Duration::from_secs(10))
}

/// A callable that does nothing.
pub(crate) fn nothing(_args: &Args) -> TaskResult {
    Ok(())
}

/// A gate between processes: whoever passes blocks in the kernel until the test opens it. Named, since children hold no
/// descriptor that they were not given.
#[derive(Clone)]
pub(crate) struct Gate {
    path: PathBuf,
}

impl Gate {
    /// A closed gate in `dir`.
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let path = dir.join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
        Self { path }
    }

    /// Blocks until the other side is here. In the worker.
    pub(crate) fn pass(&self) {
        fs::File::open(&self.path).expect("the gate's pipe");
    }

    /// Lets one through; blocks until it is there. In the test.
    pub(crate) fn open(&self) {
        fs::OpenOptions::new()
            .write(true)
            .open(&self.path)
            .expect("the gate's pipe");
    }
}

impl Gate {
    /// Blocks until the result of [`reader_is_there`](Gate::reader_is_there) is dropped. In the worker.
    pub(crate) fn stand(&self) {
        fs::read(&self.path).expect("the gate's pipe");
    }

    /// Blocks until somebody [stands](Gate::stand) at the gate, which opens when the result is dropped.
    pub(crate) fn reader_is_there(&self) -> fs::File {
        let gate = fs::OpenOptions::new().write(true).open(&self.path);
        gate.expect("the gate's pipe")
    }
}

/// A directory that is removed with the value.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Whether a process exists that is not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or("").trim().chars().next();
    !matches!(state, None | Some('Z' | 'X'))
}

/// Waits until none of `pids` is alive; says which are after ten seconds.
pub(crate) fn wait_gone(pids: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Some(pid) = pids.iter().find(|pid| is_alive(**pid)) {
        assert!(
            Instant::now() < deadline,
            "process {pid} of {pids:?} is still alive"
        );
        std::thread::yield_now();
    }
}

/// The processes of a tree, without the root.
pub(crate) fn pids(tree: &TreeNode) -> Vec<u32> {
    tree.flatten().iter().skip(1).map(|node| node.pid).collect()
}

/// How many descriptors this process has open.
pub(crate) fn n_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// How many mappings of shared segments a process has whose name contains `name`.
pub(crate) fn n_mappings(pid: u32, name: &str) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines()
        .filter(|line| line.contains("memfd:") && line.contains(name))
        .count()
}

/// Sends a signal to a process of this test's own tree.
pub(crate) fn kill(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(pid, signal).expect("a process of this test");
}

/// The message of a run that must have failed.
#[track_caller]
pub(crate) fn failure<R>(outcome: Result<R, Error>) -> facade::RunError {
    match outcome {
        Err(Error::Run(error)) => error,
        Err(other) => panic!("expected a failed run, found {other}"),
        Ok(_) => panic!("expected a failed run"),
    }
}

/// Sources of a kernel `compiled`, with code that runs where a chip worker loads it, and the settings that a chip worker
/// needs to find them. In the code, `HERE` is the directory as a string.
pub(crate) fn kernel_source(dir: &Path, on_load: &str) -> facade::Settings {
    let here = dir.to_str().expect("a name in ASCII");
    let source = format!(
        "#include \"device_kernel.h\"\n#include <dirent.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
         #define HERE \"{here}\"\n\
         __attribute__((constructor)) static void on_load(void) {{ {on_load} }}\n\
         DEVICE_KERNEL(compiled) {{ DEVICE_RETURN(0); }}\n"
    );
    fs::write(dir.join("kernel.c"), source).expect("a directory of the test");
    facade::Settings::new()
        .env("DEVICE_KERNEL_CACHE", here)
        .env("FACADE_TEST_SOURCE", here)
}

fn no_tasks(_: &mut ChipOrchestrator<'_>, _: &ChipArgs) -> Result<(), OrchestrationError> {
    Ok(())
}

/// A callable whose kernel is that of [`kernel_source`].
pub(crate) static COMPILED: ChipCallable = ChipCallable::new(
    "compiled",
    no_tasks,
    &[Kernel {
        name: "compiled",
        core: facade::CoreType::Aiv,
        body: facade::KernelBody::Source(facade::KernelSource {
            sources: &["$FACADE_TEST_SOURCE/kernel.c"],
            defines: &[],
            extra_include_dirs: &[],
        }),
    }],
);

/// Waits until the answer is yes, at most ten seconds.
pub(crate) fn until(question: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !question() {
        assert!(Instant::now() < deadline, "it never came to be");
        std::thread::yield_now();
    }
}
