//! The behaviour of a tree of workers, through the public interface; one module per subject.
//!
//! Every test runs in a process of its own (`procfork::testing`), which has one thread, a deadline, and is checked
//! afterwards for processes that it left behind.

mod support;

mod buffers;
mod death;
mod failures;
mod logs;
mod memory;
mod nested;
mod registration;
mod runs;
mod settings;
mod start;
mod texts;
mod watching;

procfork::testing::tests! {
    start::a_tree_is_ready_when_init_returns,
    start::a_process_with_threads_does_not_fork_and_names_them,
    start::a_spawned_tree_does_what_a_forked_one_does,
    start::a_process_with_threads_starts_its_tree_by_spawning,
    start::a_spawned_worker_that_dies_is_told_exactly,
    start::a_callable_that_captured_something_is_not_spawned_and_is_named,
    start::a_device_that_does_not_open_fails_the_start_with_its_place_and_leaves_nothing,
    start::everybody_who_inits_gets_the_same_outcome,
    start::a_worker_without_children_is_refused_before_any_fork,
    start::a_callable_that_nobody_could_run_is_refused,
    start::no_worker_is_added_after_init,
    start::close_is_final_and_repeatable,
    start::a_dropped_worker_leaves_no_process,
    start::descriptors_are_as_many_after_close_as_before,
    start::a_program_with_an_exit_handler_runs_it_once,
    settings::every_process_has_the_settings_that_it_was_given_and_the_tree_says_so,
    settings::the_configuration_is_printed_whole,
    settings::settings_that_cannot_hold_are_refused_before_any_process_is_made,
    settings::a_setting_that_the_kernel_refuses_fails_the_start_with_its_place,
    settings::the_start_tells_every_phase_of_every_worker_in_order,
    settings::a_start_that_hangs_says_for_whom_and_ends_in_its_limit,
    registration::what_is_registered_after_init_runs_everywhere_in_both_modes,
    registration::what_is_unregistered_is_gone_everywhere_and_its_name_is_free,
    registration::a_closure_that_captured_something_cannot_come_after_init,
    registration::a_registration_that_one_worker_refuses_changes_nothing_however_often,
    registration::a_callable_that_an_unfinished_task_names_stays,
    registration::a_graph_cannot_unregister_what_it_may_still_submit,
    registration::a_close_waits_for_a_registration_or_refuses_it,
    runs::a_vector_add_over_two_chips_is_right,
    runs::conflicting_tasks_run_in_the_order_of_submission,
    runs::independent_tasks_of_two_sub_workers_overlap,
    runs::a_group_runs_on_all_of_its_members_at_once,
    runs::explicit_order_is_kept_without_data,
    runs::many_tasks_in_one_run_all_complete,
    failures::a_function_that_returns_an_error_names_task_worker_and_text,
    failures::a_function_that_panics_names_task_worker_and_message_and_the_worker_goes_on,
    failures::a_kernel_that_panics_names_task_worker_and_message_and_the_worker_goes_on,
    failures::an_orchestration_that_panics_is_a_typed_error_and_the_worker_goes_on,
    failures::an_error_of_the_orchestration_comes_back_after_started_tasks_have_ended,
    failures::dependents_of_a_failed_task_are_skipped_and_others_run,
    runs::a_submitted_run_is_advanced_while_nobody_waits,
    runs::several_threads_run_at_once,
    runs::waiting_with_a_limit_does_no_harm,
    runs::a_close_inside_a_run_is_refused,
    runs::a_run_inside_an_orchestration_is_refused,
    runs::a_handle_of_another_tree_is_refused,
    runs::a_target_that_does_not_exist_or_does_not_fit_is_refused,
    runs::arguments_are_checked_in_the_function,
    runs::disjoint_tiles_of_one_buffer_are_written_at_once,
    runs::more_arguments_than_a_frame_holds_spill,
    death::a_worker_that_kills_itself_in_a_task_is_an_error_with_the_exact_cause,
    death::a_worker_that_exits_with_zero_in_a_task_has_died_too,
    death::siblings_of_a_dead_worker_go_on,
    death::a_task_for_a_dead_worker_is_refused_with_its_cause,
    death::a_chip_worker_killed_while_idle_is_found_by_the_next_run,
    death::health_tells_what_an_idle_tree_has_lost,
    death::a_dead_worker_comes_back_with_its_callables_and_buffers,
    death::after_the_root_is_killed_every_process_is_gone,
    death::after_a_middle_worker_is_killed_its_subtree_is_gone_and_the_root_goes_on,
    death::a_stopped_worker_does_not_block_the_close,
    death::a_death_wakes_the_driver_that_is_parked,
    buffers::a_buffer_that_a_task_writes_cannot_be_read_released_or_written,
    buffers::a_task_on_a_buffer_that_the_host_changes_is_refused,
    buffers::a_released_buffer_is_unmapped_by_every_worker,
    buffers::a_dropped_buffer_lives_until_its_task_has_ended,
    buffers::sizes_that_do_not_fit_are_errors,
    buffers::buffers_made_before_init_work,
    memory::device_memory_is_kept_over_runs,
    memory::a_freed_handle_is_stale_even_if_its_address_is_alive_again,
    memory::a_part_of_an_allocation_can_be_copied_and_not_freed,
    memory::memory_of_one_chip_is_refused_on_another_before_any_device_call,
    memory::memory_named_by_an_unfinished_task_is_not_freed,
    memory::out_of_memory_says_what_was_wanted_and_what_is_free,
    memory::memory_of_a_dead_chip_is_gone,
    nested::a_tree_of_three_levels_runs_orchestrations_below,
    nested::a_failure_two_levels_down_names_where_it_began,
    nested::a_start_that_fails_two_levels_down_leaves_nothing,
    logs::what_a_worker_logs_is_heard_in_order_with_its_path,
    logs::workers_two_levels_down_are_heard_too,
    logs::a_panic_and_a_death_are_heard,
    logs::a_worker_that_talks_too_much_loses_messages_and_never_waits,
    logs::a_listener_that_comes_later_is_heard_by_workers,
    logs::a_spawned_worker_and_its_threads_are_heard,
    watching::counters_count_what_happened,
    watching::a_trace_has_every_task_in_its_worker_and_its_times_in_order,
    watching::a_task_that_dies_with_its_worker_is_in_the_trace_as_failed,
    texts::errors_read_as_written,
}
