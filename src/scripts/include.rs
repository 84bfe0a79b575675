//! Collects the files that a script includes with lines `-- include: lib/file.lua`. Included files
//! come before the script, each once. The header comment of a file is for people and is not sent to
//! servers.

use std::path::{Path, PathBuf};

use include_dir::Dir;

use super::header::{self, INCLUDE};
use crate::error::Error;

/// The code of one file, without its header comment and its includes.
#[derive(Debug, Clone)]
pub(super) struct Code {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Returns the text of a script's file, and the code of all included files and of the script, in
/// the order in which it is sent to a server.
pub(super) fn resolve<'a>(dir: &'a Dir<'_>, path: &Path) -> Result<(&'a str, Vec<Code>), Error> {
    let mut resolver = Resolver { dir, open: Vec::new(), done: Vec::new() };
    let text = resolver.append(path)?;
    Ok((text, resolver.done))
}

struct Resolver<'a> {
    dir: &'a Dir<'a>,
    /// The files that are being read, outermost first. A repeated file is a circular include.
    open: Vec<PathBuf>,
    done: Vec<Code>,
}

impl<'a> Resolver<'a> {
    fn append(&mut self, path: &Path) -> Result<&'a str, Error> {
        self.open.push(path.to_owned());
        let file = self.dir.get_file(path).ok_or_else(|| self.problem("is missing"))?;
        let source = file.contents_utf8().ok_or_else(|| self.problem("is not UTF-8"))?;
        let mut text = String::new();
        for line in source.lines().skip(header::lines(source).count()) {
            match line.strip_prefix(INCLUDE) {
                // The path in the line is relative to `dir`. The paths of files are relative to the
                // embedded folder, of which `dir` may be a subfolder.
                Some(included) => self.include(&self.dir.path().join(included.trim()))?,
                None => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        self.open.pop();
        self.done.push(Code { path: path.to_owned(), text });
        Ok(source)
    }

    fn include(&mut self, path: &Path) -> Result<(), Error> {
        if self.open.iter().any(|open| open == path) {
            self.open.push(path.to_owned());
            return Err(self.problem("includes itself"));
        }
        if self.done.iter().any(|code| code.path == path) {
            return Ok(());
        }
        self.append(path).map(drop)
    }

    fn problem(&self, what: &str) -> Error {
        let chain: Vec<_> = self.open.iter().map(|path| path.to_string_lossy()).collect();
        Error::Script(format!("{}: the last of these {what}", chain.join(" includes ")))
    }
}
