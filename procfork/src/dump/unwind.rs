//! From a copied stack to frames.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use framehop::{CacheNative, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder as _};
use framehop::{FrameAddress, UnwinderNative};

use super::capture::Snapshot;
use super::image::{Bytes, Image, Images};
use super::maps::{self, Mapping, VDSO};
use super::report::{Frame, StackEnd};
use crate::pid::Pid;
use crate::sys::ptrace::{self, Registers};

/// The code of a process: which image is where.
pub(super) struct AddressSpace {
    unwinder: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    modules: Vec<Loaded>,
    /// What could not be used, and why.
    pub(super) notes: Vec<String>,
}

/// An image in a process.
struct Loaded {
    addresses: Range<u64>,
    bias: u64,
    name: String,
    image: Rc<Image>,
}

impl AddressSpace {
    /// Reads the map of the process, unless it told its map itself, and the images in it.
    pub(super) fn of(pid: Pid, told: Option<&str>, images: &mut Images) -> Self {
        let mut space = Self {
            unwinder: UnwinderNative::new(),
            modules: vec![],
            notes: vec![],
        };
        let maps = match told {
            Some(maps) => maps.to_owned(),
            None => fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_else(|error| {
                space
                    .notes
                    .push(format!("its memory map cannot be read: {error}"));
                String::new()
            }),
        };
        for mapping in maps::parse(&maps).into_iter().filter(Mapping::has_code) {
            if let Err(why) = space.add(pid, &mapping, images) {
                space.notes.push(format!("{}: {why}", mapping.path));
            }
        }
        space
    }

    fn add(&mut self, pid: Pid, mapping: &Mapping, images: &mut Images) -> Result<(), String> {
        let image = if mapping.path == VDSO {
            Rc::new(vdso(pid, mapping)?)
        } else {
            images.file(&openable(pid, mapping))?
        };
        let bias = image.bias(mapping.offset, mapping.addresses.start);
        let bias = bias.ok_or("its code is not where the file says")?;
        let name = file_name(&mapping.path);
        let addresses = mapping.addresses.clone();
        // For ELF the base is the bias: addresses in its tables are relative to zero.
        let module = Module::new(name.clone(), addresses.clone(), bias, image.sections());
        self.unwinder.add_module(module);
        self.modules.push(Loaded {
            addresses,
            bias,
            name,
            image,
        });
        Ok(())
    }

    /// Unwinds a stack from its innermost frame, up to a number of frames.
    pub(super) fn frames(&self, snapshot: &Snapshot, limit: usize) -> (Vec<Frame>, StackEnd) {
        let Snapshot { registers, bytes } = snapshot;
        let mut cache = CacheNative::<MayAllocateDuringUnwind>::new();
        let mut read = |address: u64| {
            let offset = address.checked_sub(registers.sp);
            offset.and_then(|offset| word(bytes, offset)).ok_or(())
        };
        let start = self.first_registers(registers);
        let mut iter = self
            .unwinder
            .iter_frames(registers.pc, start, &mut cache, &mut read);
        let mut frames = Vec::new();
        loop {
            match iter.next() {
                Ok(Some(_)) if frames.len() == limit => {
                    return (frames, StackEnd::Cut(format!("after {limit} frames")));
                }
                Ok(Some(address)) => frames.push(self.frame(address)),
                Ok(None) => return (frames, StackEnd::Complete),
                Err(error) => return (frames, StackEnd::Cut(error.to_string())),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn first_registers(&self, registers: &Registers) -> UnwindRegsNative {
        UnwindRegsNative::new(registers.pc, registers.sp, registers.fp)
    }

    #[cfg(target_arch = "aarch64")]
    fn first_registers(&self, registers: &Registers) -> UnwindRegsNative {
        // Return addresses may carry a signature in the bits that no address of this process has.
        let highest = self.unwinder.max_known_code_address();
        let mask = framehop::aarch64::PtrAuthMask::from_max_known_address(highest);
        let Registers { lr, sp, fp, .. } = *registers;
        UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, sp, fp)
    }

    fn frame(&self, address: FrameAddress) -> Frame {
        let at = address.address_for_lookup();
        let module = self
            .modules
            .iter()
            .find(|module| module.addresses.contains(&at));
        let calls = module.map(|module| module.image.calls(at.wrapping_sub(module.bias)));
        Frame {
            address: address.address(),
            module: module.map(|module| module.name.clone()),
            calls: calls.unwrap_or_default(),
        }
    }
}

fn word(bytes: &[u8], offset: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(offset).ok()?..)?;
    bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The kernel's own code, copied from the process.
fn vdso(pid: Pid, mapping: &Mapping) -> Result<Image, String> {
    let Range { start, end } = mapping.addresses;
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
    let read = ptrace::read_memory(pid, start, &mut bytes).map_err(|error| error.to_string())?;
    bytes.truncate(read);
    Image::from_memory(&bytes)
}

/// A path by which this process can open the file that the other one has mapped: its own program
/// even when it was replaced or deleted, its libraries in its own root folder.
fn openable(pid: Pid, mapping: &Mapping) -> PathBuf {
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    if fs::read_link(&exe).is_ok_and(|link| link == Path::new(&mapping.path)) {
        return exe;
    }
    let in_root = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    if same_file(&in_root, mapping) {
        return in_root;
    }
    let Range { start, end } = mapping.addresses;
    let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    if same_file(&mapped, mapping) {
        mapped
    } else {
        PathBuf::from(&mapping.path)
    }
}

fn same_file(path: &Path, mapping: &Mapping) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).is_ok_and(|found| found.ino() == mapping.inode)
}

fn file_name(path: &str) -> String {
    let name = Path::new(path)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| path.to_owned())
}
