//! What users of the table can rely on, through its public names only.

mod ownership;
