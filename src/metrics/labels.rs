//! The names of semaphores as labels. Each is some forty series in whatever stores them, and names
//! may be made from users or orders: so there is a cap.

use std::collections::HashSet;
use std::sync::Mutex;

/// The label of all names beyond the cap. No semaphore can be called so: names have no braces.
const OTHER: &str = "{other}";

/// A name that was a label stays one, also when its semaphores are gone: its series do, too.
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
