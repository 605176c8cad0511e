//! All states and all transitions of a [`Lifecycle`](crate::Lifecycle), and nothing else.
//!
//! ```text
//!            Start            Commit
//!     New ----------> Initializing ----------> Ready      Acquire / Release: leases +1 / -1
//!      |                |       |                |
//!      |            EndStart    |                |
//!      |                v       |                |
//!      |             Failed     |                |
//!      |                |       |                |
//!      +---- Claim -----+------ + ---- Claim ----+------> Closed, and never back
//!
//!     inside Closed:
//!
//!     Draining --Teardown, once no lease and no start is alive--> TearingDown --Finish--> Done
//!        | ^                                                          |
//!        | '-------------------------- Claim ----- Incomplete <-------+
//!        '-------------------------- Suspend ----------^    Suspend
//! ```
//!
//! The whole position is one word, a [`Snapshot`], so that one atomic instruction moves it:
//!
//! | bits | field | law |
//! | --- | --- | --- |
//! | 0-2 | [`State`] | only moves along the arrows; Closed is final |
//! | 3-5 | [`Closing`] | `Open` until the first claim, then never `Open` again; `Done` is final |
//! | 6 | start alive | set by `Start`, cleared by `Commit` or `EndStart`; may outlive `Initializing` when a close overtakes the start |
//! | 8-63 | leases | grows in `Ready` only; zero before `TearingDown` and ever after |
//!
//! [`Snapshot::step`] is pure: no clock, no lock, no atomic. `word.rs` applies it to the shared word.

use std::fmt;

use crate::weaken;

#[cfg(all(test, not(loom)))]
mod tests;

/// What everybody may know: who is admitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing was started yet.
    New,
    /// One caller holds the epoch and builds; nobody is admitted yet.
    Initializing,
    /// Leases are granted.
    Ready,
    /// The start failed or was abandoned; only `close` is left to do.
    Failed,
    /// A close was claimed. Nobody is admitted ever again, whether or not the teardown has ended.
    Closed,
}

/// How far the closing is. A phase of attempts, not a public state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Nobody has claimed a close.
    Open,
    /// An attempt waits for leases and for a cancelled start.
    Draining,
    /// An attempt runs teardown steps; nothing is alive any more.
    TearingDown,
    /// The last attempt gave up or failed; the next claim drives on.
    Incomplete,
    /// Everything was torn down.
    Done,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody wants the start epoch.
    Start,
    /// The start is complete and asks to publish Ready.
    Commit,
    /// The start ends without Ready: failed, abandoned, or cancelled by a close.
    EndStart,
    /// An operation asks for admission.
    Acquire,
    /// An admitted operation ends.
    Release,
    /// Somebody wants to drive a close.
    Claim,
    /// The driving attempt asks whether it may tear down.
    Teardown,
    /// The driving attempt ends incomplete.
    Suspend,
    /// The driving attempt has torn everything down.
    Finish,
}

/// What an event does to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It moves there.
    To(Snapshot),
    /// Not now: a legal question whose answer is no.
    Refused,
    /// No correct program asks this here; only the holder of a token that cannot exist now could.
    Never,
}

/// A position of the machine: what the admission word held at one instant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

const CLOSING_SHIFT: u32 = 3;
const START_ALIVE: u64 = 1 << 6;
const ONE_LEASE: u64 = 1 << LEASES_SHIFT;
const LEASES_SHIFT: u32 = 8;
const THREE_BITS: u64 = 0b111;

impl Snapshot {
    /// Where every lifecycle begins.
    pub(crate) const NEW: Self = Self(0);

    /// Where every start begins.
    pub(crate) const INITIALIZING: Self = Self(State::Initializing as u64 | START_ALIVE);

    /// Where `event` leads from here: the whole protocol in one table.
    #[inline]
    pub(crate) fn step(self, event: Event) -> Step {
        use Closing::{Done, Draining, Incomplete, Open, TearingDown};
        use State::{Closed, Failed, Initializing, New, Ready};
        let to = |state, closing| Step::To(self.at(state, closing));
        match (event, self.state(), self.closing()) {
            (Event::Start, New, Open) => Step::To(Self::INITIALIZING),
            (Event::Start, ..) => Step::Refused,

            (Event::Commit, Initializing, Open) => Step::To(self.at(Ready, Open).start_ended()),
            (Event::Commit, Closed, Draining | Incomplete) if self.is_start_alive() => {
                Step::Refused
            }
            (Event::Commit, ..) => Step::Never,

            (Event::EndStart, Initializing, Open) => Step::To(self.at(Failed, Open).start_ended()),
            (Event::EndStart, Closed, Draining | Incomplete) if self.is_start_alive() => {
                Step::To(self.start_ended())
            }
            (Event::EndStart, ..) => Step::Never,

            (Event::Acquire, Ready, Open) => Step::To(Self(self.0 + ONE_LEASE)),
            (Event::Acquire, ..) => Step::Refused,

            (Event::Release, Ready, Open) | (Event::Release, Closed, Draining | Incomplete)
                if self.leases() > 0 =>
            {
                Step::To(Self(self.0 - ONE_LEASE))
            }
            (Event::Release, ..) => Step::Never,

            (Event::Claim, New | Initializing | Ready | Failed, Open)
            | (Event::Claim, Closed, Incomplete) => to(Closed, Draining),
            (Event::Claim, ..) => Step::Refused,

            (Event::Teardown, Closed, Draining) if self.is_quiet() => to(Closed, TearingDown),
            (Event::Teardown, Closed, Draining) => Step::Refused,
            (Event::Teardown, ..) => Step::Never,

            (Event::Suspend, Closed, Draining | TearingDown) => to(Closed, Incomplete),
            (Event::Suspend, ..) => Step::Never,

            (Event::Finish, Closed, TearingDown) => to(Closed, Done),
            (Event::Finish, ..) => Step::Never,
        }
    }

    /// Who is admitted.
    #[inline]
    pub(crate) fn state(self) -> State {
        match self.0 & THREE_BITS {
            0 => State::New,
            1 => State::Initializing,
            2 => State::Ready,
            3 => State::Failed,
            _ => State::Closed,
        }
    }

    /// How far the closing is.
    #[inline]
    pub(crate) fn closing(self) -> Closing {
        match (self.0 >> CLOSING_SHIFT) & THREE_BITS {
            0 => Closing::Open,
            1 => Closing::Draining,
            2 => Closing::TearingDown,
            3 => Closing::Incomplete,
            _ => Closing::Done,
        }
    }

    /// Whether the winner of the epoch has not ended yet.
    #[inline]
    pub(crate) fn is_start_alive(self) -> bool {
        self.0 & START_ALIVE != 0
    }

    /// How many operations are admitted.
    #[inline]
    pub(crate) fn leases(self) -> u64 {
        self.0 >> LEASES_SHIFT
    }

    /// Whether nothing that was admitted or begun is still alive.
    #[inline]
    pub(crate) fn is_quiet(self) -> bool {
        self.leases() == 0 && (!self.is_start_alive() || weaken::LEAVE_STARTER)
    }

    /// The word as it is stored.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The position that a stored word means.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    fn at(self, state: State, closing: Closing) -> Self {
        let kept = self.0 & !(THREE_BITS | THREE_BITS << CLOSING_SHIFT);
        Self(kept | state as u64 | (closing as u64) << CLOSING_SHIFT)
    }

    #[inline]
    fn start_ended(self) -> Self {
        Self(self.0 & !START_ALIVE)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("state", &self.state())
            .field("closing", &self.closing())
            .field("start_alive", &self.is_start_alive())
            .field("leases", &self.leases())
            .finish()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::New => "new",
            State::Initializing => "initializing",
            State::Ready => "ready",
            State::Failed => "failed",
            State::Closed => "closed",
        })
    }
}
