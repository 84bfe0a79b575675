//! The names of semaphores as labels. Each name is about 40 time series, and names may be made from
//! users or orders, so their number is limited.

use std::collections::HashSet;
use std::sync::Mutex;

/// The label of all names beyond the limit. Names have no braces, so no semaphore has this name.
const OTHER: &str = "{other}";

/// A name that is a label stays one after its semaphores are dropped, because its series remain.
pub(super) struct Labels {
    most: usize,
    names: Mutex<HashSet<String>>,
}

impl Labels {
    pub(super) fn new(most: usize) -> Self {
        Self { most, names: Mutex::default() }
    }

    pub(super) fn label(&self, name: &str) -> String {
        let mut names = self.names.lock().expect("nothing panics while it is locked");
        if !names.contains(name) {
            if names.len() >= self.most {
                return OTHER.to_owned();
            }
            names.insert(name.to_owned());
        }
        name.to_owned()
    }
}
