//! One script: its source with all that it includes, its SHA-1, and what its head declares.

use std::fmt;
use std::path::Path;

use include_dir::Dir;
use sha1_smol::Sha1;

use super::{header, include};
use crate::error::Error;

/// One Lua script: its source with includes put in, its SHA-1, and what its head comment says of
/// keys and arguments.
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
    sha1: String,
    keys: Vec<String>,
    arguments: Vec<String>,
    flags: Vec<String>,
}

impl Script {
    pub(super) fn read(dir: &Dir<'_>, path: &Path) -> Result<Self, Error> {
        let (text, source) = include::resolve(dir, path)?;
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            sha1: Sha1::from(&source).digest().to_string(),
            keys: header::names(path, text, "KEYS")?,
            arguments: header::names(path, text, "ARGV")?,
            flags: header::flags(text),
            source,
        })
    }

    /// The name: that of the file, without `.lua`.
    ///
    /// # Examples
    ///
    /// See [`Script`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is sent to the server: the file with its includes put in, without head comments (the
    /// lines `--`, and empty ones, that a file begins with).
    ///
    /// # Examples
    ///
    /// See [`Script`].
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The SHA-1 of the source, in hexadecimal, as Redis computes it.
    ///
    /// # Examples
    ///
    /// See [`ScriptRegistry`](super::ScriptRegistry).
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// The names of the keys, in order, from the lines `-- KEYS[1] name` of the head comment.
    ///
    /// # Examples
    ///
    /// See [`ScriptRegistry`](super::ScriptRegistry).
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The names of the arguments, in order, from the lines `-- ARGV[1] name` of the head comment.
    /// A last line `-- ARGV[2+] name` stands for arguments that repeat.
    ///
    /// # Examples
    ///
    /// See [`Script`].
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The flags that the script has as a Redis function, from a line `-- Flags  no-writes` of the
    /// head comment. Called as a script it has none.
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

/// Without the source, which is long.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("name", &self.name)
            .field("sha1", &self.sha1)
            .finish_non_exhaustive()
    }
}
