//! The safetensors file format: eight bytes with the length of a header, the header as JSON, the
//! elements.
//!
//! ```text
//! u64 n | {"z":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}, ...} padded to n | bytes
//! ```
//!
//! A file is not trusted: every number in its header is checked against what is there.

use std::collections::BTreeMap;

use facade::DType;
use serde::{Deserialize, Serialize};

use crate::tensor::{HostTensor, Tensors};

/// The longest header that is read.
const HEADER_MAX: u64 = 16 << 20;
/// Free text in the header, which is no tensor.
const METADATA: &str = "__metadata__";

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it ends within its header: {found} bytes, expected at least {wanted}")]
    Short { found: u64, wanted: u64 },
    #[error("its header has {bytes} bytes, more than {HEADER_MAX}")]
    Long { bytes: u64 },
    #[error("its header is no JSON of tensors: {reason}")]
    Header { reason: String },
    #[error("tensor `{name}` has element type {dtype}, which no host tensor has")]
    DType { name: String, dtype: String },
    #[error(
        "tensor `{name}` of shape {shape:?} needs {wanted} bytes, its range {range:?} of {available} gives others"
    )]
    Range {
        name: String,
        shape: Vec<usize>,
        wanted: String,
        range: [u64; 2],
        available: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// Names of the format, by type.
const DTYPES: [(&str, DType); 12] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::Bf16),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
];

/// The file with these tensors, in the order of their names: equal tensors make equal bytes.
pub(crate) fn encode(tensors: &Tensors) -> Vec<u8> {
    let sorted: BTreeMap<&str, &HostTensor> = tensors.iter().collect();
    let (mut header, mut data) = (BTreeMap::new(), Vec::new());
    for (name, tensor) in sorted {
        let begin = data.len() as u64;
        data.extend_from_slice(tensor.as_bytes());
        let known = DTYPES.iter().find(|(_, dtype)| *dtype == tensor.dtype());
        let entry = Entry {
            dtype: known.map_or("", |(name, _)| name).to_owned(),
            shape: tensor.shape().to_vec(),
            data_offsets: [begin, data.len() as u64],
        };
        header.insert(name, entry);
    }
    let mut header = serde_json::to_vec(&header).expect("names and numbers");
    // So that the elements begin at a multiple of eight.
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(&header);
    file.extend_from_slice(&data);
    file
}

/// The tensors of a file, in the order of their names.
pub(crate) fn decode(file: &[u8]) -> Result<Tensors, Malformed> {
    let found = file.len() as u64;
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(Malformed::Short { found, wanted: 8 });
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_MAX {
        return Err(Malformed::Long { bytes: length });
    }
    let header = rest.get(..length as usize).ok_or(Malformed::Short {
        found,
        wanted: 8 + length,
    })?;
    let data = &rest[length as usize..];
    let bad = |error: serde_json::Error| Malformed::Header {
        reason: error.to_string(),
    };
    let entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(header).map_err(bad)?;
    let mut tensors = Tensors::new();
    for (name, entry) in entries.into_iter().filter(|(name, _)| name != METADATA) {
        let entry: Entry = serde_json::from_value(entry).map_err(bad)?;
        let tensor = tensor(&name, entry, data)?;
        tensors.put(name, tensor);
    }
    Ok(tensors)
}

fn tensor(name: &str, entry: Entry, data: &[u8]) -> Result<HostTensor, Malformed> {
    let known = DTYPES.iter().find(|(known, _)| *known == entry.dtype);
    let Some((_, dtype)) = known else {
        return Err(Malformed::DType {
            name: name.to_owned(),
            dtype: entry.dtype,
        });
    };
    let wanted = HostTensor::bytes_of(*dtype, &entry.shape);
    let [begin, end] = entry.data_offsets;
    let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
    let bytes = range.and_then(|(begin, end)| data.get(begin..end));
    let bytes = bytes.filter(|bytes| Some(bytes.len()) == wanted);
    let tensor = bytes.and_then(|bytes| HostTensor::from_bytes(*dtype, &entry.shape, bytes));
    tensor.ok_or_else(|| Malformed::Range {
        name: name.to_owned(),
        wanted: wanted.map_or("too many".to_owned(), |wanted| wanted.to_string()),
        shape: entry.shape,
        range: entry.data_offsets,
        available: data.len() as u64,
    })
}

#[cfg(test)]
mod tests;
