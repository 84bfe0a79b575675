//! One script: its source with includes, its SHA-1, and the names in its header comment.

use std::fmt;
use std::path::Path;

use include_dir::Dir;
use sha1_smol::Sha1;

use super::header;
use super::include::{self, Code};
use crate::error::Error;

/// A Lua script: its source with includes, its SHA-1, and the keys and arguments from its header
/// comment.
///
/// # Examples
///
/// ```
/// let release = redis_semaphore::ScriptRegistry::embedded().script("release").unwrap();
/// assert_eq!(release.arguments(), ["release_mode", "requests"]);
/// assert!(release.source().contains("redis.call('ZREM'"));
/// ```
#[derive(Clone)]
pub struct Script {
    name: String,
    source: String,
    /// The parts of `source`: the included files, then the script's own file.
    files: Vec<Code>,
    sha1: String,
    keys: Vec<String>,
    arguments: Vec<String>,
    flags: Vec<String>,
}

impl Script {
    pub(super) fn read(dir: &Dir<'_>, path: &Path) -> Result<Self, Error> {
        let (text, files) = include::resolve(dir, path)?;
        let source: String = files.iter().map(|file| file.text.as_str()).collect();
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            sha1: Sha1::from(&source).digest().to_string(),
            keys: header::names(path, text, "KEYS")?,
            arguments: header::names(path, text, "ARGV")?,
            flags: header::flags(text),
            source,
            files,
        })
    }

    /// Returns the name of the script, which is the file name without `.lua`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the source as it is sent to the server. It begins with the included files, and has
    /// no header comments (lines that begin with `--`, and empty lines, at the start of a file).
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the included files, and the code of the script's own file.
    pub(super) fn parts(&self) -> (&[Code], &str) {
        match self.files.split_last() {
            Some((own, included)) => (included, &own.text),
            None => (&[], ""),
        }
    }

    /// Returns the SHA-1 of the source in hexadecimal, as Redis computes it.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// Returns the names of the keys in order, from the lines `-- KEYS[1] name` of the header
    /// comment.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the names of the arguments in order, from the lines `-- ARGV[1] name` of the header
    /// comment. A last line `-- ARGV[2+] name` names arguments that repeat.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns the script's flags as a Redis function, from a line `-- Flags  no-writes` of the
    /// header comment. The flags have no effect if the script is called by its SHA-1.
    ///
    /// # Examples
    ///
    /// ```
    /// let inspect = redis_semaphore::ScriptRegistry::embedded().script("inspect").unwrap();
    /// assert_eq!(inspect.flags(), ["no-writes"]);
    /// ```
    pub fn flags(&self) -> &[String] {
        &self.flags
    }
}

/// Omits the source, which is long.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("name", &self.name)
            .field("sha1", &self.sha1)
            .finish_non_exhaustive()
    }
}
