//! Who may use a worker now: admission states, leases and close attempts.
