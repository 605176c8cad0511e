//! What the mailbox promises, one behaviour per module, through the public API.

mod exchange;
