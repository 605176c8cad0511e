//! What users of a scene program can rely on.
//!
//! The tests start this very program again, as the scene program of [`fixtures`], and read its
//! report. Each test runs in a process of its own, which must leave none behind; see
//! `procfork::testing`.

mod fixtures;
mod support;

mod comparing;
mod conventions;
mod devices;
mod ending;
mod golden;
mod kernels;
mod outcomes;
mod output;
mod selecting;

fn main() -> std::process::ExitCode {
    if std::env::var_os(support::FIXTURES).is_some() {
        return scenetest::main(&fixtures::all());
    }
    procfork::testing::main(procfork::testing::list![
        comparing::outputs_that_differ_are_reported_with_place_and_distance,
        comparing::an_output_that_nobody_wrote_is_told_from_a_wrong_one,
        comparing::a_comparison_of_nothing_is_no_pass,
        comparing::an_output_of_a_shape_that_overflows_is_a_failure_of_its_own,
        comparing::other_names_types_or_shapes_are_failures,
        comparing::the_last_rounds_values_cannot_pass_for_this_ones,
        comparing::rounds_are_timed_one_by_one,
        conventions::the_terse_list_is_what_nextest_reads,
        conventions::an_exact_filter_runs_one_case,
        conventions::junit_has_every_case_once,
        conventions::exit_codes_are_the_documented_ones,
        conventions::a_trace_shows_cases_and_rounds,
        conventions::a_report_that_cannot_be_written_is_told_before_anything_runs,
        conventions::a_trace_shows_what_each_worker_ran,
        conventions::a_wrong_output_of_two_dimensions_has_a_heat_map_on_request,
        conventions::the_table_of_rounds_has_a_line_for_each_case,
        conventions::nextest_can_list_and_run_every_case,
        conventions::what_would_be_skipped_is_listed_as_ignored_and_runs_when_asked_for,
        conventions::the_first_scene_of_the_docs_is_one_that_runs,
        devices::cases_get_distinct_devices_and_as_many_as_they_asked_for,
        devices::a_case_that_can_never_fit_is_told_at_the_start,
        devices::a_device_that_breaks_is_not_given_out_again,
        devices::a_case_that_met_a_broken_device_runs_once_more_elsewhere,
        devices::cases_behind_a_broken_device_run_elsewhere_or_are_said_not_to_have_run,
        devices::a_chip_that_breaks_in_a_run_is_out_of_the_pool,
        devices::a_chip_that_breaks_is_out_of_the_pool_whatever_the_scene_makes_of_the_error,
        devices::a_late_peer_and_a_starved_machine_are_no_hang,
        ending::a_stuck_grandchild_is_found_and_shown,
        ending::a_stuck_grandchild_is_named_every_time_under_load,
        ending::a_stuck_worker_says_what_it_is_doing,
        ending::a_stuck_spawned_worker_says_what_it_is_doing,
        ending::sigusr1_shows_where_everything_stands_and_ends_nothing,
        ending::a_stuck_orphan_is_shown_as_what_is_below_its_case,
        ending::everything_of_a_hung_case_is_gone_afterwards,
        ending::a_stopped_case_does_not_stop_the_runner,
        ending::a_case_that_ignores_sigterm_is_killed,
        ending::what_a_case_leaves_behind_is_named_and_ended,
        ending::the_sessions_time_ends_everything,
        ending::an_interrupt_ends_everything_and_reports,
        ending::a_second_interrupt_ends_at_once_what_is_left_and_reports,
        ending::a_case_that_has_ended_is_not_timed_out_by_an_interrupt,
        golden::a_missing_golden_file_is_a_failure_with_its_path,
        golden::a_golden_file_is_rewritten_only_when_asked_for_and_that_is_no_pass,
        golden::rewriting_is_refused_on_a_ci_host,
        golden::the_variable_asks_nothing_of_cases_without_a_golden_file,
        golden::an_unknown_name_among_the_updates_is_an_error,
        golden::what_fails_or_was_never_written_makes_no_golden_file,
        golden::a_case_that_does_not_pass_leaves_its_golden_file_alone,
        golden::a_reference_is_what_a_golden_file_is_made_of,
        golden::scenes_with_golden_files_can_be_left_out,
        kernels::a_kernel_in_cpp_is_compiled_once_and_runs,
        kernels::collecting_needs_no_compiler,
        kernels::a_compilers_refusal_is_shown_whole_with_the_command,
        kernels::include_directories_that_are_not_there_are_named,
        kernels::compiling_nothing_is_an_error,
        kernels::a_crash_in_a_kernel_shows_the_function_of_the_kernel,
        outcomes::every_fixture_ends_as_the_model_says,
        outcomes::the_report_is_the_model_and_stays_so_under_load,
        outcomes::the_first_bad_outcome_stops_the_session_if_asked,
        output::a_megabyte_of_output_does_not_block_and_is_bounded,
        output::a_verdict_is_not_text,
        output::a_verdict_is_not_a_copys_to_give,
        output::lines_of_several_processes_arrive_whole,
        output::output_is_shown_when_a_case_does_not_pass,
        output::a_crash_shows_the_stack_of_the_process_that_crashed,
        output::a_panic_in_a_worker_shows_its_stack,
        selecting::a_filter_that_matches_nothing_is_an_error,
        selecting::a_misspelt_case_is_an_error_with_a_suggestion,
        selecting::a_list_with_one_unknown_line_is_an_error,
        selecting::manual_cases_run_only_when_asked_for,
        selecting::a_step_of_its_own_is_run_alone_and_only_on_request,
        selecting::a_scene_that_is_there_twice_is_an_error,
        selecting::limits_out_of_order_are_refused_with_the_ladder,
        selecting::limits_of_cases_that_are_not_run_are_nobodys,
        selecting::scenes_of_other_platforms_are_skipped_with_the_reason,
    ])
}
