//! Specifications that are refused, and what levels and names come out.

use std::time::Duration;

use device::{Platform, SimFault};
use rstest::rstest;

use super::{CHILDREN_MAX, Level, WorkerBuilder};
use crate::error::{ConfigError, Error};

fn builder() -> WorkerBuilder {
    WorkerBuilder::new()
}

fn nested(levels: usize) -> WorkerBuilder {
    (0..levels).fold(builder().chips(1), |below, _| builder().worker(below))
}

#[rstest]
#[case::one_level(nested(0), Level::Node)]
#[case::two(nested(1), Level::Network1)]
#[case::four(nested(3), Level::Network3)]
#[case::highest_child_counts(builder().worker(nested(0)).worker(nested(2)), Level::Network3)]
fn the_level_is_one_above_the_highest_child(#[case] builder: WorkerBuilder, #[case] level: Level) {
    assert_eq!(builder.build().unwrap().level(), level);
}

#[rstest]
#[case::too_deep(nested(4))]
#[case::too_many_chips(builder().chips(CHILDREN_MAX as u32 + 1))]
#[case::too_many_together(builder().chips(40).sub_workers(25))]
#[case::absurdly_many(builder().chips(u32::MAX))]
#[case::device_twice(builder().devices([3, 1, 3]))]
#[case::slash_in_a_name(builder().chips(1).name("a/b"))]
#[case::empty_name(builder().chips(1).name(""))]
#[case::same_names(builder().worker(nested(0).name("x")).worker(nested(0).name("x")))]
#[case::no_start_time(builder().chips(1).start_timeout(Duration::ZERO))]
#[case::no_close_time(builder().chips(1).close_timeout(Duration::ZERO))]
#[case::endless_grace(builder().chips(1).grace(Duration::MAX))]
#[case::fault_elsewhere(builder().chips(2).sim_fault(2, SimFault::Probe { times: 1 }))]
#[case::fault_on_hardware(builder().platform(Platform::A5).chips(1).sim_fault(0, SimFault::Probe { times: 1 }))]
#[case::below(builder().worker(builder().devices([1, 1])))]
fn a_wrong_specification_is_refused(#[case] builder: WorkerBuilder) {
    assert!(matches!(builder.build(), Err(Error::Config(_))));
}

#[test]
fn children_may_be_added_until_the_start() {
    let node = builder().build().unwrap();
    assert_eq!(node.add_worker(nested(0).name("first")).unwrap(), 0);
    assert_eq!(node.add_worker(nested(1).name("second")).unwrap(), 1);
    assert_eq!(node.level(), Level::Network2);
    // A refused addition leaves the worker as it was.
    let refused = node.add_worker(nested(0).name("first"));
    assert!(matches!(
        refused,
        Err(Error::Config(ConfigError::NameTwice { .. }))
    ));
    assert_eq!(node.add_worker(nested(0).name("third")).unwrap(), 2);
}
