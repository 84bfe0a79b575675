//! All processes of the command, also outside its process group: `timeout`, `setsid` and shells
//! with job control create new groups and sessions.

use std::sync::LazyLock;
use std::{fs, thread};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpid, getppid};
use rustix::process::{
    Pid as Process, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::thread::gettid;

/// An upper bound for process IDs: the largest `pid_max` that Linux allows.
const LAST_NUMBER: i32 = 4_194_304;

pub struct Family {
    /// The guard, or the command itself. All descendants of this process belong to the family.
    pub root: Pid,
    /// The command, which is the first process of its group.
    pub command: Pid,
    /// Earlier members and their start times. Their parents may have changed. A guard that started
    /// the command needs no list, because no process escapes from that guard.
    known: Vec<(Pid, u64)>,
    /// The CLI and the start time of the command. `None` unless an earlier guard was killed and the
    /// CLI inherited that guard's children.
    heir: Option<(Pid, u64)>,
}

/// A process, as /proc describes it.
pub struct Entry {
    id: Pid,
    name: String,
    is_alive: bool,
    pub parent: Pid,
    group: Pid,
    /// The start time, which distinguishes processes that reuse an ID.
    started: u64,
}

impl Family {
    pub fn below(root: Pid, command: Pid) -> Self {
        Self { root, command, known: Vec::new(), heir: None }
    }

    /// Returns the family for a guard that replaces another guard.
    pub fn left_to_cli(command: Pid) -> Self {
        let heir = Entry::read(command).map(|(entry, _)| (getppid(), entry.started));
        Self { heir, ..Self::below(command, command) }
    }

    /// Remembers all members, to find them again if they lose their parents.
    pub fn learn(&mut self) {
        if let Some(entries) = self.entries() {
            self.known = entries.into_iter().map(|entry| (entry.id, entry.started)).collect();
        }
    }

    pub fn signal(&self, signal: Signal) {
        // The call fails if the group has ended or belongs to another user.
        let _ = killpg(self.command, signal);
        self.signal_others(signal);
    }

    /// Sends SIGTERM to all members, and continues them in case they are stopped.
    pub fn terminate(&self) {
        let _ = killpg(self.command, Signal::SIGTERM);
        let _ = killpg(self.command, Signal::SIGCONT);
        self.terminate_others();
    }

    /// Sends the signals of `terminate` to the members outside the group of the command.
    pub fn terminate_others(&self) {
        self.signal_others(Signal::SIGTERM);
        self.signal_others(Signal::SIGCONT);
    }

    /// Sends a signal to members outside the group of the command.
    pub fn signal_others(&self, signal: Signal) {
        match self.entries() {
            Some(entries) => {
                let others = entries.iter().filter(|entry| entry.group != self.command);
                others.for_each(|other| other.signal(signal));
            }
            None => {
                let others =
                    children_without_proc().filter(|id| getpgid(Some(*id)) != Ok(self.command));
                others.for_each(|other| {
                    let _ = kill(other, signal);
                });
            }
        }
    }

    pub fn is_gone(&self) -> bool {
        killpg(self.command, None) == Err(Errno::ESRCH)
            && self.entries().is_none_or(|entries| entries.is_empty())
    }

    /// Returns whether the command is stopped. Without /proc, it returns `false`.
    pub fn is_stopped(&self) -> bool {
        Entry::read(self.command).is_some_and(|(_, state)| state == "T")
    }

    /// Returns the remaining members as text.
    pub fn names(&self) -> Vec<String> {
        match self.entries() {
            Some(entries) => entries
                .iter()
                .map(|entry| format!("process {} ({})", entry.id, entry.name))
                .collect(),
            None => children_without_proc().map(|id| format!("process {id}")).collect(),
        }
    }

    /// Returns the members that are alive: descendants of `root`, the group of the command, earlier
    /// members, and processes that the CLI inherited, with their descendants. Returns `None`
    /// without /proc.
    fn entries(&self) -> Option<Vec<Entry>> {
        // The CLI may have other children, which started before the command.
        let is_inherited = |entry: &Entry, (cli, started)| {
            entry.parent == cli && entry.started >= started && entry.id != getpid()
        };
        let is_member = |entry: &Entry| {
            self.known.contains(&(entry.id, entry.started))
                || self.heir.is_some_and(|heir| is_inherited(entry, heir))
        };
        let (mut found, mut rest): (Vec<_>, Vec<_>) = all()?.into_iter().partition(is_member);
        let mut parents: Vec<_> = found.iter().map(|entry| entry.id).collect();
        parents.push(self.root);
        while let Some(parent) = parents.pop() {
            let (children, others) = rest.into_iter().partition(|entry| entry.parent == parent);
            rest = others;
            let children: Vec<Entry> = children;
            parents.extend(children.iter().map(|child| child.id));
            found.extend(children);
        }
        let of_group = |entry: &Entry| entry.group == self.command || entry.id == self.command;
        found.extend(rest.into_iter().filter(of_group));
        found.retain(|entry| entry.is_alive);
        Some(found)
    }
}

/// Returns the processes of a group, or `None` without /proc.
pub fn of_group(group: Pid) -> Option<Vec<Entry>> {
    Some(all()?.into_iter().filter(|entry| entry.group == group).collect())
}

fn all() -> Option<Vec<Entry>> {
    let files = fs::read_dir("/proc").ok()?;
    let ids = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    let all: Vec<_> = ids.filter_map(|id| Some(Entry::read(Pid::from_raw(id))?.0)).collect();
    (!all.is_empty()).then_some(all)
}

/// Whether /proc shows this process under its own ID. Otherwise, /proc belongs to another PID
/// namespace, and is not used.
static IS_PROC_OURS: LazyLock<bool> = LazyLock::new(|| {
    fs::read_link("/proc/self").is_ok_and(|own| own.to_str() == Some(&getpid().to_string()))
});

impl Entry {
    /// Reads an entry and its state.
    pub fn read(id: Pid) -> Option<(Self, String)> {
        if !*IS_PROC_OURS {
            return None;
        }
        let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name of the process may contain any characters.
        let (name, fields) = stat.split_once(" (")?.1.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse().ok().map(Pid::from_raw);
        let state = (*fields.first()?).to_owned();
        let entry = Self {
            id,
            name: name.to_owned(),
            is_alive: state != "Z" && state != "X",
            parent: number(1)?,
            group: number(2)?,
            started: fields.get(19)?.parse().ok()?,
        };
        Some((entry, state))
    }

    /// Returns whether the process has a handler for the signal.
    pub fn catches(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & 1 << (signal as u32 - 1) != 0)
    }

    /// Sends a signal to this process. Another process that reuses the ID gets no signal, unless
    /// the system has no `pidfd_open`.
    pub fn signal(&self, signal: Signal) {
        let Some(process) = Process::from_raw(self.id.as_raw()) else { return };
        let Some(number) = rustix::process::Signal::from_named_raw(signal as i32) else { return };
        match pidfd_open(process, PidfdFlags::empty()) {
            Ok(file) if Self::read(self.id).is_some_and(|(now, _)| now.started == self.started) => {
                // The call fails if the process has ended or belongs to another user.
                let _ = pidfd_send_signal(file, number);
            }
            Err(rustix::io::Errno::NOSYS) => {
                let _ = kill(self.id, signal);
            }
            _ => {}
        }
    }
}

/// Returns the children of this process. Without /proc, the only way to find them is to query each
/// process ID. The system assigns IDs in ascending order, and then starts again at low IDs. So the
/// ID of each child is between the ID of this process and the ID of a new thread.
fn children_without_proc() -> impl Iterator<Item = Pid> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let own = getpid().as_raw();
    let newest = thread::Builder::new().spawn(|| gettid().as_raw_nonzero().get());
    let newest = newest.ok().and_then(|thread| thread.join().ok()).unwrap_or(own);
    let numbers = match newest > own {
        true => (own + 1..=newest).chain(0..=0),
        false => (own + 1..=LAST_NUMBER).chain(0..=newest),
    };
    numbers.filter_map(Process::from_raw).filter_map(move |child| {
        let is_child = waitid(WaitId::Pid(child), options).is_ok_and(|change| change.is_none());
        is_child.then(|| Pid::from_raw(child.as_raw_nonzero().get()))
    })
}
