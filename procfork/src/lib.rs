//! Processes that start whole and die whole: fork, parent liveness, groups, reaping, descendants, dumps.
