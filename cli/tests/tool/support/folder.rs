use std::path::PathBuf;

/// One of a test's own, which is removed afterwards.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn create() -> Self {
        let folder = std::env::temp_dir().join(format!("sem-tool-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
