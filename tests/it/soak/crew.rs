//! The client processes, as the test run sees them. Each process runs this test program, with
//! parameters in the environment.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ROLE;
use super::client::{MARK, Orders};
use super::history::{ALL, Event, Moment, What, now};
use super::topology::{Address, Names, Topology};

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Reported>>);

#[derive(Default)]
struct Reported {
    events: Vec<Event>,
    last_grants: BTreeMap<(u32, usize), Moment>,
}

impl Log {
    pub fn say(&self, process: u32, what: What) {
        self.add(Event { at: now(), process, what });
    }

    fn add(&self, event: Event) {
        let mut reported = self.0.lock().unwrap();
        if let What::Holds { semaphore, .. } = event.what {
            reported.last_grants.insert((event.process, semaphore), event.at);
        }
        reported.events.push(event);
    }

    /// Returns the events, ordered by time.
    pub fn take(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.0.lock().unwrap().events);
        events.sort_by_key(|event| event.at);
        events
    }

    fn has_counted(&self, process: u32) -> bool {
        let reported = self.0.lock().unwrap();
        let mut events = reported.events.iter().rev();
        events.any(|event| event.process == process && matches!(event.what, What::Counted { .. }))
    }

    pub fn last_grants(&self) -> BTreeMap<(u32, usize), Moment> {
        self.0.lock().unwrap().last_grants.clone()
    }
}

/// The inputs of the processes. A process ends when its input is closed.
#[derive(Clone, Default)]
struct Inputs(Arc<Mutex<BTreeMap<u32, ChildStdin>>>);

impl Inputs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, ChildStdin>> {
        self.0.lock().unwrap()
    }

    /// Offers the permit to two processes. Only one of them can adopt it.
    fn offer(&self, detached: &str) {
        let mut inputs = self.lock();
        for input in fastrand::choose_multiple(inputs.values_mut(), 2) {
            // The process may have died.
            let _ = writeln!(input, "{detached}");
        }
    }
}

pub struct Crew {
    log: Log,
    inputs: Inputs,
    address: Address,
    names: Names,
    seed: u64,
    started: u32,
    processes: BTreeMap<u32, Process>,
}

struct Process {
    child: Child,
    reader: JoinHandle<()>,
}

impl Crew {
    pub fn new(topology: &impl Topology, seed: u64, log: &Log) -> Self {
        let (address, names) = (topology.address(), topology.names());
        let (inputs, started, processes) = Default::default();
        Self { log: log.clone(), inputs, address, names, seed, started, processes }
    }

    pub fn numbers(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    pub fn start_one(&mut self) {
        self.started += 1;
        let process = self.started;
        let (address, names) = (self.address.clone(), self.names.clone());
        let orders = Orders { process, seed: self.seed ^ u64::from(process), address, names };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "soak::child_process_runs_a_soak_client", "--nocapture"])
            .env(ROLE, serde_json::to_string(&orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        self.inputs.lock().insert(process, child.stdin.take().unwrap());
        let output = BufReader::new(child.stdout.take().unwrap());
        let (log, inputs) = (self.log.clone(), self.inputs.clone());
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A killed process may have left an incomplete line.
                let event = line.strip_prefix(MARK).map(serde_json::from_str::<Event>);
                let Some(Ok(event)) = event else { continue };
                if let What::Offers { detached, .. } = &event.what {
                    inputs.offer(detached);
                }
                log.add(event);
            }
        });
        self.processes.insert(process, Process { child, reader });
    }

    /// Kills a process, and starts a new process.
    pub fn kill_one(&mut self, random: &mut fastrand::Rng) {
        let process = *random.choice(&self.numbers()).unwrap();
        self.kill(process);
        self.start_one();
    }

    fn kill(&mut self, process: u32) {
        let mut killed = self.processes.remove(&process).unwrap();
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        self.inputs.lock().remove(&process);
        self.log.say(process, What::Killed);
        killed.reader.join().unwrap();
    }

    pub fn stop(&self, process: u32) {
        self.signal(process, Signal::SIGSTOP);
        self.log.say(process, What::Stopped);
    }

    pub fn go_on(&self, process: u32) {
        self.log.say(process, What::Continued);
        self.signal(process, Signal::SIGCONT);
    }

    fn signal(&self, process: u32, signal: Signal) {
        let child = &self.processes[&process].child;
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }

    /// Closes the inputs of all processes, so that each process ends after its waiting requests
    /// have been granted.
    pub fn dismiss(&mut self) {
        self.inputs.lock().clear();
    }

    pub fn is_gone(&mut self) -> bool {
        let mut children = self.processes.values_mut().map(|process| &mut process.child);
        children.all(|child| child.try_wait().unwrap().is_some())
    }

    pub fn join(&mut self) {
        for (number, mut process) in std::mem::take(&mut self.processes) {
            let status = process.child.wait().unwrap();
            process.reader.join().unwrap();
            let found = |rule: &str, what| {
                self.log.say(ALL, What::Found { rule: rule.to_owned(), what });
            };
            if !status.success() {
                found("errors", format!("process {number}: {status}"));
            }
            if !self.log.has_counted(number) {
                found("metrics", format!("process {number} has not logged its counts"));
            }
        }
    }
}

impl Drop for Crew {
    /// Ends the processes of a test run that failed.
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
