//! Reads safetensors files: a length, a JSON header that names tensors, and their bytes.
//!
//! Only what is asked for is read, so a model may be larger than memory.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use half::bf16;
use serde::Deserialize;

/// A header larger than this belongs to no real model.
const HEADER_BYTES_MAX: u64 = 64 << 20;

/// The tensors of one or several files by name.
#[derive(Debug)]
pub(crate) struct Files {
    from: PathBuf,
    files: Vec<File>,
    tensors: HashMap<String, Stored>,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Stored {
    file: usize,
    entry: Entry,
    /// Position of its first byte in the file.
    start: u64,
}

/// A tensor as the header describes it.
#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl Files {
    /// Opens a file, or all `*.safetensors` of a folder.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let mut paths = if path.is_dir() {
            files_of(path)?
        } else {
            vec![path.to_owned()]
        };
        paths.sort();
        if paths.is_empty() {
            return Err(format!(
                "find a *.safetensors file in {}: there is none",
                path.display()
            ));
        }
        let mut all = Self {
            from: path.to_owned(),
            files: Vec::new(),
            tensors: HashMap::new(),
        };
        for path in paths {
            all.add(&path)
                .map_err(|problem| format!("read {}: {problem}", path.display()))?;
        }
        Ok(all)
    }

    /// Some rows of a bf16 matrix, or all of a vector that the caller sees as one row.
    pub(crate) fn rows(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: Range<usize>,
    ) -> Result<Vec<bf16>, String> {
        let stored = self.stored(name, "BF16", &[&shape, &shape[1..]])?;
        let mut values = vec![bf16::ZERO; rows.len() * shape[1]];
        let start = stored.start + 2 * (rows.start * shape[1]) as u64;
        self.read(stored, start, bytemuck::cast_slice_mut(&mut values), name)?;
        Ok(values)
    }

    /// All of an `F32` tensor of this shape.
    pub(crate) fn f32s(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let stored = self.stored(name, "F32", &[shape])?;
        let mut values = vec![0.0; shape.iter().product()];
        self.read(
            stored,
            stored.start,
            bytemuck::cast_slice_mut(&mut values),
            name,
        )?;
        Ok(values)
    }

    /// All of a matrix of `I32`, with its shape.
    pub(crate) fn i32s(&self, name: &str) -> Result<(Vec<i32>, Vec<usize>), String> {
        let shape = self
            .tensors
            .get(name)
            .map(|it| it.entry.shape.clone())
            .unwrap_or_default();
        let stored = self.stored(name, "I32", &[&shape])?;
        let mut values = vec![0; shape.iter().product()];
        self.read(
            stored,
            stored.start,
            bytemuck::cast_slice_mut(&mut values),
            name,
        )?;
        Ok((values, shape))
    }

    fn add(&mut self, path: &Path) -> Result<(), String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let header = header(&file, bytes)?;
        let data = 8 + header.len() as u64;
        let entries: HashMap<String, serde_json::Value> =
            serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
        let file_idx = self.files.len();
        self.files.push(file);
        for (name, entry) in entries
            .into_iter()
            .filter(|(name, _)| name != "__metadata__")
        {
            let entry: Entry = serde_json::from_value(entry)
                .map_err(|error| format!("tensor `{name}`: {error}"))?;
            let [start, end] = entry.data_offsets;
            if start > end || end > bytes - data {
                return Err(format!("tensor `{name}` lies outside the file"));
            }
            self.tensors.insert(
                name,
                Stored {
                    file: file_idx,
                    entry,
                    start: data + start,
                },
            );
        }
        Ok(())
    }

    /// A tensor with one of these shapes, whose bytes are as many as that takes.
    fn stored(&self, name: &str, dtype: &str, shapes: &[&[usize]]) -> Result<&Stored, String> {
        let refuse =
            |problem: String| format!("use tensor `{name}` of {}: {problem}", self.from.display());
        let stored = self
            .tensors
            .get(name)
            .ok_or_else(|| refuse("there is none".to_owned()))?;
        let Entry {
            dtype: found,
            shape,
            data_offsets: [start, end],
        } = &stored.entry;
        let element_bytes = if dtype == "BF16" { 2 } else { 4 };
        if found != dtype || !shapes.contains(&&shape[..]) {
            return Err(refuse(format!(
                "expected {dtype} {:?}, found {found} {shape:?}",
                shapes[0]
            )));
        }
        if end - start != element_bytes * shape.iter().product::<usize>() as u64 {
            return Err(refuse(format!(
                "{} bytes do not fill {shape:?}",
                end - start
            )));
        }
        Ok(stored)
    }

    fn read(&self, stored: &Stored, start: u64, to: &mut [u8], name: &str) -> Result<(), String> {
        let read = self.files[stored.file].read_exact_at(to, start);
        read.map_err(|error| format!("read tensor `{name}` of {}: {error}", self.from.display()))
    }
}

/// The files of a folder that end in `.safetensors`.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let refused = |error: std::io::Error| format!("list {}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(refused)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(refused));
    paths
        .filter(|path| {
            path.as_ref().map_or(true, |path| {
                path.extension().is_some_and(|it| it == "safetensors")
            })
        })
        .collect()
}

/// The JSON at the beginning of a file of `bytes` bytes.
fn header(file: &File, bytes: u64) -> Result<Vec<u8>, String> {
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0)
        .map_err(|_| "it is shorter than a safetensors file can be".to_owned())?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX || length > bytes - 8 {
        return Err(format!(
            "its header of {length} bytes does not fit, so it is no safetensors file"
        ));
    }
    let mut header = vec![0; length as usize];
    file.read_exact_at(&mut header, 8)
        .map_err(|error| error.to_string())?;
    Ok(header)
}
