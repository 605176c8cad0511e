//! The table, cell by cell: every position against every event.

use rstest::rstest;

use super::{Closing, Event, ONE_LEASE, START_ALIVE, Snapshot, State, Step};

/// All events, in the order of the columns below.
const EVENTS: [Event; 9] = [
    Event::Start,
    Event::Commit,
    Event::EndStart,
    Event::Acquire,
    Event::Release,
    Event::Claim,
    Event::Teardown,
    Event::Suspend,
    Event::Finish,
];

/// `-` is refused, `!` is never; anything else is the position that the event leads to.
#[rstest]
//                       Start   Commit  EndStart Acquire   Release   Claim       Teardown  Suspend  Finish
#[case("new",          ["init", "!",    "!",     "-",      "!",      "drain",    "!",      "!",     "!"])]
#[case("init",         ["-",    "ready", "failed", "-",     "!",      "drain+s",  "!",      "!",     "!"])]
#[case("ready",        ["-",    "!",    "!",     "ready+1", "!",     "drain",    "!",      "!",     "!"])]
#[case("ready+1",      ["-",    "!",    "!",     "ready+2", "ready", "drain+1",  "!",      "!",     "!"])]
#[case("failed",       ["-",    "!",    "!",     "-",      "!",      "drain",    "!",      "!",     "!"])]
#[case("drain",        ["-",    "!",    "!",     "-",      "!",      "-",        "tear",   "left",  "!"])]
#[case("drain+1",      ["-",    "!",    "!",     "-",      "drain",  "-",        "-",      "left+1", "!"])]
#[case("drain+2",      ["-",    "!",    "!",     "-",      "drain+1", "-",       "-",      "left+2", "!"])]
#[case("drain+s",      ["-",    "-",    "drain", "-",      "!",      "-",        "-",      "left+s", "!"])]
#[case("tear",         ["-",    "!",    "!",     "-",      "!",      "-",        "!",      "left",  "done"])]
#[case("left",         ["-",    "!",    "!",     "-",      "!",      "drain",    "!",      "!",     "!"])]
#[case("left+1",       ["-",    "!",    "!",     "-",      "left",   "drain+1",  "!",      "!",     "!"])]
#[case("left+s",       ["-",    "-",    "left",  "-",      "!",      "drain+s",  "!",      "!",     "!"])]
#[case("done",         ["-",    "!",    "!",     "-",      "!",      "-",        "!",      "!",     "!"])]
fn every_position_answers_every_event_as_the_table_says(
    #[case] from: &str,
    #[case] expected: [&str; 9],
) {
    let found = EVENTS.map(|event| show(position(from).step(event)));
    assert_eq!(
        found,
        expected.map(str::to_owned),
        "from {from}, in the order {EVENTS:?}"
    );
}

#[test]
fn every_position_that_can_be_reached_has_a_row() {
    let rows = [
        "new", "init", "ready", "ready+1", "failed", "drain", "drain+1", "drain+2", "drain+s",
        "tear", "left", "left+1", "left+s", "done",
    ];
    for (from, event) in rows
        .iter()
        .flat_map(|row| EVENTS.map(|event| (position(row), event)))
    {
        let Step::To(next) = from.step(event) else {
            continue;
        };
        let known = rows.contains(&&*name(next)) || next.leases() > 1;
        assert!(
            known,
            "{event:?} leads from {from:?} to {next:?}, which no row tests"
        );
    }
}

#[test]
fn closed_and_its_done_are_final_and_teardown_is_quiet() {
    // All words of up to two leases, reachable or not: the laws hold even off the paths.
    for bits in (0..128).flat_map(|low| [low, low + ONE_LEASE, low + 2 * ONE_LEASE]) {
        let from = Snapshot::from_bits(bits);
        for event in EVENTS {
            let Step::To(next) = from.step(event) else {
                continue;
            };
            if from.state() == State::Closed {
                assert_eq!(next.state(), State::Closed, "{event:?} reopens {from:?}");
            }
            assert_ne!(
                from.closing(),
                Closing::Done,
                "{event:?} moves on from {from:?}"
            );
            if event == Event::Teardown {
                assert!(from.is_quiet(), "{event:?} tears down under {from:?}");
            }
        }
    }
}

#[test]
fn fields_of_the_word_do_not_overlap() {
    let all = Snapshot::from_bits(u64::MAX);
    assert_eq!(all.leases(), (1 << 56) - 1);
    assert!(all.is_start_alive());
    assert_eq!(Snapshot::from_bits(START_ALIVE).leases(), 0);
    assert_eq!(Snapshot::from_bits(ONE_LEASE).state(), State::New);
}

fn show(step: Step) -> String {
    match step {
        Step::To(next) => name(next),
        Step::Refused => "-".to_owned(),
        Step::Never => "!".to_owned(),
    }
}

/// The short name of a position: its phase, `+n` for leases, `+s` for a live start inside Closed.
fn name(at: Snapshot) -> String {
    let phase = match (at.state(), at.closing()) {
        (State::New, Closing::Open) => "new",
        (State::Initializing, Closing::Open) => "init",
        (State::Ready, Closing::Open) => "ready",
        (State::Failed, Closing::Open) => "failed",
        (State::Closed, Closing::Draining) => "drain",
        (State::Closed, Closing::TearingDown) => "tear",
        (State::Closed, Closing::Incomplete) => "left",
        (State::Closed, Closing::Done) => "done",
        other => panic!("{other:?} is no position"),
    };
    let leases = if at.leases() > 0 {
        format!("+{}", at.leases())
    } else {
        String::new()
    };
    let start = if at.state() == State::Closed && at.is_start_alive() {
        "+s"
    } else {
        ""
    };
    format!("{phase}{leases}{start}")
}

/// The position of that short name.
fn position(name: &str) -> Snapshot {
    let (phase, extra) = name.split_once('+').unwrap_or((name, "0"));
    let base = match phase {
        "new" => Snapshot::NEW,
        "init" => Snapshot::INITIALIZING,
        "ready" => Snapshot::NEW.at(State::Ready, Closing::Open),
        "failed" => Snapshot::NEW.at(State::Failed, Closing::Open),
        "drain" => Snapshot::NEW.at(State::Closed, Closing::Draining),
        "tear" => Snapshot::NEW.at(State::Closed, Closing::TearingDown),
        "left" => Snapshot::NEW.at(State::Closed, Closing::Incomplete),
        "done" => Snapshot::NEW.at(State::Closed, Closing::Done),
        other => panic!("{other} is no position"),
    };
    match extra {
        "s" => Snapshot(base.0 | START_ALIVE),
        leases => Snapshot(base.0 + leases.parse::<u64>().expect("a number") * ONE_LEASE),
    }
}
