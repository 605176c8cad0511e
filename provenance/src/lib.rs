//! Who owns this device pointer, and is it still alive.
