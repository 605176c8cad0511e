//! What the mailbox promises, one behaviour per module, through the public API.

mod attach;
mod channel;
mod exchange;
mod feed;
mod hostile;
mod messages;
mod segments;
