//! Files that options name. They are read anew each time, since they may change. What cannot be
//! read twice (a FIFO, standard input, `<(command)`) is read once, and kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// Is in the environment of the processes that this one starts of itself: what was kept.
const VARIABLE: &str = "REDIS_SEMAPHORE_FILES";
/// Whoever writes to a FIFO may have to ask somebody first.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_BYTES: u64 = 1 << 20;

static KEPT: LazyLock<Mutex<BTreeMap<PathBuf, Vec<u8>>>> = LazyLock::new(|| {
    let told = std::env::var(VARIABLE).ok();
    let kept: Option<BTreeMap<PathBuf, String>> =
        told.and_then(|told| serde_json::from_str(&told).ok());
    let kept = kept.unwrap_or_default().into_iter();
    Mutex::new(kept.map(|(path, text)| (path, text.into_bytes())).collect())
});

pub fn read(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |reason: String| Failure::usage(format!("{option}: {}: {reason}", file.display()));
    let mut kept = KEPT.lock().expect("nothing panics while it is locked");
    if let Some(content) = kept.get(file) {
        return Ok(content.clone());
    }
    let (sender, receiver) = mpsc::channel();
    let path = file.to_owned();
    // Nothing else ends the wait for somebody who opens the other end.
    thread::spawn(move || sender.send(read_all(&path)));
    let content = match receiver.recv_timeout(PATIENCE) {
        Ok(read) => read.map_err(|error| wrong(error.to_string()))?,
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

/// For the environment of a process that gets the same arguments.
pub fn kept() -> Option<(&'static str, OsString)> {
    let kept = KEPT.lock().expect("nothing panics while it is locked");
    let texts = kept
        .iter()
        .filter_map(|(path, content)| Some((path.to_str()?, std::str::from_utf8(content).ok()?)));
    let texts: BTreeMap<_, _> = texts.collect();
    let told = serde_json::to_string(&texts).ok().filter(|_| !texts.is_empty())?;
    Some((VARIABLE, told.into()))
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
        return Err(io::Error::other(
            "it is larger than 1 MiB, which is not what the option is for",
        ));
    }
    Ok(if is_lasting { Content::Lasting(content) } else { Content::Passing(content) })
}

fn too_slow(file: &Path) -> String {
    let waited = PATIENCE.as_secs();
    match fs::metadata(file).map(|its| its.file_type()) {
        Ok(its) if its.is_fifo() => format!(
            "it is a FIFO, and nobody has written to it and closed it within {waited} s: see to \
             whoever should"
        ),
        Ok(its) if its.is_char_device() => {
            format!("its input did not end within {waited} s (Ctrl-D ends that of a terminal)")
        }
        _ => format!("it could not be read within {waited} s"),
    }
}
