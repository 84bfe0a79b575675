//! The guard's process: receives messages from the CLI, and ends the command if the CLI cannot.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{getpid, set_child_subreaper};

use super::words::{Report, Word, read_word};
use crate::failure::with_remedy;
use crate::interruption::not_ignored;
use crate::output::note;
use crate::run::command::{Change, NAME, SHORT_PAUSE, await_change, prepare};
use crate::run::family::Family;

/// A stopped command whose time is up is checked at this interval, because it may be continued.
const PAUSE_WHILE_STOPPED: Duration = Duration::from_millis(100);
/// How long killed processes may remain before the guard names them. On a busy machine, they end
/// only when they get CPU time.
const UNTIL_NAMED: Duration = Duration::from_secs(2);
/// How long killed processes may remain without a name in /proc, which may hide the processes of
/// other users.
const UNTIL_HIDDEN: Duration = Duration::from_secs(4);
/// The guard kills all processes more than this many times before it names the remaining processes.
/// Without /proc, it finds only its own children, so each attempt kills one generation. A search
/// may take up to a second, so the guard counts attempts, in addition to the time.
const KILLS_UNTIL_NAMED: u32 = 10;

enum Event {
    Word(Word),
    Changed(Pid, Change),
    /// This process has no descendants left, so no process of the command is left.
    Childless,
    /// The CLI has ended.
    Closed,
}

struct Watch {
    socket: UnixStream,
    events: Sender<Event>,
    command: Vec<OsString>,
    grace: Duration,
    family: Option<Family>,
    /// When to end the command, unless the CLI extends the time.
    needed_at: Option<Instant>,
    /// When to kill the command, which already got SIGTERM.
    kill_at: Option<Instant>,
    /// How many times the guard has sent SIGKILL to all processes.
    kills: u32,
    /// Whether the command is stopped now, and whether it was stopped when its time was up.
    is_stopped: bool,
    was_stopped: bool,
    /// The guard has stopped all processes, not only those that the terminal or the CLI reached.
    has_stopped_all: bool,
    is_childless: bool,
    is_closed: bool,
    is_over: bool,
}

/// Guards the command until nothing is left to guard.
pub fn watch(grace: Duration) -> io::Result<()> {
    // A signal to all processes with the CLI's name must not reach the guard, so the guard gets
    // another name.
    rustix::thread::set_name(c"semaphore-guard")?;
    let ending = not_ignored([Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM]);
    // If the CLI was started with SIGCHLD ignored, no child's end would be reported.
    for signal in ending.chain([Signal::SIGCHLD]) {
        signal_hook::flag::register(signal as i32, Arc::default())?;
    }
    set_child_subreaper(Some(getpid()))?;
    let socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    let (input, command) = match accept_command(&socket) {
        // The CLI has already ended and reported why, so there is nothing to guard.
        Err(error) if has_gone(&error) => return Ok(()),
        passed => passed?,
    };
    // From here on, standard input is for the command, which inherits it.
    rustix::stdio::dup2_stdin(input)?;
    let (events, received) = mpsc::channel();
    listen(socket.try_clone()?, events.clone())?;
    let watch = Watch {
        socket,
        events,
        command,
        grace,
        family: None,
        needed_at: None,
        kill_at: None,
        kills: 0,
        is_stopped: false,
        was_stopped: false,
        has_stopped_all: false,
        is_childless: false,
        is_closed: false,
        is_over: false,
    };
    watch.until_done(&received);
    Ok(())
}

/// Passes the CLI's standard input and the command to the guard. The guard inherits the output, but
/// its own input is the socket.
pub fn pass_command(mut socket: &UnixStream, command: &[OsString]) -> io::Result<()> {
    let (input, mut space) = (stdin(), [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let (input, mut control) = ([input.as_fd()], SendAncillaryBuffer::new(&mut space));
    control.push(SendAncillaryMessage::ScmRights(&input));
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut control, SendFlags::NOSIGNAL)?;
    let words: Vec<_> = command.iter().map(|word| word.as_bytes()).collect();
    let words = words.join(&0);
    socket.write_all(&words.len().to_le_bytes())?;
    socket.write_all(&words)
}

fn accept_command(mut socket: &UnixStream) -> io::Result<(OwnedFd, Vec<OsString>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut byte, mut control) = ([0], RecvAncillaryBuffer::new(&mut space));
    let message =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    // The system drops a file from a message if this process may not open any more files.
    let input = passed.ok_or(rustix::io::Errno::MFILE)?;
    let mut length = usize::to_le_bytes(0);
    socket.read_exact(&mut length)?;
    let mut words = vec![0; usize::from_le_bytes(length)];
    socket.read_exact(&mut words)?;
    let words = words.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    Ok((input, words.collect()))
}

fn has_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

/// Sends the messages of the CLI as events.
fn listen(socket: UnixStream, events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().spawn(move || {
        let lines = BufReader::new(socket).lines().map_while(Result::ok);
        for word in lines.filter_map(|line| read_word(&line)) {
            if events.send(Event::Word(word)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Closed);
    })?;
    Ok(())
}

/// Sends the changes of all children as events, until no child is left.
fn follow_children(events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().spawn(move || {
        while let Some((process, change)) = await_change() {
            if events.send(Event::Changed(process, change)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Childless);
    })?;
    Ok(())
}

impl Watch {
    fn until_done(mut self, received: &Receiver<Event>) {
        loop {
            let event = match self.next_look() {
                Some(at) => received.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => received.recv().map_err(Into::into),
            };
            match event {
                Ok(Event::Word(Word::Done)) => return,
                Ok(Event::Word(word)) => self.on(word),
                Ok(Event::Changed(process, change)) => self.note(process, change),
                Ok(Event::Childless) => self.is_childless = true,
                Ok(Event::Closed) => {
                    self.is_closed = true;
                    self.end();
                }
                Err(RecvTimeoutError::Timeout) if self.kill_at.is_none() => self.time_is_up(),
                Err(_) => {}
            }
            self.look();
            if self.is_closed && (self.is_over || self.family.is_none()) {
                return;
            }
        }
    }

    fn next_look(&self) -> Option<Instant> {
        match self.kill_at {
            Some(_) if self.is_over => None,
            Some(_) => Some(Instant::now() + SHORT_PAUSE),
            None => self.needed_at,
        }
    }

    fn on(&mut self, word: Word) {
        let now = Instant::now();
        match word {
            Word::Prepare { token, id } => {
                let report = match self.prepare(token, &id) {
                    Ok(command) => Report::Prepared(command),
                    Err(error) => Report::Failed(with_remedy(&error)),
                };
                self.send(&report);
            }
            Word::Started(command) => {
                self.family = Some(Family::left_to_cli(command));
                self.learn();
            }
            Word::MayRun(left) => {
                (self.was_stopped, self.needed_at) = (false, Some(now + left));
                self.learn();
                // The CLI itself continues the group of the command.
                if let (true, Some(family)) = (self.has_stopped_all, &self.family) {
                    family.signal_others(Signal::SIGCONT);
                    self.has_stopped_all = false;
                }
            }
            Word::Ending(left) => {
                self.learn();
                self.kill_at = Some(now + left);
                self.is_over = false;
                if let Some(family) = &self.family {
                    family.terminate_others();
                }
            }
            Word::Done => {}
        }
    }

    fn prepare(&mut self, token: u64, id: &str) -> io::Result<Pid> {
        let command = prepare(&self.command, token, id)?;
        let this = Pid::from_raw(getpid().as_raw_nonzero().get());
        self.family = Some(Family::below(this, command));
        follow_children(self.events.clone())?;
        Ok(command)
    }

    fn note(&mut self, process: Pid, change: Change) {
        if self.family.as_ref().is_some_and(|family| family.command == process) {
            self.is_stopped = matches!(change, Change::Stopped(_));
            self.send(&Report::Changed(change));
        }
    }

    /// Ends the command when its time is up, because the CLI is stopped or hangs and has not
    /// extended this time. If the command is stopped, stops all its processes instead.
    fn time_is_up(&mut self) {
        let Some(family) = &self.family else { return };
        let is_stopped = self.is_stopped || !self.is_parent() && family.is_stopped();
        if !(is_stopped || self.was_stopped) {
            self.end();
            return;
        }
        // If the command was continued since the last check, the CLI has continued it, and is about
        // to extend the time.
        if is_stopped && !self.was_stopped {
            family.signal(Signal::SIGSTOP);
            self.has_stopped_all = true;
        }
        self.was_stopped = is_stopped;
        self.needed_at = Some(Instant::now() + PAUSE_WHILE_STOPPED);
    }

    fn learn(&mut self) {
        let is_parent = self.is_parent();
        if let Some(family) = self.family.as_mut().filter(|_| !is_parent) {
            family.learn();
        }
    }

    fn is_parent(&self) -> bool {
        self.family.as_ref().is_some_and(|family| family.command != family.root)
    }

    /// Ends the command without the CLI.
    fn end(&mut self) {
        if let (Some(family), None) = (&self.family, self.kill_at) {
            family.terminate();
            self.kill_at = Some(Instant::now() + self.grace);
        }
    }

    /// Checks a command that got SIGTERM.
    fn look(&mut self) {
        let (Some(family), Some(kill_at), false) = (&self.family, self.kill_at, self.is_over)
        else {
            return;
        };
        let now = Instant::now();
        let is_gone = match self.is_parent() {
            true => self.is_childless,
            false => family.is_gone(),
        };
        if !is_gone && now >= kill_at {
            family.signal(Signal::SIGKILL);
            self.kills += 1;
        }
        let is_long =
            |longest| !is_gone && now >= kill_at + longest && self.kills > KILLS_UNTIL_NAMED;
        let names = if is_long(UNTIL_NAMED) { family.names() } else { Vec::new() };
        let left = match names.is_empty() {
            false => Some(names.join(", ")),
            true => is_long(UNTIL_HIDDEN).then(|| "/proc does not show them".to_owned()),
        };
        if let Some(left) = &left {
            let semaphore = env::var(NAME).unwrap_or_default();
            note(format_args!(
                "semaphore {semaphore}: these processes could not be ended, and continue without \
                 a permit: {left}"
            ));
        }
        if is_gone || left.is_some() {
            self.is_over = true;
            self.send(&Report::Over);
        }
    }

    fn send(&self, report: &Report) {
        // The write fails if the CLI has ended.
        let _ = (&self.socket).write_all(format!("{report}\n").as_bytes());
    }
}
