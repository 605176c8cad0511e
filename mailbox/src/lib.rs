//! Bytes between a parent and a child: shared segments, task frames, doorbells and waits.
