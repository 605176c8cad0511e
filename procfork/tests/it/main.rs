//! The behaviour of procfork, with real processes. Every test runs in a process of its own.

mod fork;
mod support;

procfork::testing::tests! {
    fork::a_result_becomes_the_exit_code,
    fork::an_error_reaches_the_parent_as_last_words,
    fork::a_panic_ends_with_its_own_code_and_its_message_reaches_the_parent,
    fork::a_process_with_threads_is_refused_and_the_threads_are_named,
}
