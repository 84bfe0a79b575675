//! The guard: a process that ends the command where this tool cannot, because it was killed, or is
//! stopped itself. It is this program once more, with a pipe as its input, and is told over that
//! what goes on. The pipe closes with the tool, however that ends.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use humantime::format_duration;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::command::{Running, SHORT_PAUSE};
use crate::output::note;
use crate::role;

/// How often to look whether a command that is stopped without a permit goes on.
const PAUSE_WHILE_STOPPED: Duration = Duration::from_millis(100);

/// What the guard is told, a line each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Word {
    /// The command was started, and this is its group.
    Started(Pid),
    /// It may run for so long, unless another such word comes.
    MayRun(Duration),
    /// It was told to end, and is to be killed after so long.
    Ending(Duration),
    /// Nothing is left to guard.
    Done,
}

/// The guard as the tool knows it.
pub struct Guard {
    child: Child,
}

impl Guard {
    pub fn start(grace: Duration) -> io::Result<Self> {
        let child = Command::new(role::THIS_PROGRAM)
            // What `pkill -f` looks at: see `watch`.
            .arg0("semaphore-guard")
            // What is set there is for the tool, and may be a password.
            .env_clear()
            .env(role::VARIABLE, format!("{} {}", role::GUARD, format_duration(grace)))
            .stdin(Stdio::piped())
            // Whoever reads the tool's output must not wait for the guard.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // ^C and ^Z are not for the guard.
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }

    pub fn is(&self, process: Pid) -> bool {
        self.child.id() == process.as_raw() as u32
    }

    /// Where it has ended. Answers whether another one is there, which knows nothing yet.
    pub fn replace(&mut self, grace: Duration) -> bool {
        match Self::start(grace) {
            Ok(another) => {
                *self = another;
                true
            }
            Err(error) => {
                note(format_args!("the guard was ended, and another cannot be started: {error}"));
                false
            }
        }
    }

    pub fn tell(&mut self, word: Word) {
        if let Some(pipe) = &mut self.child.stdin {
            // Without a guard the tool still does its own part.
            let _ = pipe.write_all(format!("{word}\n").as_bytes());
        }
    }

    /// Leaves no process behind.
    pub fn end(mut self) {
        self.tell(Word::Done);
        self.child.stdin = None;
        // It may have been picked up with other children.
        let _ = self.child.wait();
    }
}

/// What the guard's process does.
pub fn watch(grace: Duration) -> io::Result<()> {
    // Whoever ends all processes of the tool's name means the tool. The guard ends with it.
    rustix::thread::set_name(c"semaphore-guard")?;
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    if let Some((command, kill_at)) = until_needed(&words(), grace) {
        end(&command, kill_at);
    }
    Ok(())
}

/// Answers the command that is to be ended, and when it is to be killed.
fn until_needed(words: &Receiver<Word>, grace: Duration) -> Option<(Running, Instant)> {
    let (mut command, mut needed_at, mut kill_at) = (None::<Running>, None, None);
    let mut was_stopped = false;
    loop {
        let heard = match needed_at {
            Some(at) => words.recv_timeout(Instant::saturating_duration_since(&at, Instant::now())),
            None => words.recv().map_err(Into::into),
        };
        let now = Instant::now();
        match heard {
            Ok(Word::Started(group)) => command = Some(Running { group }),
            Ok(Word::MayRun(left)) => (was_stopped, needed_at) = (false, Some(now + left)),
            Ok(Word::Ending(left)) => {
                (was_stopped, needed_at, kill_at) = (false, Some(now + left), Some(now + left));
            }
            Ok(Word::Done) => return None,
            Err(error) => {
                let command = command?;
                let is_stopped = kill_at.is_none() && command.is_stopped();
                // Where it goes on, the tool has let it, and is about to tell for how long.
                if error == RecvTimeoutError::Disconnected || !(is_stopped || was_stopped) {
                    return Some((command, kill_at.unwrap_or(now + grace)));
                }
                if is_stopped && !was_stopped {
                    // All of its group.
                    command.signal(Signal::SIGSTOP);
                }
                (was_stopped, needed_at) = (is_stopped, Some(now + PAUSE_WHILE_STOPPED));
            }
        }
    }
}

fn end(command: &Running, kill_at: Instant) {
    command.terminate();
    while command.has_group() && Instant::now() < kill_at {
        thread::sleep(SHORT_PAUSE);
    }
    command.signal(Signal::SIGKILL);
}

/// Of the standard input, until it closes.
fn words() -> Receiver<Word> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for word in io::stdin().lock().lines().map_while(Result::ok).filter_map(|line| read(&line))
        {
            if sender.send(word).is_err() {
                return;
            }
        }
    });
    receiver
}

fn read(line: &str) -> Option<Word> {
    let (word, number) = line.split_once(' ').unwrap_or((line, ""));
    Some(match word {
        "started" => Word::Started(Pid::from_raw(number.parse().ok()?)),
        "may-run" => Word::MayRun(Duration::from_millis(number.parse().ok()?)),
        "ending" => Word::Ending(Duration::from_millis(number.parse().ok()?)),
        "done" => Word::Done,
        _ => return None,
    })
}

impl Display for Word {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(group) => write!(f, "started {group}"),
            Self::MayRun(left) => write!(f, "may-run {}", left.as_millis()),
            Self::Ending(left) => write!(f, "ending {}", left.as_millis()),
            Self::Done => f.write_str("done"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_reads_what_it_is_told() {
        for word in [
            Word::Started(Pid::from_raw(4711)),
            Word::MayRun(Duration::from_millis(29_999)),
            Word::Ending(Duration::from_millis(500)),
            Word::Done,
        ] {
            assert_eq!(read(&word.to_string()), Some(word));
        }
        assert_eq!(read("started all"), None);
    }
}
