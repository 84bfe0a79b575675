//! The names of semaphores as labels. In Prometheus, each name adds about 40 time series (with 12
//! buckets). The number of names is limited, because names may contain the IDs of users or orders.

use std::collections::HashSet;
use std::sync::Mutex;

/// The label of all names beyond the limit. Names have no braces, so no semaphore has this name.
const OTHER: &str = "{other}";

/// A name stays a label after its semaphores are dropped, because its time series remain.
pub(super) struct Labels {
    most: usize,
    names: Mutex<HashSet<String>>,
}

impl Labels {
    pub(super) fn new(most: usize) -> Self {
        Self { most, names: Mutex::default() }
    }

    pub(super) fn label(&self, name: &str) -> String {
        let mut names = self.names.lock().expect("no code panics while it holds the lock");
        if !names.contains(name) {
            if names.len() >= self.most {
                return OTHER.to_owned();
            }
            names.insert(name.to_owned());
        }
        name.to_owned()
    }
}
