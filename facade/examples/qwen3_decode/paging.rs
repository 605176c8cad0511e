//! Which page of the cache holds which tokens.

/// The pages of a few sequences that grow together. They are given out from the last page down and in turn, so that no
/// sequence lies in one piece; page 0 belongs to nobody.
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    /// Sequences.
    pub(crate) batch: usize,
    /// Tokens of a page.
    pub(crate) page: usize,
    pub(crate) pages_per_sequence: usize,
    table: Vec<i32>,
}

impl Paging {
    /// Pages for `tokens` tokens of each sequence.
    pub(crate) fn new(batch: usize, page: usize, tokens: usize) -> Self {
        let pages_per_sequence = tokens.div_ceil(page);
        let page_of = |at: usize| {
            let (sequence, nth) = (at / pages_per_sequence, at % pages_per_sequence);
            (batch * pages_per_sequence - (nth * batch + sequence)) as i32
        };
        let table = (0..batch * pages_per_sequence).map(page_of).collect();
        Self {
            batch,
            page,
            pages_per_sequence,
            table,
        }
    }

    /// All pages, the one of nobody included.
    pub(crate) fn pages(&self) -> usize {
        1 + self.table.len()
    }

    /// The pages of each sequence, one after the other.
    pub(crate) fn table(&self) -> &[i32] {
        &self.table
    }

    /// The row of the cache where each sequence keeps the token at `position`.
    pub(crate) fn slots(&self, position: usize) -> Vec<i32> {
        (0..self.batch)
            .map(|sequence| self.slot(sequence, position) as i32)
            .collect()
    }

    /// The row of the cache where one sequence keeps the token at `position`.
    pub(crate) fn slot(&self, sequence: usize, position: usize) -> usize {
        let page = self.table[sequence * self.pages_per_sequence + position / self.page];
        page as usize * self.page + position % self.page
    }
}
