//! The order of the limits.

use super::*;

#[track_caller]
fn check(device_s: u64, case_s: u64, session_s: u64, holds: bool) {
    let seconds = Duration::from_secs;
    let limits = Limits {
        device: seconds(device_s),
        case: seconds(case_s),
    };
    let ladder = Ladder {
        limits,
        session: seconds(session_s),
    };
    assert_eq!(ladder.holds(), holds, "{ladder}");
}

#[test]
fn a_case_that_the_session_cuts_short_says_so() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    for (case, session, whose) in [
        (now, later, "its time is over"),
        (now, now, "its time is over"),
        (later, now, "the session's time is over"),
    ] {
        let at = now;
        assert_eq!(Deadline::of(case, session), Deadline { at, whose });
    }
}

#[test]
fn each_rung_is_above_the_one_below() {
    check(1, 2, 11, true);
    check(2, 2, 60, false);
    check(3, 2, 60, false);
    check(0, 2, 60, false);
    check(1, 2, 10, false);
    check(1, 60, 60, false);
    check(1, u64::MAX, u64::MAX, false);
}

#[test]
fn the_ladder_is_shown_whole() {
    let limits = Limits {
        device: Duration::from_secs(9),
        case: Duration::from_secs(8),
    };
    let ladder = Ladder {
        limits,
        session: Duration::from_secs(60),
    };
    let text = "0 < device 9s < case 8s, and case + 8s for its end < session 60s";
    assert_eq!(ladder.to_string(), text);
}
