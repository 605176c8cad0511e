//! Tensors, dependency inference, scheduling, capture and replay, as a pure state machine.
