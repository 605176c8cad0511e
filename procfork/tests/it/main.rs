//! The behaviour of procfork, with real processes. Every test runs in a process of its own.

mod cause;
mod clean;
mod copies;
mod crash;
mod dump;
mod ending;
mod fork;
mod harness;
mod liveness;
mod old_kernel;
mod robust;
mod settings;
mod spawn;
mod support;
mod sweep;

use std::process::ExitCode;

use procfork::testing::{self, Test};

fn main() -> ExitCode {
    // The tests of the harness run this binary again, with tests that fail on purpose.
    let inner = std::env::var_os(harness::FIXTURE).is_some();
    testing::main(if inner { harness::TESTS } else { TESTS })
}

const TESTS: &[Test] = testing::list![
    fork::a_result_becomes_the_exit_code,
    fork::an_error_reaches_the_parent_as_last_words,
    fork::a_panic_ends_with_its_own_code_and_its_message_reaches_the_parent,
    fork::last_words_longer_than_their_page_are_cut,
    fork::a_panic_that_the_function_catches_is_not_its_last_word,
    fork::the_kernel_shows_the_name_cut_at_a_character,
    fork::a_process_with_threads_is_refused_and_the_threads_are_named,
    fork::a_parent_that_ignores_sigchld_is_refused,
    fork::a_name_with_a_zero_byte_is_refused,
    fork::a_group_that_is_gone_cannot_be_joined,
    fork::a_child_forks_children_of_its_own,
    fork::what_the_closure_captured_is_dropped_in_the_parent,
    fork::a_copy_of_a_child_in_a_forked_process_is_inert,
    copies::a_copied_set_does_not_hit_a_child_whose_pidfd_has_the_same_number,
    copies::a_copy_that_was_forked_by_other_means_is_inert_too,
    copies::a_dropped_copy_closes_and_unmaps_nothing,
    clean::exit_handlers_guards_and_buffers_stay_the_parents,
    clean::signals_are_as_documented_in_the_child_and_as_before_in_the_parent,
    clean::only_given_descriptors_are_open_in_the_child,
    clean::the_end_of_a_pipe_is_seen_although_siblings_live,
    clean::a_command_run_in_a_child_sees_the_three_streams_only,
    clean::a_given_descriptor_below_three_does_not_become_a_stream,
    clean::the_group_is_the_one_asked_for,
    clean::a_changed_id_clears_the_death_signal_and_rearming_restores_it,
    settings::what_was_set_holds_and_is_read_back_as_the_kernel_has_it,
    settings::children_inherit_settings,
    settings::a_setting_that_the_kernel_refuses_is_named,
    settings::the_environment_is_not_changed_beside_other_threads,
    cause::an_exit_keeps_its_code,
    cause::a_death_by_signal_keeps_the_signal,
    cause::a_stopped_child_is_stopped_and_not_ended,
    cause::a_wait_says_at_its_deadline_what_the_child_was_doing,
    cause::signals_to_the_waiting_parent_do_not_end_the_wait,
    cause::a_cause_that_somebody_else_took_is_lost_and_not_made_up,
    cause::an_ended_child_keeps_its_number_until_it_is_dropped,
    cause::dropping_a_running_child_kills_and_reaps_it,
    liveness::an_idle_leaf_follows_a_killed_root,
    liveness::a_leaf_parked_on_its_mailbox_follows_a_killed_root,
    liveness::a_busy_leaf_follows_a_killed_root,
    liveness::a_leaf_asleep_in_foreign_code_follows_a_killed_root,
    liveness::an_idle_leaf_does_not_wake_up_to_look,
    liveness::below_a_killed_middle_all_die_and_above_it_all_live,
    liveness::one_wake_of_the_kernel_reaches_all_idle_children,
    liveness::the_first_to_notice_kills_the_whole_group_of_the_tree,
    liveness::a_child_in_its_parents_group_leaves_alone,
    liveness::a_parent_that_died_before_the_signal_was_armed_is_noticed,
    liveness::a_changed_group_id_does_not_make_a_child_immortal,
    liveness::a_watch_tells_a_timeout_from_a_change_and_from_death,
    liveness::the_death_word_of_a_child_tells_its_parent,
    liveness::a_child_that_keeps_the_news_of_a_death_does_not_keep_it_from_the_parent,
    liveness::robust_mutexes_of_the_program_are_not_disturbed,
    ending::a_child_that_had_ended_needs_nothing,
    ending::a_stopped_child_gets_to_handle_the_polite_request,
    ending::a_grace_period_without_end_is_one_that_nobody_lives_to_see,
    ending::a_child_that_ignores_the_request_is_killed_after_the_grace_period,
    ending::the_group_of_a_leader_goes_with_it,
    ending::many_children_end_under_one_deadline,
    ending::all_children_of_a_tree_are_in_one_group,
    ending::the_group_outlives_its_leader_for_as_long_as_a_member_proves_it,
    ending::an_end_is_reported_once_and_the_others_live,
    ending::a_survivor_is_named_and_a_later_attempt_ends_it,
    harness::verdicts_are_as_documented,
    harness::a_test_that_hangs_is_killed_at_its_deadline,
    harness::a_process_left_behind_fails_the_test_and_is_killed,
    harness::a_listing_has_the_lines_that_other_runners_parse,
    harness::output_is_captured_unless_asked_otherwise,
    harness::a_run_of_all_counts_all,
    old_kernel::without_futex_waitv_an_idle_child_still_follows,
    old_kernel::without_close_range_only_given_descriptors_are_open,
    old_kernel::where_close_range_is_refused_only_given_descriptors_are_open,
    spawn::a_function_finds_its_name_its_bytes_and_its_descriptors,
    spawn::endings_are_those_of_a_forked_child,
    spawn::a_crate_without_unsafe_code_can_register,
    spawn::an_unknown_name_is_refused_with_those_that_exist,
    spawn::a_child_is_clean_and_has_what_it_was_given_under_the_same_numbers,
    spawn::a_command_run_in_a_child_sees_the_streams_only_and_no_marker,
    spawn::a_stream_can_be_replaced,
    spawn::a_group_can_be_joined_while_it_lives,
    spawn::a_child_has_the_cpus_and_the_nice_value_of_the_thread_that_spawns_it,
    spawn::a_chain_of_spawned_children_follows_a_killed_root,
    spawn::a_chain_of_spawned_children_follows_a_killed_middle,
    spawn::a_marker_that_leaked_is_ignored,
    spawn::a_forked_child_can_spawn_and_a_spawned_one_can_fork,
    sweep::a_forked_daemon_is_found_by_its_mark,
    sweep::a_daemon_program_is_found_by_its_mark,
    sweep::one_that_left_the_group_is_found_below_its_parent,
    sweep::what_descends_from_a_stray_is_found_with_it,
    sweep::others_are_not_hit,
    sweep::a_reach_of_the_process_spares_its_group,
    sweep::strays_of_many_children_are_swept_in_one_attempt,
    sweep::a_stray_reads_as_a_sentence,
    sweep::descendants_come_breadth_first,
    sweep::the_number_of_a_reaped_child_proves_nothing,
    sweep::a_group_whose_proof_somebody_else_took_is_not_killed,
    crash::a_crash_is_read_where_it_happened_and_ends_the_process_as_before,
    crash::an_abort_and_a_signal_that_is_sent_are_crashes_without_an_address,
    crash::an_overflow_of_the_stack_is_read,
    crash::what_is_forked_from_an_armed_process_reports_too,
    crash::what_is_spawned_from_an_armed_process_reports_too,
    crash::other_descriptors_are_no_desk,
    crash::a_process_that_waits_to_be_read_can_be_killed,
    dump::names_lines_and_inlined_functions_are_shown,
    dump::every_thread_is_shown,
    dump::frames_of_c_code_are_walked_through,
    dump::a_stopped_process_stays_stopped_and_goes_on_when_continued,
    dump::signals_that_arrive_meanwhile_are_delivered,
    dump::a_tree_is_dumped_breadth_first,
    dump::a_thread_that_cannot_be_stopped_costs_no_more_than_its_limit,
    dump::an_ended_process_says_so,
    dump::where_tracing_is_not_permitted_the_process_answers_by_its_handler,
    dump::an_answer_that_is_begun_and_never_ended_is_given_up,
];
