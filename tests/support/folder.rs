use std::path::PathBuf;

use uuid::Uuid;

/// A private folder of one test. The folder is removed after the test. If the test fails, the
/// folder is kept, because it may contain a log.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn create() -> Self {
        let folder = std::env::temp_dir().join(format!("redis-semaphore-{}", Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }
}
