//! The functions of the vendor's libraries that this crate calls, as raw pointers: no policy, no
//! checks.
//!
//! Signatures are those of the vendor's `acl/acl_rt.h` and `ascend_hal.h`; handles are opaque
//! pointers, enumerations are 32-bit integers. Every required function is found when the table is
//! made, before any of them is called.
//!
//! # Safety
//!
//! Each symbol is cast to the signature that the header of interface version [`ACL_MAJOR`] declares
//! for its name; the version that the library reports is compared before the table is handed out.

#![expect(
    unsafe_code,
    reason = "symbols are cast to their signatures, see the Safety section"
)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::library::{LibraryError, Loaded};

/// The interface version that these signatures belong to: its first part rises with incompatible
/// changes.
pub(crate) const ACL_MAJOR: c_int = 1;

/// A code of the runtime library; 0 is success.
pub(crate) type AclError = c_int;

/// Declares a table of functions and how it is filled from a library.
macro_rules! table {
    (
        $(#[$doc:meta])* $name:ident
        required { $($required:ident: fn($($arg:ty),*) -> $ret:ty;)* }
        optional { $($optional:ident: fn($($oarg:ty),*) -> $oret:ty;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[expect(non_snake_case, reason = "fields have the names of the symbols")]
        pub(crate) struct $name {
            $(pub(crate) $required: unsafe extern "C" fn($($arg),*) -> $ret,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($oarg),*) -> $oret>,)*
        }

        impl $name {
            /// Finds every function; a required one that is missing or null is an error.
            pub(crate) fn load(library: &Loaded) -> Result<Self, LibraryError> {
                Ok(Self {
                    $($required: {
                        let symbol = library.symbol(stringify!($required))?;
                        // SAFETY: the signature is the one that the header declares for this name.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<()>,
                                unsafe extern "C" fn($($arg),*) -> $ret,
                            >(symbol)
                        }
                    },)*
                    $($optional: library.symbol(stringify!($optional)).ok().map(|symbol| {
                        // SAFETY: as for the required ones.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<()>,
                                unsafe extern "C" fn($($oarg),*) -> $oret,
                            >(symbol)
                        }
                    }),)*
                })
            }
        }
    };
}

table! {
    /// Functions of `libascendcl.so`: they take logical device numbers.
    AclTable
    required {
        aclInit: fn(*const c_char) -> AclError;
        aclrtGetVersion: fn(*mut c_int, *mut c_int, *mut c_int) -> AclError;
        aclrtGetDeviceCount: fn(*mut u32) -> AclError;
        aclrtSetDevice: fn(i32) -> AclError;
        aclrtResetDevice: fn(i32) -> AclError;
        aclrtMalloc: fn(*mut *mut c_void, usize, c_int) -> AclError;
        aclrtFree: fn(*mut c_void) -> AclError;
        aclrtMemcpy: fn(*mut c_void, usize, *const c_void, usize, c_int) -> AclError;
        aclrtGetMemInfo: fn(c_int, *mut usize, *mut usize) -> AclError;
        aclrtCreateStream: fn(*mut *mut c_void) -> AclError;
        aclrtDestroyStream: fn(*mut c_void) -> AclError;
        aclrtStreamQuery: fn(*mut c_void, *mut c_int) -> AclError;
        aclrtBinaryLoadFromFile: fn(*const c_char, *mut c_void, *mut *mut c_void) -> AclError;
        aclrtBinaryGetFunction: fn(*mut c_void, *const c_char, *mut *mut c_void) -> AclError;
        aclrtLaunchKernelWithHostArgs:
            fn(*mut c_void, u32, *mut c_void, *mut c_void, *mut c_void, usize, *mut PlaceHolder, usize) -> AclError;
    }
    optional {
        aclGetRecentErrMsg: fn() -> *const c_char;
        aclrtResetDeviceForce: fn(i32) -> AclError;
    }
}

table! {
    /// Functions of `libascend_hal.so`: they take card numbers.
    HalTable
    required {
        halGetDeviceInfo: fn(u32, i32, i32, *mut i64) -> c_int;
    }
    optional {}
}

/// `aclrtPlaceHolderInfo`: where in the arguments the device address of a copied part has to be
/// written.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PlaceHolder {
    pub(crate) address_offset: u32,
    pub(crate) data_offset: u32,
}

const _: () = assert!(size_of::<PlaceHolder>() == 8);
