//! Real processes: deaths at every point, wake-ups across address spaces, and what is left behind.
//!
//! A program with threads cannot fork safely, and the test harness has threads; so this binary brings its
//! own (`harness.rs`): each scenario runs in a forked process of its own under a hard deadline.
//! `MAILBOX_ROUNDS` sets the number of rounds of the long ones.

mod deaths;
mod harness;
mod kid;
mod leftovers;
mod waits;

fn main() {
    harness::run(&[
        (
            "a_child_that_dies_in_a_task_poisons_its_mailbox_only",
            deaths::in_a_task,
        ),
        (
            "a_child_that_dies_in_a_control_request_is_noticed",
            deaths::in_a_control_request,
        ),
        (
            "a_child_that_dies_before_taking_its_request_is_noticed",
            deaths::before_the_request,
        ),
        (
            "a_child_that_dies_while_the_parent_waits_for_a_frame_is_noticed",
            deaths::with_full_frames,
        ),
        (
            "a_child_killed_at_any_instant_leaves_no_half_answer",
            deaths::at_any_instant,
        ),
        (
            "the_death_word_of_a_parent_wakes_all_of_its_children",
            deaths::of_the_parent,
        ),
        (
            "every_payload_is_the_one_of_its_stamp",
            waits::payload_carries_its_number,
        ),
        (
            "no_wake_up_is_lost_between_two_mappings",
            waits::random_pauses,
        ),
        ("an_idle_child_costs_nothing", waits::idle_child),
        (
            "no_memory_has_a_name_and_no_exit_takes_it_away",
            leftovers::nameless,
        ),
        (
            "limits_of_a_process_are_errors_and_no_signals",
            leftovers::limited,
        ),
    ]);
}
