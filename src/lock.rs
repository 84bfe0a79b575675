//! A mutex without poisoning.

use std::sync::{Mutex, MutexGuard};

/// A mutex that never fails, because no code panics while it holds the lock.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}
