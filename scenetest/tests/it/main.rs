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
        comparing::other_names_types_or_shapes_are_failures,
        comparing::the_last_rounds_values_cannot_pass_for_this_ones,
        comparing::rounds_are_timed_one_by_one,
        conventions::the_terse_list_is_what_nextest_reads,
        conventions::an_exact_filter_runs_one_case,
        conventions::junit_has_every_case_once,
        conventions::exit_codes_are_the_documented_ones,
        conventions::what_is_not_built_says_so,
        devices::cases_get_distinct_devices_and_as_many_as_they_asked_for,
        devices::a_case_that_can_never_fit_is_told_at_the_start,
        devices::a_device_that_breaks_is_not_given_out_again,
        devices::a_case_that_met_a_broken_device_runs_once_more_elsewhere,
        ending::a_stuck_grandchild_is_found_and_shown,
        ending::everything_of_a_hung_case_is_gone_afterwards,
        ending::a_stopped_case_does_not_stop_the_runner,
        ending::a_case_that_ignores_sigterm_is_killed,
        ending::what_a_case_leaves_behind_is_named_and_ended,
        ending::the_sessions_time_ends_everything,
        ending::an_interrupt_ends_everything_and_reports,
        outcomes::every_fixture_ends_as_the_model_says,
        outcomes::the_first_bad_outcome_stops_the_session_if_asked,
        output::a_megabyte_of_output_does_not_block_and_is_bounded,
        output::a_verdict_is_not_text,
        output::lines_of_several_processes_arrive_whole,
        output::output_is_shown_when_a_case_does_not_pass,
        selecting::a_filter_that_matches_nothing_is_an_error,
        selecting::a_misspelt_case_is_an_error_with_a_suggestion,
        selecting::a_list_with_one_unknown_line_is_an_error,
        selecting::manual_cases_run_only_when_asked_for,
        selecting::a_scene_that_is_there_twice_is_an_error,
        selecting::limits_out_of_order_are_refused_with_the_ladder,
        selecting::scenes_of_other_platforms_are_skipped_with_the_reason,
    ])
}
