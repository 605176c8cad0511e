//! Definitions as the bytes of a file, which only the build that wrote them reads.
//!
//! ```text
//! magic u64 | hash of all that follows u64 | n_entries u64 | build id: length u64, bytes
//! setting: length u64, bytes
//! n_entries × { key: length u64, bytes | definition: length u64, bytes }
//! ```
//!
//! Everything is padded to 8 bytes; native endianness. A file is taken whole or not at all.

use super::check::DecodeError;
use super::definition::Definition;
use super::hash;

const MAGIC: u64 = u64::from_le_bytes(*b"tgcache2");

/// Why a file of definitions was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is no such file, or of another kind of machine.
    #[error("the file holds no definitions of this kind of machine")]
    Magic,
    /// It is cut off or damaged.
    #[error("the file of definitions is damaged; delete it, and record again")]
    Damaged,
    /// Another build of the program wrote it.
    #[error("the file of definitions was written by another build of the program; record again")]
    OtherBuild,
    /// It was recorded in another setting: with other workers, for example.
    #[error(
        "the file of definitions was recorded with other workers ({found}, here {wanted}); record again"
    )]
    OtherSetting {
        /// The setting that the file names.
        found: String,
        /// The one that was asked for.
        wanted: String,
    },
    /// One of the definitions is not valid.
    #[error("definition {index} of the file is not valid")]
    Definition {
        /// Which one.
        index: usize,
        /// What is wrong with it.
        source: DecodeError,
    },
}

/// The bytes of a file with these definitions, each with the bytes of its key. `setting` says, in words, what
/// the definitions depend on besides the build: which workers there are.
pub fn encode_file<'a>(
    build_id: &[u8],
    setting: &str,
    entries: impl IntoIterator<Item = (Vec<u8>, &'a Definition)>,
) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, build_id);
    put(&mut body, setting.as_bytes());
    let mut n_entries = 0u64;
    for (key, definition) in entries {
        put(&mut body, &key);
        put(&mut body, definition.to_bytes());
        n_entries += 1;
    }
    let mut file = n_entries.to_ne_bytes().to_vec();
    file.extend(body);
    let hash = hash_of(&file);
    [&MAGIC.to_ne_bytes()[..], &hash.to_ne_bytes(), &file].concat()
}

/// The keys and definitions of a file that was written by this build in this setting.
///
/// # Errors
/// Every [`FileError`]. Never panics, whatever the bytes.
pub fn decode_file(
    build_id: &[u8],
    setting: &str,
    bytes: &[u8],
) -> Result<Vec<(Vec<u8>, Definition)>, FileError> {
    let (mut head, body) = bytes.split_at_checked(16).ok_or(FileError::Magic)?;
    if take_u64(&mut head) != Some(MAGIC) {
        return Err(FileError::Magic);
    }
    if !body.len().is_multiple_of(8) || take_u64(&mut head) != Some(hash_of(body)) {
        return Err(FileError::Damaged);
    }
    let mut rest = body;
    let n_entries = take_u64(&mut rest).ok_or(FileError::Damaged)?;
    if take(&mut rest).ok_or(FileError::Damaged)? != build_id {
        return Err(FileError::OtherBuild);
    }
    let found = take(&mut rest).ok_or(FileError::Damaged)?;
    if found != setting.as_bytes() {
        let (found, wanted) = (String::from_utf8_lossy(found).into(), setting.to_owned());
        return Err(FileError::OtherSetting { found, wanted });
    }
    let mut found = Vec::new();
    for index in 0..usize::try_from(n_entries).map_err(|_| FileError::Damaged)? {
        let key = take(&mut rest).ok_or(FileError::Damaged)?.to_vec();
        let definition = take(&mut rest).ok_or(FileError::Damaged)?;
        let definition = Definition::decode(definition);
        let definition = definition.map_err(|source| FileError::Definition { index, source })?;
        found.push((key, definition));
    }
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(FileError::Damaged)
    }
}

/// The bytes of a file under the hash that fits them.
#[cfg(any(test, fuzzing))]
pub(super) fn with_hash(mut file: Vec<u8>) -> Vec<u8> {
    let hash = hash_of(&file[16..]);
    file[8..16].copy_from_slice(&hash.to_ne_bytes());
    file
}

fn hash_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| {
        let word: [u8; 8] = word.try_into().unwrap_or_default();
        u64::from_ne_bytes(word)
    });
    hash::of_words(&words.collect::<Vec<_>>())
}

fn put(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend((bytes.len() as u64).to_ne_bytes());
    body.extend(bytes);
    body.resize(body.len().next_multiple_of(8), 0);
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (word, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_ne_bytes(*word))
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_u64(rest)?).ok()?;
    let padded = length.checked_next_multiple_of(8)?;
    let (bytes, behind) = rest.split_at_checked(padded)?;
    *rest = behind;
    bytes.get(..length)
}
