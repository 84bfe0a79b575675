//! The output of the CLI. The functions use neither `println!` nor `eprintln!`, because these
//! macros panic if the reader has gone or the disk is full.
//!
//! All functions that print, except `write` and `whisper`, escape their text, because servers and
//! other clients may have written parts of it.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use serde::Serialize;

use crate::escape;
use crate::failure::{Failure, UNWRITABLE};
use crate::interruption::not_ignored;

impl Failure {
    pub fn report(self) -> ExitCode {
        if !self.reason.is_empty() {
            note(&self);
        }
        ExitCode::from(self.status)
    }
}

/// If a file has reached the limit of `ulimit -f`, a write to it raises SIGXFSZ. This signal must not
/// end this process, which may have a permit. With a handler, the write returns an error instead. A
/// command that this process starts has the default action again.
pub fn survive_full_files() {
    for signal in not_ignored([Signal::SIGXFSZ]) {
        // If the handler cannot be installed, the default action remains.
        let _ = signal_hook::flag::register(signal as i32, Arc::default());
    }
}

/// Prints one or more lines of the result on standard output.
pub fn say(text: impl Display) -> Result<(), Failure> {
    write(format!("{}\n", escape::text(&text.to_string())).as_bytes())
}

/// Prints a JSON result in one line.
pub fn say_json(result: &impl Serialize) -> Result<(), Failure> {
    write(format!("{}\n", escape::json(result)).as_bytes())
}

/// Prints text as it is, without a line break after it. The text may have colors or
/// drawings, so the caller escapes the parts that others wrote.
pub fn write(text: &[u8]) -> Result<(), Failure> {
    let mut output = Patient(io::stdout().lock());
    output.write_all(text).and_then(|()| output.flush()).map_err(unwritable)
}

/// An output that waits if another program has made it non-blocking.
struct Patient<W>(W);

impl<W: Write + AsFd> Patient<W> {
    fn when_ready<T>(&mut self, write: impl Fn(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match write(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(
                        &mut [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)],
                        PollTimeout::NONE,
                    )?;
                }
                outcome => return outcome,
            }
        }
    }
}

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.when_ready(|output| output.write(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.when_ready(W::flush)
    }
}

/// Returns the failure for a failed write. The failure has no message if the output is a closed
/// pipe. For example, `head` closes its input when it has read enough.
pub fn unwritable(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::new(UNWRITABLE, "");
    }
    Failure::new(UNWRITABLE, format!("the output could not be written: {error}"))
}

/// Prints a note as one line on standard error, after the name of the CLI.
pub fn note(text: impl Display) {
    report(format_args!("redis-semaphore: {}", escape::line(&text.to_string())));
}

/// Prints one or more lines on standard error, in addition to the result. Ignores write errors.
pub fn report(text: impl Display) {
    whisper(&format!("{}\n", escape::text(&text.to_string())));
}

/// Prints text on standard error as it is, without a line break after it.
pub fn whisper(text: &str) {
    let _ = Errors.write_all(text.as_bytes());
}

/// Standard error. A full pipe whose reader does not read must not block this process, because
/// signals and timeouts must still end it. So text that cannot be written within [`PATIENCE`] is
/// omitted. With `stty tostop`, a terminal stops background processes that write to it. This process
/// must not be stopped, because it may have a permit to refresh.
pub struct Errors;

/// How long a note waits for space in standard error.
const PATIENCE: u16 = 500; // ms
/// If a pipe is ready, it takes this number of bytes at once.
const MOST_AT_ONCE: usize = 4096;
/// Whether the last text was omitted. The next text then does not wait.
static IS_BLOCKED: AtomicBool = AtomicBool::new(false);

/// Waits until standard error takes text. Returns false if it does not.
fn takes_text() -> bool {
    let patience = if IS_BLOCKED.load(Ordering::Relaxed) { 0 } else { PATIENCE };
    let error = io::stderr();
    let mut ready = [PollFd::new(error.as_fd(), PollFlags::POLLOUT)];
    // If polling fails, the write returns the error.
    let is_blocked = poll(&mut ready, patience) == Ok(0);
    IS_BLOCKED.store(is_blocked, Ordering::Relaxed);
    !is_blocked
}

impl Write for Errors {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if !takes_text() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let text = &text[..text.len().min(MOST_AT_ONCE)];
        let stop = SigSet::from_iter([Signal::SIGTTOU]);
        let mask = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let written = io::stderr().write(text);
        if let Ok(mask) = mask {
            mask.thread_set_mask()?;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // nothing is buffered
    }
}

/// Standard error as the output of the log. The log writes each line with one call.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        report(escape::line(text.strip_suffix('\n').unwrap_or(&text)));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::*;

    /// An output that sends a message when it is full.
    struct Watched(UnixStream, Sender<()>);

    impl Write for Watched {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.write(text).inspect_err(|_| self.1.send(()).unwrap())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsFd for Watched {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[test]
    fn output_to_a_non_blocking_pipe_is_complete() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let (full, is_full) = channel();
        let text = vec![b'a'; 1 << 20];
        let read = thread::spawn(move || {
            is_full.recv().unwrap();
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read).unwrap()
        });
        Patient(Watched(writer, full)).write_all(&text).unwrap();
        assert!(read.join().unwrap() == text);
    }
}
