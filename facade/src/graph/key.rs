//! What names a recording: a function, the kind of scope, and construction parameters, compared by their contents.
//!
//! A call is looked up by an [`Asked`], which borrows; a [`GraphKey`] is what the cache keeps. Both hash what the
//! parameters feed to a hasher, and are equal where the function is the same type and the parameters are equal, by their
//! own `Eq`: a `Hash` that leaves a field out costs a comparison and never a wrong graph.
//!
//! A file has no values, only what they feed to a hasher. So a key from a file waits for the first call that feeds the
//! same, and is the key of that call from then on.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::Equivalent;
use smallvec::SmallVec;
use taskgraph::Inference;

/// Values that shape a graph.
trait Params: Any + Send + Sync {
    fn is(&self, other: &dyn Params) -> bool;
    fn to_kept(&self) -> Arc<dyn Params>;
    fn as_any(&self) -> &dyn Any;
}

impl<K: Eq + Clone + Send + Sync + 'static> Params for K {
    fn is(&self, other: &dyn Params) -> bool {
        other.as_any().downcast_ref::<K>() == Some(self)
    }

    fn to_kept(&self) -> Arc<dyn Params> {
        Arc::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What the parameters feed to a hasher.
type Fed = SmallVec<[u8; 48]>;

/// What hashes: equal keys hash alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Short {
    /// A hash of the type of the function.
    function: u64,
    /// Whether it is called where no order is inferred, so that none is inside of it.
    is_manual: bool,
    fed: Fed,
}

/// The name of a call.
pub(crate) struct Asked<'k> {
    short: Short,
    function: TypeId,
    name: &'static str,
    params: &'k dyn Params,
}

/// The name of a recording.
#[derive(Clone)]
pub(crate) struct GraphKey {
    short: Short,
    function: Function,
    name: Cow<'static, str>,
    /// `None` for a key from a file that no call has asked for yet.
    params: Option<Arc<dyn Params>>,
}

/// Which function it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Function {
    Known(TypeId),
    /// As a file has it.
    Written(String),
}

impl<'k> Asked<'k> {
    pub(crate) fn new<K, F>(key: &'k K, inference: Inference) -> Self
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        F: 'static,
    {
        let (mut function, mut params) = (Words(0), Bytes(Fed::new()));
        TypeId::of::<F>().hash(&mut function);
        key.hash(&mut params);
        let short = Short {
            function: function.0,
            is_manual: inference == Inference::Manual,
            fed: params.0,
        };
        Self {
            short,
            function: TypeId::of::<F>(),
            name: type_name::<F>(),
            params: key,
        }
    }

    /// The key under which a recording of the call is kept.
    pub(crate) fn to_key(&self) -> GraphKey {
        GraphKey {
            short: self.short.clone(),
            function: Function::Known(self.function),
            name: Cow::Borrowed(self.name),
            params: Some(self.params.to_kept()),
        }
    }
}

impl Hash for Asked<'_> {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.short.hash(to);
    }
}

impl Hash for GraphKey {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.short.hash(to);
    }
}

impl Equivalent<GraphKey> for Asked<'_> {
    fn equivalent(&self, key: &GraphKey) -> bool {
        let is_same = |params: &Arc<dyn Params>| self.params.is(&**params);
        self.short == key.short
            && key.function.is(self.function)
            && self.name == key.name
            && key.params.as_ref().is_none_or(is_same)
    }
}

/// A key from a file equals every key that feeds the same; no two of which one is such a key are ever kept together.
impl PartialEq for GraphKey {
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.params, &other.params) {
            (Some(mine), Some(theirs)) => mine.is(&**theirs),
            _ => true,
        };
        self.feeds_as(other) && is_same
    }
}

impl Eq for GraphKey {}

impl Function {
    fn is(&self, function: TypeId) -> bool {
        match self {
            Function::Known(known) => *known == function,
            Function::Written(written) => *written == text(function),
        }
    }
}

/// The whole identity of a type, which is the same in every process of one build.
fn text(function: TypeId) -> String {
    format!("{function:?}")
}

impl GraphKey {
    /// What it is called in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether nothing but the parameters themselves can tell the two apart.
    fn feeds_as(&self, other: &Self) -> bool {
        let is_same = match (&self.function, &other.function) {
            (Function::Known(mine), theirs) => theirs.is(*mine),
            (mine, Function::Known(theirs)) => mine.is(*theirs),
            (mine, theirs) => mine == theirs,
        };
        self.short == other.short && is_same && self.name == other.name
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let function = match &self.function {
            Function::Known(known) => text(*known),
            Function::Written(written) => written.clone(),
        };
        let mut bytes = self.short.function.to_ne_bytes().to_vec();
        bytes.push(u8::from(self.short.is_manual));
        for text in [function.as_bytes(), self.name.as_bytes()] {
            bytes.extend((text.len() as u64).to_ne_bytes());
            bytes.extend(text);
        }
        bytes.extend(&self.short.fed);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (function, rest) = bytes.split_first_chunk()?;
        let (&is_manual, rest) = rest.split_first()?;
        let (written, rest) = split_text(rest)?;
        let (name, fed) = split_text(rest)?;
        let short = Short {
            function: u64::from_ne_bytes(*function),
            is_manual: is_manual != 0,
            fed: SmallVec::from_slice(fed),
        };
        Some(Self {
            short,
            function: Function::Written(written),
            name: name.into(),
            params: None,
        })
    }
}

fn split_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u64::from_ne_bytes(*length)).ok()?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

impl std::fmt::Debug for GraphKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphKey")
            .field("name", &self.name)
            .field("short", &self.short)
            .finish_non_exhaustive()
    }
}

/// Keeps what is hashed.
struct Bytes(Fed);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Mixes what is hashed; a type's identity is hashed well already.
struct Words(u64);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
