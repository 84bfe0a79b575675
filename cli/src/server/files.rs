//! Files that options name. Each file is read before each use, because it may change. Input that
//! cannot be read twice (a FIFO, standard input, `<(command)`) is read once and kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::passwords;
use crate::failure::Failure;

/// The environment variable that passes the kept input to other processes of this program.
const VARIABLE: &str = "REDIS_SEMAPHORE_FILES";
/// How long to wait for input. The writer of a FIFO may have to prompt a user first.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_BYTES: u64 = 1 << 20;

static KEPT: LazyLock<Mutex<BTreeMap<PathBuf, Vec<u8>>>> = LazyLock::new(|| {
    let given = std::env::var(VARIABLE).ok();
    let kept: Option<BTreeMap<PathBuf, String>> =
        given.and_then(|given| serde_json::from_str(&given).ok());
    let kept = kept.unwrap_or_default().into_iter();
    Mutex::new(kept.map(|(path, text)| (path, text.into_bytes())).collect())
});

pub fn read(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    let name = file.to_string_lossy();
    let name = passwords::shown(&name);
    let wrong = |reason: String| Failure::usage(format!("{option}: {name}: {reason}"));
    let not_opened = |error: io::Error| match has_place(file) || name != file.to_string_lossy() {
        true => wrong(error.to_string()),
        false => Failure::usage(format!(
            "{option}: the file cannot be read: {error}: give the path of a file (the value is not \
             shown, because it may be a password)"
        )),
    };
    let mut kept = KEPT.lock().expect("no code panics while it holds the lock");
    if let Some(content) = kept.get(file) {
        return Ok(content.clone());
    }
    let (sender, receiver) = mpsc::channel();
    let path = file.to_owned();
    // A thread reads, because opening a FIFO blocks until another process opens the other end.
    thread::Builder::new()
        .spawn(move || sender.send(read_all(&path)))
        .map_err(Failure::system("cannot read a file in another thread"))?;
    let content = match receiver.recv_timeout(PATIENCE) {
        Ok(read) => read.map_err(not_opened)?,
        Err(_) => return Err(wrong(too_slow(file))),
    };
    match content {
        Content::Lasting(content) => Ok(content),
        Content::Passing(content) => {
            kept.insert(file.to_owned(), content.clone());
            Ok(content)
        }
    }
}

/// Returns the environment variable that passes the kept input to a process with the same
/// arguments.
pub fn kept() -> Option<(&'static str, OsString)> {
    let kept = KEPT.lock().expect("no code panics while it holds the lock");
    let texts = kept
        .iter()
        .filter_map(|(path, content)| Some((path.to_str()?, std::str::from_utf8(content).ok()?)));
    let texts: BTreeMap<_, _> = texts.collect();
    let given = serde_json::to_string(&texts).ok().filter(|_| !texts.is_empty())?;
    Some((VARIABLE, given.into()))
}

/// Returns whether the file or its folder exists. Otherwise, the value may be a password instead of
/// a path.
fn has_place(file: &Path) -> bool {
    file.exists() || file.parent().is_some_and(Path::is_dir)
}

enum Content {
    Lasting(Vec<u8>),
    Passing(Vec<u8>),
}

fn read_all(path: &Path) -> io::Result<Content> {
    let file = File::open(path)?;
    let is_lasting = file.metadata()?.is_file();
    let mut content = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB, so it is probably the wrong file"));
    }
    Ok(if is_lasting { Content::Lasting(content) } else { Content::Passing(content) })
}

fn too_slow(file: &Path) -> String {
    let waited = PATIENCE.as_secs();
    match fs::metadata(file).map(|its| its.file_type()) {
        Ok(its) if its.is_fifo() => format!(
            "it is a FIFO, and no process has written to it and closed it within {waited} s: check \
             its writer"
        ),
        Ok(its) if its.is_char_device() => {
            format!("its input did not end within {waited} s (on a terminal, Ctrl-D ends it)")
        }
        _ => format!("it could not be read within {waited} s"),
    }
}
