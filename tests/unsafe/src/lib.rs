//! Tests of redis-semaphore that cannot do without `unsafe`, which that crate forbids: see `tests`.
