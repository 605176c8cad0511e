//! Compiles kernels from C++ sources for a platform, without touching a device, and runs them if it
//! is simulated.
//!
//! `cargo run -p device --example compile_kernels -- --platform sim|a5sim|a2a3|a5`. A compiler that
//! is missing is named, and the exit code is 1 then.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::error::Error;
use std::process::ExitCode;

use device::{
    ChipArgs, ChipCallable, ChipOrchestrator, CompileError, CompileOptions, CoreType, DeviceTensor,
    Kernel, KernelBody, KernelCompiler, KernelSource, OpenOptions, OrchestrationError, Platform,
    core_args,
};
use taskgraph::DType;

static VECTOR: ChipCallable = ChipCallable {
    name: "vector",
    orchestration,
    kernels: &[from_cpp("vector_add"), from_cpp("vector_scale")],
};

const fn from_cpp(name: &'static str) -> Kernel {
    let sources = &[concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/kernels/vector.cpp"
    )];
    let source = KernelSource {
        sources,
        defines: &[],
        extra_include_dirs: &[],
    };
    Kernel {
        name,
        core: CoreType::Aiv,
        body: KernelBody::Source(source),
    }
}

/// out = (a + b) * s, each on four cores.
fn orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (a, b, out) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    orch.submit(
        "vector_add",
        core_args().input(a).input(b).output(out).blocks(4),
    )?;
    orch.submit(
        "vector_scale",
        core_args().inout(out).scalar(args.scalar(0)?).blocks(4),
    )?;
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let platform = platform(std::env::args().skip(1))?;
    let compiler = KernelCompiler::new(platform, &CompileOptions::default());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed = false;
    for (kernel, compiled) in compiler.compile_all(&[&VECTOR], jobs) {
        match compiled {
            Ok(artefact) => {
                println!(
                    "{:<14} {:?} {:#}",
                    kernel.name, artefact.origin, artefact.digest
                );
            }
            Err(error) => {
                failed = true;
                println!("{:<14} {}", kernel.name, chain(&error));
            }
        }
    }
    if failed {
        return Ok(ExitCode::FAILURE);
    }
    if platform.is_simulated() {
        run(platform)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The platform behind `--platform`; the simulator if none is named.
fn platform(args: impl Iterator<Item = String>) -> Result<Platform, Box<dyn Error>> {
    let args: Vec<String> = args.collect();
    match &args[..] {
        [] => Ok("sim".parse()?),
        [flag, name] if flag == "--platform" => Ok(name.parse()?),
        _ => Err("usage: compile_kernels [--platform sim|a5sim|a2a3|a5]".into()),
    }
}

/// Checks the compiled kernels on a simulated chip.
fn run(platform: Platform) -> Result<(), Box<dyn Error>> {
    let mut chip = device::open(platform, 0, &OpenOptions::default())?;
    let slot = chip.register(&VECTOR)?;
    let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut args = ChipArgs::new().with_scalar(0.5_f32);
    for _ in 0..3 {
        let address = chip.malloc(4000)?;
        chip.copy_to(address, bytemuck::cast_slice(&values))?;
        args = args.with_tensor(DeviceTensor::contiguous(address, DType::F32, &[1000])?);
    }
    let out = args.tensor(2)?.buffer_address();
    device::run(&mut *chip, slot, args)?;
    let mut found = vec![0.0_f32; 1000];
    chip.copy_from(bytemuck::cast_slice_mut(&mut found), out)?;
    if found != values {
        return Err("the compiled kernels give another result than the reference".into());
    }
    println!("(a + b) * 0.5 is right on {platform}");
    Ok(())
}

/// An error with its causes.
fn chain(error: &CompileError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
