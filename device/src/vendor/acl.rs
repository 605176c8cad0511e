//! The vendor's runtime and driver with every call checked, bound to one device.
//!
//! A refusal becomes a [`VendorError`], which names the call, both numbers of the device, the code
//! and the library's own words (asked for on the same thread, at once, so that they belong to this
//! call). What follows from a refusal is the caller's policy.
//!
//! # Safety
//!
//! The `unsafe` here is calling through the table. Out-parameters point at locals, buffers are
//! slices, and handles are values that the same library gave out and this crate did not give back;
//! each block says which. Device addresses are checked by the caller against its table of live
//! allocations.

#![expect(
    unsafe_code,
    reason = "calls into the vendor's libraries, see the Safety section"
)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

use thiserror::Error;

use super::table::{ACL_MAJOR, AclError, AclTable, HalTable, PlaceHolder};
use super::visible::{LogicalId, PhysicalId};
use crate::library::{LibraryError, Loaded};

/// `aclInit` was called before in this process, which is as good.
const REPEATED_INIT: AclError = 100_002;
/// There is not enough device memory.
const NO_MEMORY: AclError = 207_001;
/// Errors of the device itself: exceptions, timeouts, lost cards.
const DEVICE_FAULTS: std::ops::Range<AclError> = 507_000..508_000;

const MALLOC_HUGE_FIRST: c_int = 0;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const HBM_MEMORY: c_int = 1;
const STREAM_COMPLETE: c_int = 0;

const MODULE_AICORE: i32 = 4;
const MODULE_VECTOR_CORE: i32 = 7;
const INFO_CORE_NUM: i32 = 3;

/// A call into the vendor's library that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "call {call} for device {logical} (card {physical}): error {code}{}",
    Words(message)
)]
pub struct VendorError {
    /// The function.
    pub call: &'static str,
    /// The number that the program and the runtime library use.
    pub logical: u32,
    /// The number of the card, which the driver uses.
    pub physical: u32,
    /// The library's code.
    pub code: i32,
    /// The library's words; may be empty.
    pub message: String,
}

impl VendorError {
    /// Whether the device itself is at fault, so that nothing works on it until it is reset.
    #[must_use]
    pub fn is_device_fault(&self) -> bool {
        DEVICE_FAULTS.contains(&self.code)
    }

    /// Whether device memory is exhausted.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.code == NO_MEMORY
    }
}

/// A message behind a colon, if there is one.
struct Words<'a>(&'a str);

impl std::fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.0)
        }
    }
}

/// A handle that the library gave out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle(*mut c_void);

/// The runtime library, for one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acl {
    table: AclTable,
    logical: LogicalId,
    physical: PhysicalId,
}

impl Acl {
    /// Checks the library whole: every function, then the version. No device is touched.
    pub(crate) fn load(
        library: &Loaded,
        logical: LogicalId,
        physical: PhysicalId,
    ) -> Result<Self, LibraryError> {
        let acl = Self {
            table: AclTable::load(library)?,
            logical,
            physical,
        };
        let found = acl.version();
        if found.as_ref().is_ok_and(|version| version[0] == ACL_MAJOR) {
            return Ok(acl);
        }
        let found = match found {
            Ok([major, minor, patch]) => format!("{major}.{minor}.{patch}"),
            Err(error) => error.to_string(),
        };
        let path = library.path().to_owned();
        Err(LibraryError::Version {
            path,
            wanted: format!("{ACL_MAJOR}.x"),
            found,
        })
    }

    fn version(&self) -> Result<[c_int; 3], VendorError> {
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: the pointers are to three locals.
        let code = unsafe { (self.table.aclrtGetVersion)(&mut major, &mut minor, &mut patch) };
        self.check("aclrtGetVersion", code)?;
        Ok([major, minor, patch])
    }

    /// Starts the library in this process; harmless when it runs already.
    pub(crate) fn init(&self) -> Result<(), VendorError> {
        // SAFETY: a null path means that there is no configuration file.
        match unsafe { (self.table.aclInit)(std::ptr::null()) } {
            REPEATED_INIT => Ok(()),
            code => self.check("aclInit", code),
        }
    }

    /// How many devices this process sees.
    pub(crate) fn device_count(&self) -> Result<u32, VendorError> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.table.aclrtGetDeviceCount)(&mut count) };
        self.check("aclrtGetDeviceCount", code)?;
        Ok(count)
    }

    /// Binds the calling thread to the device.
    pub(crate) fn set_device(&self) -> Result<(), VendorError> {
        // SAFETY: takes a number, which the library checks.
        let code = unsafe { (self.table.aclrtSetDevice)(self.logical.0 as i32) };
        self.check("aclrtSetDevice", code)
    }

    /// Gives the device back, with all that this process has on it.
    pub(crate) fn reset_device(&self) -> Result<(), VendorError> {
        // SAFETY: takes a number, which the library checks.
        let code = unsafe { (self.table.aclrtResetDevice)(self.logical.0 as i32) };
        self.check("aclrtResetDevice", code)
    }

    /// Resets a device that is at fault, by force where the library can.
    pub(crate) fn force_reset(&self) -> Result<(), VendorError> {
        let Some(force) = self.table.aclrtResetDeviceForce else {
            return self.reset_device();
        };
        // SAFETY: takes a number, which the library checks.
        let code = unsafe { force(self.logical.0 as i32) };
        self.check("aclrtResetDeviceForce", code)
    }

    pub(crate) fn malloc(&self, bytes: u64) -> Result<u64, VendorError> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let code =
            unsafe { (self.table.aclrtMalloc)(&mut address, bytes as usize, MALLOC_HUGE_FIRST) };
        self.check("aclrtMalloc", code)?;
        Ok(address.expose_provenance() as u64)
    }

    /// Frees what [`Acl::malloc`] returned.
    pub(crate) fn free(&self, address: u64) -> Result<(), VendorError> {
        // SAFETY: the caller looked the address up among its live allocations.
        let code = unsafe { (self.table.aclrtFree)(device_pointer(address)) };
        self.check("aclrtFree", code)
    }

    /// Copies to a range that the caller checked.
    pub(crate) fn copy_to(&self, to: u64, from: &[u8]) -> Result<(), VendorError> {
        let (to, len, from) = (device_pointer(to), from.len(), from.as_ptr().cast());
        // SAFETY: the host side is a slice of `len` bytes, the device side a range inside one live
        // allocation.
        let code = unsafe { (self.table.aclrtMemcpy)(to, len, from, len, HOST_TO_DEVICE) };
        self.check("aclrtMemcpy", code)
    }

    /// Copies from a range that the caller checked.
    pub(crate) fn copy_from(&self, to: &mut [u8], from: u64) -> Result<(), VendorError> {
        let (len, from) = (to.len(), device_pointer(from));
        let to = to.as_mut_ptr().cast();
        // SAFETY: as in `copy_to`, with the direction reversed.
        let code = unsafe { (self.table.aclrtMemcpy)(to, len, from, len, DEVICE_TO_HOST) };
        self.check("aclrtMemcpy", code)
    }

    /// Free and total bytes of the device's memory.
    pub(crate) fn memory(&self) -> Result<(u64, u64), VendorError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to locals.
        let code = unsafe { (self.table.aclrtGetMemInfo)(HBM_MEMORY, &mut free, &mut total) };
        self.check("aclrtGetMemInfo", code)?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn create_stream(&self) -> Result<Handle, VendorError> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.table.aclrtCreateStream)(&mut stream) };
        self.check("aclrtCreateStream", code)?;
        Ok(Handle(stream))
    }

    pub(crate) fn destroy_stream(&self, stream: Handle) -> Result<(), VendorError> {
        // SAFETY: a stream that this library created and that was not destroyed.
        let code = unsafe { (self.table.aclrtDestroyStream)(stream.0) };
        self.check("aclrtDestroyStream", code)
    }

    /// Whether everything on the stream has ended.
    pub(crate) fn is_complete(&self, stream: Handle) -> Result<bool, VendorError> {
        let mut status = 0;
        // SAFETY: a live stream, and a pointer to a local.
        let code = unsafe { (self.table.aclrtStreamQuery)(stream.0, &mut status) };
        self.check("aclrtStreamQuery", code)?;
        Ok(status == STREAM_COMPLETE)
    }

    /// Loads a compiled kernel and finds its entry.
    pub(crate) fn load_kernel(&self, path: &Path, name: &str) -> Result<Handle, VendorError> {
        let no_zero = "neither paths nor names contain a zero byte";
        let file = CString::new(path.as_os_str().as_encoded_bytes()).expect(no_zero);
        let (mut binary, options) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a terminated string, no options, and a pointer to a local.
        let code =
            unsafe { (self.table.aclrtBinaryLoadFromFile)(file.as_ptr(), options, &mut binary) };
        self.check("aclrtBinaryLoadFromFile", code)?;
        let (name, mut function) = (CString::new(name).expect(no_zero), std::ptr::null_mut());
        // SAFETY: the binary was just loaded; a terminated string and a pointer to a local.
        let code =
            unsafe { (self.table.aclrtBinaryGetFunction)(binary, name.as_ptr(), &mut function) };
        self.check("aclrtBinaryGetFunction", code)?;
        Ok(Handle(function))
    }

    /// Puts a kernel on the stream. `words` is one word for the address of the rest, then the task
    /// as `abi` lays it out; the library copies it all.
    pub(crate) fn launch(
        &self,
        function: Handle,
        n_blocks: u32,
        stream: Handle,
        words: &mut [u64],
    ) -> Result<(), VendorError> {
        let mut holder = PlaceHolder {
            address_offset: 0,
            data_offset: size_of::<u64>() as u32,
        };
        let (config, bytes) = (std::ptr::null_mut(), size_of_val(words));
        let args = words.as_mut_ptr().cast();
        let launch = self.table.aclrtLaunchKernelWithHostArgs;
        // SAFETY: function and stream are live handles of this library; `args` and `holder` live
        // through the call, and the library copies both before it returns.
        let code = unsafe {
            launch(
                function.0,
                n_blocks,
                stream.0,
                config,
                args,
                bytes,
                &mut holder,
                1,
            )
        };
        self.check("aclrtLaunchKernelWithHostArgs", code)
    }

    /// A refusal, unless the code is success.
    fn check(&self, call: &'static str, code: AclError) -> Result<(), VendorError> {
        if code == 0 {
            return Ok(());
        }
        let (LogicalId(logical), PhysicalId(physical)) = (self.logical, self.physical);
        Err(VendorError {
            call,
            logical,
            physical,
            code,
            message: self.recent_message(),
        })
    }

    /// What the library says about the last refusal on this thread.
    fn recent_message(&self) -> String {
        let Some(recent) = self.table.aclGetRecentErrMsg else {
            return String::new();
        };
        // SAFETY: takes nothing.
        let text = unsafe { recent() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library returns a terminated string that lives until its next call on this
        // thread.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().trim().to_owned()
    }
}

/// The driver, for one card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hal {
    table: HalTable,
    logical: LogicalId,
    physical: PhysicalId,
}

impl Hal {
    pub(crate) fn load(
        library: &Loaded,
        logical: LogicalId,
        physical: PhysicalId,
    ) -> Result<Self, LibraryError> {
        Ok(Self {
            table: HalTable::load(library)?,
            logical,
            physical,
        })
    }

    /// Matrix and vector cores of the card.
    pub(crate) fn core_counts(&self) -> Result<(i64, i64), VendorError> {
        Ok((self.info(MODULE_AICORE)?, self.info(MODULE_VECTOR_CORE)?))
    }

    fn info(&self, module: i32) -> Result<i64, VendorError> {
        let mut value = 0;
        let ask = self.table.halGetDeviceInfo;
        // SAFETY: numbers, which the driver checks, and a pointer to a local.
        let code = unsafe { ask(self.physical.0, module, INFO_CORE_NUM, &mut value) };
        if code == 0 {
            return Ok(value);
        }
        let (call, message) = ("halGetDeviceInfo", String::new());
        let (LogicalId(logical), PhysicalId(physical)) = (self.logical, self.physical);
        Err(VendorError {
            call,
            logical,
            physical,
            code,
            message,
        })
    }
}

/// A device address as the library wants it.
fn device_pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
