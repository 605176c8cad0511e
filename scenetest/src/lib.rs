//! Scenes: declarative end-to-end tests that are isolated, compared, timed, and explained when they hang.
