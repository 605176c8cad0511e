//! A vendor library that is none (`tests/fake/acl.c`), and a compiler for its kernels.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use device::{Chip, CompileOptions, DeviceError, Digest, OpenOptions, Platform, VendorOptions};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use tempfile::TempDir;

/// One copy of the fake library in a directory of its own, so that it has globals of its own.
pub(crate) struct Fake {
    dir: TempDir,
}

/// An exception on a core, as the runtime library reports it.
pub(crate) const CORE_EXCEPTION: c_int = 507_015;
/// An answer of `aclrtStreamQuery` of the fake library that is no refusal.
pub(crate) const NOT_READY: c_int = 1;

/// Compiles with the host's compiler whatever the backend asks `ccec` for.
const COMPILER: &str = "#!/bin/sh
mode=-shared
for word; do
    shift
    case $word in
    --version) exec cc --version ;;
    -E) mode=-E ;;
    -x | cce | -c | -std=* | --cce-* | -DDEVICE_ON_CHIP) ;;
    *) set -- \"$@\" \"$word\" ;;
    esac
done
exec cc \"$mode\" -fPIC \"$@\"
";

/// Where compiled things stay from one test run to the next, named by what they were made of.
static KEPT: LazyLock<&Path> = LazyLock::new(|| Path::new(env!("CARGO_TARGET_TMPDIR")));

/// A compiled variant of the library.
fn built(flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/acl.c");
    let content = [fs::read(&source).unwrap(), flags.concat().into_bytes()].concat();
    kept(&format!("acl-{:#}.so", Digest::of(&content)), |to| {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-pthread", "-o"])
            .arg(to)
            .args(flags)
            .arg(&source);
        assert!(cc.status().unwrap().success(), "the fake library compiles");
    })
}

/// The compiler for kernels of the fake library.
fn compiler() -> PathBuf {
    kept(
        &format!("ccec-{:#}", Digest::of(COMPILER.as_bytes())),
        |to| {
            fs::write(to, COMPILER).unwrap();
            fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
        },
    )
}

/// A kept file, made under another name and renamed if it is not there.
fn kept(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let path = KEPT.join(name);
    if !path.is_file() {
        let staged = tempfile::NamedTempFile::new_in(*KEPT)
            .unwrap()
            .into_temp_path();
        make(&staged);
        staged.persist(&path).unwrap();
    }
    path
}

impl Fake {
    /// A copy of a variant: `flags` are `-DWITHOUT_aclrtFree` and the like.
    pub(crate) fn new(flags: &[&str]) -> Self {
        let fake = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let built = built(flags);
        for library in ["libascendcl.so", "libascend_hal.so"] {
            fs::copy(&built, fake.path().join(library)).unwrap();
        }
        fake
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// How to open a chip on it.
    pub(crate) fn options(&self) -> OpenOptions {
        let vendor = VendorOptions {
            library_dirs: vec![self.path().to_owned()],
            visible_devices: Some("0,1,2,3,4,5,6,7".to_owned()),
            ..VendorOptions::default()
        };
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
        let compile = CompileOptions {
            cache_dir: Some(KEPT.join("kernels")),
            compiler: Some(compiler()),
            variables: vec![("KERNELS".to_owned(), kernels)],
        };
        OpenOptions {
            vendor,
            compile,
            ..OpenOptions::default()
        }
    }

    /// Opens device `id` of a list of visible ones.
    pub(crate) fn open_visible(
        &self,
        list: Option<&str>,
        id: u32,
    ) -> Result<Box<dyn Chip>, DeviceError> {
        let mut options = self.options();
        options.vendor.visible_devices = list.map(str::to_owned);
        device::open(Platform::A2a3, id, &options)
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Chip>, DeviceError> {
        device::open(Platform::A2a3, 0, &self.options())
    }

    /// Tells the library to refuse `times` calls after `after` good ones, with a code.
    pub(crate) fn refuse(&self, call: &str, (after, times): (c_int, c_int), code: c_int) {
        let call = CString::new(call).unwrap();
        let refuse = self.symbol::<unsafe extern "C" fn(*const c_char, c_int, c_int, c_int)>(
            "libascendcl.so",
            "fake_refuse",
        );
        // SAFETY: the signature is that of `fake_refuse`; the string lives through the call.
        unsafe { refuse(call.as_ptr(), after, times, code) };
    }

    /// The calls since the last time, each with its argument, of the runtime library.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.log("libascendcl.so")
    }

    /// The calls into the driver.
    pub(crate) fn driver_calls(&self) -> Vec<String> {
        self.log("libascend_hal.so")
    }

    fn log(&self, library: &str) -> Vec<String> {
        let log = self.symbol::<unsafe extern "C" fn() -> *const c_char>(library, "fake_log");
        let forget = self.symbol::<unsafe extern "C" fn()>(library, "fake_forget");
        // SAFETY: the signature is that of `fake_log`.
        let text = unsafe { log() };
        // SAFETY: the library returns a terminated string; no chip of it is in use on another
        // thread.
        let lines = unsafe { CStr::from_ptr(text) }
            .to_str()
            .unwrap()
            .lines()
            .map(str::to_owned);
        let lines = lines.collect();
        // SAFETY: the signature is that of `fake_forget`.
        unsafe { forget() };
        lines
    }

    /// How many thread-local values were destroyed.
    pub(crate) fn destroyed(&self) -> c_int {
        let destroyed =
            self.symbol::<unsafe extern "C" fn() -> c_int>("libascendcl.so", "fake_destroyed");
        // SAFETY: the signature is that of `fake_destroyed`.
        unsafe { destroyed() }
    }

    /// The address of the global that every copy of the library has.
    pub(crate) fn global(&self) -> usize {
        let global = self.symbol::<*mut c_int>("libascendcl.so", "shared_global");
        global.as_raw_ptr().addr()
    }

    fn symbol<T>(&self, library: &str, name: &str) -> Symbol<T> {
        let path = self.path().join(library);
        // SAFETY: a library of ours; loading it runs no code of interest.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        // SAFETY: the callers name the type that the C source has.
        let symbol = unsafe { library.get::<T>(name) }.unwrap();
        // The backend keeps it loaded as well; one more handle keeps the symbol valid before that.
        std::mem::forget(library);
        symbol
    }
}
