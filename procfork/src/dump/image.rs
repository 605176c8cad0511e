//! Programs and libraries: their unwind tables, and the names of their addresses.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;

use addr2line::{Loader, Location, demangle_auto};
use framehop::ExplicitModuleSectionInfo;
use object::{Object as _, ObjectSection as _, ObjectSegment, ObjectSymbol as _, ReadCache};
use object::{ReadRef, SegmentFlags, SymbolKind, elf};

use super::report::Call;
use crate::sync::Arc;

/// Bytes of a section, shared by all processes that have the same image.
pub(super) type Bytes = Arc<[u8]>;

/// Images that were parsed before, by what tells them apart.
#[derive(Debug, Default)]
pub(super) struct Images(HashMap<(u64, u64), Result<Rc<Image>, String>>);

/// One program or library.
pub(super) struct Image {
    sections: ExplicitModuleSectionInfo<Bytes>,
    /// The segments that are loaded executable.
    code: Vec<Segment>,
    names: Names,
}

/// A part of the file that is loaded.
#[derive(Debug)]
struct Segment {
    offset: u64,
    size: u64,
    /// Where, in addresses of the image.
    address: u64,
}

/// Where names come from.
enum Names {
    /// The file: its debug information, else its symbols.
    File(Box<Loader>),
    /// Symbols by address, of an image that is no file.
    Table(Vec<(Range<u64>, String)>),
    None,
}

impl Images {
    /// The image of a file, parsed once. The path is one that this process can open.
    pub(super) fn file(&mut self, path: &Path) -> Result<Rc<Image>, String> {
        let file = fs::metadata(path).map_err(|error| error.to_string())?;
        let parsed = self.0.entry((file.dev(), file.ino()));
        parsed
            .or_insert_with(|| Image::open(path).map(Rc::new))
            .clone()
    }
}

impl Image {
    fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let names = Loader::new(path).map_or(Names::None, |loader| Names::File(Box::new(loader)));
        Self::parse(&ReadCache::new(file), names)
    }

    /// An image that was copied from memory.
    pub(super) fn from_memory(bytes: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let functions = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text);
        let named = functions.filter_map(|symbol| {
            // A damaged image may claim what goes beyond every address.
            let end = symbol.address().saturating_add(symbol.size());
            Some((symbol.address()..end, symbol.name().ok()?.to_owned()))
        });
        let names = Names::Table(named.collect());
        Self::parse(bytes, names)
    }

    fn parse<'data>(data: impl ReadRef<'data>, names: Names) -> Result<Self, String> {
        let file = object::File::parse(data).map_err(|error| error.to_string())?;
        let range = |name| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().saturating_add(section.size()))
        };
        let bytes = |name| {
            let section = file.section_by_name(name)?;
            section
                .uncompressed_data()
                .ok()
                .map(|data| Bytes::from(&*data))
        };
        let sections = ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            debug_frame: bytes(".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        };
        let code = file.segments().filter(is_code).map(|segment| {
            let (offset, size) = segment.file_range();
            Segment {
                offset,
                size,
                address: segment.address(),
            }
        });
        Ok(Self {
            sections,
            code: code.collect(),
            names,
        })
    }

    /// What the unwinder needs of it.
    pub(super) fn sections(&self) -> ExplicitModuleSectionInfo<Bytes> {
        self.sections.clone()
    }

    /// What to add to an address of the image to get the address in the process, given that this
    /// offset of the file is mapped executable at this address.
    ///
    /// Segments with code only: two segments may share a page of the file, mapped twice.
    pub(super) fn bias(&self, offset: u64, mapped_at: u64) -> Option<u64> {
        let within = |segment: &&Segment| {
            let end = segment.offset.saturating_add(segment.size);
            (page_of(segment.offset)..end).contains(&offset)
        };
        let segment = self.code.iter().find(within)?;
        let first_byte_at = mapped_at.wrapping_sub(offset).wrapping_add(segment.offset);
        Some(first_byte_at.wrapping_sub(segment.address))
    }

    /// The functions at an address of the image, inlined ones first.
    pub(super) fn calls(&self, address: u64) -> Vec<Call> {
        match &self.names {
            Names::File(loader) => file_calls(loader, address),
            Names::Table(table) => {
                let found = table.iter().find(|(range, _)| range.contains(&address));
                found
                    .map(|(range, name)| at_offset(name, address - range.start))
                    .into_iter()
                    .collect()
            }
            Names::None => Vec::new(),
        }
    }
}

fn is_code<'data>(segment: &impl ObjectSegment<'data>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0)
}

/// The mapping of a segment begins at the page that its first byte is in.
fn page_of(offset: u64) -> u64 {
    offset & !0xfff
}

/// By the debug information, which knows lines and inlined functions, and by the symbols, which
/// know whole names. Each may be missing: line tables alone name only functions that have others
/// inlined into them, and say nothing of their paths.
fn file_calls(loader: &Loader, address: u64) -> Vec<Call> {
    let mut calls = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .and_then(|function| Some(function.demangle().ok()?.into_owned()));
            calls.push(Call {
                function: name.unwrap_or_default(),
                place: frame.location.as_ref().and_then(place),
                inlined: true,
            });
        }
    }
    let symbol = loader.find_symbol_info(address).map(|symbol| {
        let name = demangle_auto(symbol.name().into(), None).into_owned();
        (name, address.saturating_sub(symbol.address()))
    });
    let outermost = calls.pop().map(|call| Call {
        inlined: false,
        ..call
    });
    calls.extend(match (outermost, symbol) {
        (Some(call), Some((function, _))) if call.place.is_some() => {
            Some(Call { function, ..call })
        }
        (_, Some((name, offset))) => Some(at_offset(&name, offset)),
        (call, None) => call.filter(|call| !call.function.is_empty()),
    });
    calls
}

fn place(location: &Location<'_>) -> Option<String> {
    let file = location.file?;
    Some(match (location.line, location.column) {
        (Some(line), Some(column)) if column > 0 => format!("{file}:{line}:{column}"),
        (Some(line), _) => format!("{file}:{line}"),
        _ => file.to_owned(),
    })
}

fn at_offset(name: &str, offset: u64) -> Call {
    Call {
        function: format!("{name}+{offset:#x}"),
        place: None,
        inlined: false,
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}
