//! What the mailbox promises, one behaviour per module, through the public API.

mod attach;
mod channel;
mod exchange;
mod hostile;
mod messages;
mod segments;
