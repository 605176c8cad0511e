//! Kernels from C and C++ sources on the simulator: compiled, cached, loaded, called, and what goes
//! wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use device::{
    Arch, Artefact, Chip, ChipArgs, ChipCallable, ChipOrchestrator, CompileError, CompileOptions,
    CoreType, DeviceTensor, Kernel, KernelBody, KernelCompiler, KernelSource, OpenOptions,
    OrchestrationError, Origin, Platform, core_args,
};
use rstest::rstest;
use taskgraph::DType;
use tempfile::TempDir;

use crate::support::chain;

const SIM: Platform = Platform::Sim(Arch::A2a3);

const fn source(name: &'static str, source: KernelSource) -> Kernel {
    Kernel {
        name,
        core: CoreType::Aiv,
        body: KernelBody::Source(source),
    }
}

const fn from_file(name: &'static str, sources: &'static [&'static str]) -> Kernel {
    source(
        name,
        KernelSource {
            sources,
            defines: &[],
            extra_include_dirs: &[],
        },
    )
}

/// A directory for sources (`$SRC`) and a cache of its own.
pub(crate) struct Bench {
    dir: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        Self { dir }
    }

    fn src(&self) -> PathBuf {
        self.dir.path().join("src")
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.src().join(file), text).unwrap();
    }

    fn options(&self) -> CompileOptions {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
        CompileOptions {
            cache_dir: Some(self.dir.path().join("cache")),
            compiler: None,
            variables: vec![
                ("SRC".to_owned(), self.src()),
                ("KERNELS".to_owned(), kernels),
            ],
        }
    }

    fn compile(&self, kernel: &Kernel) -> Result<Artefact, CompileError> {
        KernelCompiler::new(SIM, &self.options()).compile(kernel)
    }

    pub(crate) fn chip(&self) -> Box<dyn Chip> {
        let compile = self.options();
        device::open(
            SIM,
            0,
            &OpenOptions {
                compile,
                ..OpenOptions::default()
            },
        )
        .unwrap()
    }

    /// What lies in the cache, the directory of the header excepted.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("cache")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("include-")).collect()
    }

    /// The error's text, without what differs from run to run.
    fn text(&self, error: &dyn std::error::Error) -> String {
        chain(error).replace(&self.dir.path().display().to_string(), "$DIR")
    }
}

static FROM_C: ChipCallable = ChipCallable {
    name: "from_c",
    orchestration: add_and_describe,
    kernels: &[
        from_file("add", &["$KERNELS/add.c"]),
        from_file("describe", &["$KERNELS/describe.cpp"]),
    ],
};

fn add_and_describe(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let add = core_args()
        .input(a)
        .input(b)
        .output(c)
        .scalar(2.0_f32)
        .blocks(3);
    orch.submit("add", add)?;
    let (view, base) = (args.tensor(3)?, args.scalar(0)?);
    let described = core_args()
        .input(view)
        .output(args.tensor(4)?)
        .scalar(base)
        .scalar(-0.25_f64);
    orch.submit("describe", described)?;
    Ok(())
}

pub(crate) fn upload<T: bytemuck::Pod + taskgraph::Element>(
    chip: &mut dyn Chip,
    values: &[T],
) -> DeviceTensor {
    let address = chip.malloc(size_of_val(values) as u64).unwrap();
    chip.copy_to(address, bytemuck::cast_slice(values)).unwrap();
    DeviceTensor::contiguous(address, T::DTYPE, &[values.len() as u64]).unwrap()
}

fn download<T: bytemuck::Pod>(chip: &mut dyn Chip, tensor: &DeviceTensor) -> Vec<T> {
    let mut values = vec![T::zeroed(); tensor.num_elements() as usize];
    chip.copy_from(
        bytemuck::cast_slice_mut(&mut values),
        tensor.buffer_address(),
    )
    .unwrap();
    values
}

#[test]
fn a_compiled_kernel_sees_its_blocks_tensors_and_scalars() {
    let bench = Bench::new();
    let mut chip = bench.chip();
    let slot = chip.register(&FROM_C).unwrap();
    let a = upload::<f32>(&mut *chip, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let b = upload::<f32>(&mut *chip, &[10.0; 7]);
    let c = upload::<f32>(&mut *chip, &[0.0; 7]);
    let matrix = upload::<u16>(&mut *chip, &[0; 48]).buffer_address();
    let matrix = DeviceTensor::contiguous(matrix, DType::Bf16, &[6, 8]).unwrap();
    let tile = matrix.tile(1..4, 2..7).unwrap();
    let facts = upload::<u64>(&mut *chip, &[0; 9]);
    let mut args = ChipArgs::new().with_scalar(0_u64);
    for tensor in [a, b, c, tile, facts] {
        args = args.with_tensor(tensor);
    }
    device::run(&mut *chip, slot, args).unwrap();
    let sums = download::<f32>(&mut *chip, &c);
    assert_eq!(sums, [21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0]);
    let facts = download::<u64>(&mut *chip, &facts);
    assert_eq!(facts[..6], [1, 2, 3, 5, 8, 1], "bf16, rank, shape, strides");
    assert_ne!(facts[6], 0, "the address of the first element");
    assert_eq!(facts[7..], [1, 1], "the double, one block");
}

pub(crate) const LOCAL: Kernel = source(
    "local",
    KernelSource {
        sources: &["$SRC/local.c"],
        defines: &[],
        extra_include_dirs: &[&["$SRC"]],
    },
);
const LOCAL_SOURCE: &str =
    "#include \"device_kernel.h\"\n#include \"n.h\"\nDEVICE_KERNEL(local) { DEVICE_RETURN(N); }\n";

#[test]
fn a_kernel_is_compiled_once_per_content_of_all_that_it_includes() {
    let bench = Bench::new();
    bench.write("local.c", LOCAL_SOURCE);
    bench.write("n.h", "#define N 0\n");
    let first = bench.compile(&LOCAL).unwrap();
    let again = bench.compile(&LOCAL).unwrap();
    assert_eq!(
        (first.origin, again.origin),
        (Origin::Compiled, Origin::Cached)
    );
    assert_eq!(first.path, again.path);

    bench.write("n.h", "#define N 1\n");
    let changed = bench.compile(&LOCAL).unwrap();
    assert_eq!(changed.origin, Origin::Compiled);
    assert_ne!(changed.path, first.path);
    bench.write("n.h", "#define N 0\n");
    assert_eq!(
        bench.compile(&LOCAL).unwrap(),
        again,
        "the first content is still there"
    );

    let defined = source(
        "local",
        KernelSource {
            sources: &["$SRC/local.c"],
            defines: &["UNUSED"],
            extra_include_dirs: &[&["$SRC"]],
        },
    );
    assert_eq!(
        bench.compile(&defined).unwrap().origin,
        Origin::Compiled,
        "flags count"
    );
}

/// A compiler that moves what lies under `pending` into `n.h` before each compilation (not before the
/// preprocessor runs): somebody who saves in that moment.
fn editing_compiler(bench: &Bench) -> PathBuf {
    let (path, src) = (bench.dir.path().join("cc"), bench.src());
    let src = src.display();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" --version \"*|*\" -E \"*) ;; *)\n\
         next=$(ls {src}/pending* 2>/dev/null | head -n 1)\n\
         if [ -n \"$next\" ]; then mv \"$next\" {src}/n.h; fi ;;\nesac\nexec cc \"$@\"\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn an_edit_during_a_compilation_is_not_published_under_the_digest_before() {
    let bench = Bench::new();
    bench.write("local.c", LOCAL_SOURCE);
    bench.write("n.h", "#define N 0\n");
    let options = CompileOptions {
        compiler: Some(editing_compiler(&bench)),
        ..bench.options()
    };
    let compiler = KernelCompiler::new(SIM, &options);
    bench.write("pending", "#define N 1\n");
    let edited = compiler.compile(&LOCAL).unwrap();
    assert_eq!(edited.origin, Origin::Compiled);
    let again = compiler.compile(&LOCAL).unwrap();
    assert_eq!(
        (again.origin, &again.path),
        (Origin::Cached, &edited.path),
        "it is found under the content that it was made of"
    );

    bench.write("n.h", "#define N 0\n");
    let reverted = compiler.compile(&LOCAL).unwrap();
    assert_eq!(
        reverted.origin,
        Origin::Compiled,
        "nothing was published for the content before"
    );
    let code = |artefact: &Artefact| fs::read(&artefact.path).unwrap();
    assert_ne!(code(&reverted), code(&edited));

    for (number, value) in [2, 3, 4].into_iter().enumerate() {
        bench.write(&format!("pending{number}"), &format!("#define N {value}\n"));
    }
    bench.write("n.h", "#define N 9\n");
    let published = bench.cached();
    let error = compiler.compile(&LOCAL).unwrap_err();
    assert_eq!(
        bench.text(&error),
        "compile kernel `local`: its sources changed during each of 3 compilations; \
         stop what writes them, and use no __TIME__"
    );
    assert_eq!(
        bench.cached().len(),
        published.len(),
        "nothing of it is kept"
    );
}

#[test]
fn a_kernel_that_names_its_time_is_found_again() {
    let bench = Bench::new();
    bench.write("local.c", LOCAL_SOURCE);
    let time = "static const char *volatile time = __DATE__ \" \" __TIME__;\n";
    bench.write("n.h", &format!("{time}#define N (time[0] == 0)\n"));
    let first = bench.compile(&LOCAL).unwrap();
    if std::env::var_os("SOURCE_DATE_EPOCH").is_none() {
        let (code, fixed) = (fs::read(&first.path).unwrap(), b"Jan  1 1970 00:00:00\0");
        assert!(code.windows(fixed.len()).any(|at| at == fixed));
    }
    assert_eq!(bench.compile(&LOCAL).unwrap().origin, Origin::Cached);
}

/// A disk that was full, a power cut: the entry is there and is not what was compiled.
#[test]
fn a_damaged_entry_is_compiled_again() {
    let bench = Bench::new();
    bench.write("local.c", LOCAL_SOURCE);
    bench.write("n.h", "#define N 0\n");
    let whole = bench.compile(&LOCAL).unwrap();
    let content = fs::read(&whole.path).unwrap();
    for length in [0, 1, 63, 64, content.len() / 2, content.len() - 1] {
        fs::write(&whole.path, &content[..length]).unwrap();
        let mended = bench.compile(&LOCAL).unwrap();
        assert_eq!(mended.origin, Origin::Compiled, "{length} bytes");
        assert_eq!(mended.path, whole.path);
    }
    fs::write(&whole.path, vec![0; content.len()]).unwrap();
    assert_eq!(bench.compile(&LOCAL).unwrap().origin, Origin::Compiled);
    assert_eq!(bench.compile(&LOCAL).unwrap().origin, Origin::Cached);

    let header = bench.options().cache_dir.unwrap();
    let mut dirs = fs::read_dir(header)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let header = dirs
        .find(|path| path.is_dir())
        .unwrap()
        .join("device_kernel.h");
    fs::write(&header, "no header").unwrap();
    bench.write("n.h", "#define N 2\n");
    assert_eq!(bench.compile(&LOCAL).unwrap().origin, Origin::Compiled);
}

#[test]
fn compiling_the_same_kernel_at_once_publishes_one_whole_entry() {
    let bench = Bench::new();
    bench.write("local.c", LOCAL_SOURCE);
    bench.write("n.h", "#define N 0\n");
    let (start, options) = (std::sync::Barrier::new(4), bench.options());
    let paths: Vec<PathBuf> = std::thread::scope(|scope| {
        let compile = || {
            start.wait();
            KernelCompiler::new(SIM, &options)
                .compile(&LOCAL)
                .unwrap()
                .path
        };
        let threads = [(); 4].map(|()| scope.spawn(compile));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]));
    assert_eq!(
        bench.cached().len(),
        1,
        "no staged file is left: {:?}",
        bench.cached()
    );
}

#[test]
fn a_whole_set_is_compiled_in_order_and_each_kernel_reports() {
    static BAD: ChipCallable = ChipCallable {
        name: "bad",
        orchestration: add_and_describe,
        kernels: &[from_file("missing", &["$KERNELS/missing.c"])],
    };
    let bench = Bench::new();
    let compiler = KernelCompiler::new(SIM, &bench.options());
    let done = compiler.compile_all(&[&FROM_C, &BAD], 2);
    let names: Vec<&str> = done.iter().map(|(kernel, _)| kernel.name).collect();
    assert_eq!(names, ["add", "describe", "missing"]);
    assert!(done[0].1.is_ok() && done[1].1.is_ok());
    assert!(matches!(done[2].1, Err(CompileError::NoSource { .. })));
}

const NO_VARIABLE: Kernel = from_file("k", &["$NO_SUCH_VARIABLE_IS_SET/k.c"]);
const NO_DIR: Kernel = source(
    "k",
    KernelSource {
        sources: &["$KERNELS/add.c"],
        defines: &[],
        extra_include_dirs: &[&["$SRC"], &["$SRC/a", "${SRC}/b"]],
    },
);
const NO_FILE: Kernel = from_file("k", &["$SRC/k.c"]);

#[rstest]
#[case(
    NO_VARIABLE,
    "resolve `$NO_SUCH_VARIABLE_IS_SET/k.c` for kernel `k`: \
     the variable NO_SUCH_VARIABLE_IS_SET is not set"
)]
#[case(
    NO_DIR,
    "find an include directory for kernel `k`: none of $DIR/src/a, $DIR/src/b exists"
)]
#[case(NO_FILE, "read source $DIR/src/k.c of kernel `k`: no such file")]
fn what_cannot_be_resolved_is_named(#[case] kernel: Kernel, #[case] expected: &str) {
    let bench = Bench::new();
    assert_eq!(bench.text(&bench.compile(&kernel).unwrap_err()), expected);
}

#[test]
fn a_compile_error_shows_the_command_and_all_of_the_output() {
    let bench = Bench::new();
    bench.write(
        "local.c",
        "#include \"device_kernel.h\"\nint broken( { return undeclared; }\n",
    );
    let text = bench.text(&bench.compile(&LOCAL).unwrap_err());
    assert!(
        text.starts_with("compile kernel `local`: exit status: 1\n  "),
        "{text}"
    );
    assert!(
        text.contains(" -shared -o ") && text.contains("$DIR/src/local.c\n"),
        "{text}"
    );
    assert!(text.contains("local.c:2:"), "{text}");
    assert!(bench.cached().is_empty(), "nothing is left behind");
}

#[test]
fn a_missing_vendor_compiler_is_named_with_where_it_was_looked_for() {
    let bench = Bench::new();
    let mut options = bench.options();
    options
        .variables
        .push(("ASCEND_HOME_PATH".to_owned(), bench.src()));
    let compiler = KernelCompiler::new(Platform::A5, &options);
    let text = bench.text(&compiler.compile(&FROM_C.kernels[0]).unwrap_err());
    assert_eq!(
        text,
        "compile kernel `add` for a5: there is no `ccec` in $DIR/src/bin, \
         $DIR/src/compiler/ccec_compiler/bin, nor on PATH; \
         set ASCEND_HOME_PATH to the CANN installation, or use the simulator (sim, a5sim)"
    );
}

#[test]
fn the_vendor_compiler_is_told_the_core_and_the_architecture() {
    let bench = Bench::new();
    let mut options = bench.options();
    let fake = bench.src().join("ccec");
    // Preprocessing prints the arguments, so they decide the digest; compiling writes them down.
    let script = "#!/bin/sh\nout=\nfor a; do [ \"$o\" ] && out=$a; o=; [ \"$a\" = -o ] && o=1; done\n\
                  echo \"$@\" > \"${out:-/dev/stdout}\"\n";
    fs::write(&fake, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&fake, mode).unwrap();
    options.compiler = Some(fake);
    let compile = |platform| {
        let artefact = KernelCompiler::new(platform, &options)
            .compile(&FROM_C.kernels[0])
            .unwrap();
        fs::read_to_string(artefact.path).unwrap()
    };
    let (a2a3, a5) = (compile(Platform::A2a3), compile(Platform::A5));
    assert!(
        a2a3.contains("--cce-aicore-arch=dav-c220-vec") && a2a3.contains(" -c "),
        "{a2a3}"
    );
    assert!(a5.contains("--cce-aicore-arch=dav-c310-vec"), "{a5}");
}

static REFUSED: ChipCallable = ChipCallable {
    name: "refused",
    orchestration: submit_local,
    kernels: &[LOCAL],
};

fn submit_local(orch: &mut ChipOrchestrator<'_>, _: &ChipArgs) -> Result<(), OrchestrationError> {
    orch.submit("local", core_args())?;
    Ok(())
}

#[test]
fn a_kernel_that_returns_a_code_fails_its_run() {
    let bench = Bench::new();
    bench.write("local.c", LOCAL_SOURCE);
    bench.write("n.h", "#define N 7\n");
    let mut chip = bench.chip();
    let slot = chip.register(&REFUSED).unwrap();
    let error = device::run(&mut *chip, slot, ChipArgs::new()).unwrap_err();
    assert_eq!(
        chain(&error),
        "execute task 0 (kernel `local`, block 0, AIV core 0) of `refused` on chip 0: \
         finish: it returned 7"
    );
}

#[rstest]
#[case("int unrelated;\n", "find `device_kernel_abi` in ")]
#[case(
    "unsigned device_kernel_abi(void) { return 9; }\n",
    "version 9, version 2 is needed"
)]
#[case(
    "#include \"device_kernel.h\"\nDEVICE_KERNEL(other) { DEVICE_RETURN(0); }\n",
    "find `local` in "
)]
#[case(
    "#include \"device_kernel.h\"\nvoid nowhere(void);\n\
     DEVICE_KERNEL(local) { nowhere(); DEVICE_RETURN(0); }\n",
    "undefined symbol: nowhere"
)]
fn a_library_that_does_not_fit_is_refused_when_it_is_registered(
    #[case] text: &str,
    #[case] expected: &str,
) {
    let bench = Bench::new();
    bench.write("local.c", text);
    let error = bench.chip().register(&REFUSED).unwrap_err();
    assert!(chain(&error).contains(expected), "{}", chain(&error));
}

static RELAY: ChipCallable = ChipCallable {
    name: "relay",
    orchestration: |orch, args| {
        let task = core_args().inout(args.tensor(0)?).scalar(args.scalar(0)?);
        orch.submit("relay", task).map(drop)
    },
    kernels: &[Kernel {
        core: CoreType::Mix,
        ..from_file("relay", &["$KERNELS/relay.c"])
    }],
};

#[test]
fn the_cores_of_a_compiled_mix_block_run_at_once_and_wait_for_each_other() {
    let bench = Bench::new();
    let mut chip = bench.chip();
    let slot = chip.register(&RELAY).unwrap();
    let numbers = upload::<i32>(&mut *chip, &[0; 3]);
    let args = |leaves_at: u32| ChipArgs::new().with_tensor(numbers).with_scalar(leaves_at);
    device::run(&mut *chip, slot, args(9)).unwrap();
    assert_eq!(download::<i32>(&mut *chip, &numbers), [6 * 27; 3]);
    let error = device::run(&mut *chip, slot, args(2)).unwrap_err();
    let text = chain(&error);
    assert!(text.contains("core AIV 0 of the block has ended"), "{text}");
    device::run(&mut *chip, slot, args(9)).unwrap();
}

static ALONE: ChipCallable = ChipCallable {
    kernels: &[from_file("relay", &["$KERNELS/relay.c"])],
    ..RELAY
};

#[test]
fn a_compiled_kernel_of_one_core_waits_for_nobody() {
    let bench = Bench::new();
    let mut chip = bench.chip();
    let slot = chip.register(&ALONE).unwrap();
    let numbers = upload::<i32>(&mut *chip, &[0; 3]);
    let args = ChipArgs::new().with_tensor(numbers).with_scalar(9_u32);
    device::run(&mut *chip, slot, args).unwrap();
    assert_eq!(
        download::<i32>(&mut *chip, &numbers)[1],
        2,
        "it is the first vector core"
    );
}
