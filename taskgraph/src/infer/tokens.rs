//! What a task holds: a chain of tokens, one for each record that it made.
//!
//! A write of exactly the bytes of an older record takes that record over instead of making another: the record gets a
//! new owner, and nothing that leads to it has to change. The token of the older task then stands for nothing, which
//! it learns when it is given up.

use super::NONE;

#[derive(Clone, Copy)]
pub(super) struct Token {
    /// The record that it stands for, if that says so too.
    pub(super) record: u32,
    /// Next token of the same task; of a token that nobody has, the next such one.
    pub(super) next: u32,
}

/// All tokens.
pub(super) struct Tokens {
    all: Vec<Token>,
    /// First of the tokens that nobody has.
    free: u32,
    n_free: usize,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens {
            all: Vec::new(),
            free: NONE,
            n_free: 0,
        }
    }
}

impl Tokens {
    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        (self.free, self.n_free) = (NONE, 0);
    }

    /// A token that stands for nothing yet, in front of a chain.
    #[inline]
    pub(super) fn add(&mut self, next: u32) -> u32 {
        let (index, record) = (self.free, NONE);
        let token = Token { record, next };
        if let Some(free) = self.all.get_mut(index as usize) {
            (self.free, self.n_free) = (free.next, self.n_free - 1);
            *free = token;
            return index;
        }
        self.all.push(token);
        self.all.len() as u32 - 1
    }

    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        self.all[index as usize].next = self.free;
        (self.free, self.n_free) = (index, self.n_free + 1);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len() - self.n_free
    }
}

impl std::ops::Index<u32> for Tokens {
    type Output = Token;

    #[inline]
    fn index(&self, index: u32) -> &Token {
        &self.all[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Tokens {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Token {
        &mut self.all[index as usize]
    }
}
