//! Holds the permit from the start of the command to its end. Forwards signals, and acts when the
//! command stops or the permit is lost.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use redis_semaphore::{Error, Permit};
use tokio::time::{sleep, timeout};

use super::command::{Change, Ended, Running, changes};
use super::guard::Guard;
use super::guard::words::{Report, Word};
use super::signals::Signals;
use super::starter::DIED_WITH_GUARD;
use super::terminal::Terminal;
use super::times::Times;
use super::{job, outages};
use crate::failure::Failure;
use crate::output::note;

/// The timeout of the check whether the permit is still held. During the check, no signal is
/// handled.
const PATIENCE: Duration = Duration::from_secs(5);
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(100);
/// The longest time from the guard's first SIGKILL to its last report.
const UNTIL_OVER: Duration = Duration::from_secs(10);

/// Signals that ask the command to end. SIGHUP is excluded, because services may reload their
/// settings on SIGHUP.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// The permit, and everything that depends on it.
pub struct Held<'a> {
    pub name: &'a str,
    pub permit: &'a Permit,
    pub times: &'a Times,
    pub guard: &'a mut Guard,
}

pub struct Hold<'a> {
    /// `None` with --per, because such a permit cannot be lost.
    held: Option<Held<'a>>,
    command: Running,
    /// The guard that prepared the command.
    prepared_by: Option<Pid>,
    terminal: Option<Terminal>,
    is_stopped: bool,
    /// This process got a signal to stop, and has forwarded it to the command.
    is_to_stop: bool,
    /// The last signal of `ENDS` that this process got and forwarded to the command.
    to_end: Option<Signal>,
    /// The command was continued together with this process. The SIGCONT that continued this
    /// process is not handled yet.
    has_gone_on: bool,
    /// This process got a SIGINT itself.
    is_interrupted: bool,
    ended: Option<Ended>,
    /// The command got SIGTERM, because the permit was lost or its lease is about to expire.
    is_lost: bool,
    /// When to kill the remaining processes of the command.
    kill_at: Option<Instant>,
    /// No process of the command is left.
    is_over: bool,
}

enum Event {
    Signal(Signal),
    Report(Report),
    Lost,
    Time,
}

pub struct Outcome {
    pub ended: Ended,
    /// The command got SIGTERM, because the permit was lost or its lease was about to expire.
    pub was_terminated: bool,
    /// The command was in the foreground of the terminal and died of ^C, which did not reach the
    /// group of this process.
    pub is_interrupted: bool,
    /// The last signal of `ENDS` that this process got while the command ran.
    pub to_end: Option<Signal>,
}

impl<'a> Hold<'a> {
    pub fn new(held: Option<Held<'a>>, command: Running) -> Self {
        let terminal = Terminal::open();
        Self {
            held,
            command,
            prepared_by: None,
            terminal,
            is_stopped: false,
            is_to_stop: false,
            to_end: None,
            has_gone_on: false,
            is_interrupted: false,
            ended: None,
            is_lost: false,
            kill_at: None,
            is_over: false,
        }
    }

    pub async fn until_ended(mut self, signals: &mut Signals) -> Result<Outcome, Failure> {
        self.begin().await;
        let ended = loop {
            self.look();
            if self.died_with_its_guard() {
                if let Some(signal) = self.to_end {
                    break Ended::Killed(signal as i32);
                }
                self.prepare_again().await?;
                self.begin().await;
            }
            if let Some(ended) = self.ended.filter(|ended| self.is_done(*ended)) {
                break ended;
            }
            match self.next(signals).await {
                Event::Signal(signal) => self.on(signal).await,
                Event::Report(Report::Changed(change)) => self.note(change).await,
                Event::Report(report) => self.is_over |= report == Report::Over,
                Event::Lost => self.terminate(),
                Event::Time => {}
            }
        };
        let terminal = self.terminal.as_ref();
        let had_terminal = terminal.is_some_and(|terminal| terminal.take_from(self.command.group));
        if let (Ended::Killed(_), true, Some(terminal)) = (ended, had_terminal, terminal) {
            terminal.restore();
        }
        let is_interrupted = had_terminal && ended.is_interrupt() && !self.is_interrupted;
        self.send(Word::Done);
        let (was_terminated, to_end) = (self.is_lost, self.to_end);
        Ok(Outcome { ended, was_terminated, is_interrupted, to_end })
    }

    /// Continues the prepared process, which then becomes the command.
    async fn begin(&mut self) {
        self.to_foreground();
        if let Some(Held { guard, .. }) = &self.held {
            self.prepared_by = Some(guard.process());
            // The guard may have been killed just now, so the changes of children are handled
            // first.
            self.on(Signal::SIGCHLD).await;
            self.look();
            self.command.signal(Signal::SIGCONT);
        }
    }

    /// Returns whether the prepared process was killed with its guard before the process became the
    /// command. If the permit is lost, the command is not prepared again.
    fn died_with_its_guard(&self) -> bool {
        let is_replaced = |held: &Held| self.prepared_by != Some(held.guard.process());
        self.ended == Some(Ended::Killed(DIED_WITH_GUARD as i32))
            && self.held.as_ref().is_some_and(is_replaced)
            && !self.is_lost
    }

    async fn prepare_again(&mut self) -> Result<(), Failure> {
        if let Some(Held { permit, guard, .. }) = &mut self.held {
            self.command.group = guard.prepare(permit).await?;
            self.ended = None;
        }
        Ok(())
    }

    async fn next(&mut self, signals: &mut Signals) -> Event {
        let pause = self.pause();
        let Some(Held { permit, guard, .. }) = &mut self.held else {
            return Event::Signal(signals.next().await);
        };
        tokio::select! {
            signal = signals.next() => Event::Signal(signal),
            report = guard.report() => Event::Report(report),
            () = permit.lost(), if !self.is_lost => Event::Lost,
            () = sleep(pause) => Event::Time,
        }
    }

    /// Returns whether the permit may be released after the command has ended. A command that ends
    /// by itself may leave processes in the background. If the command was killed, got a signal to
    /// end, or has lost its permit, the remaining processes are ended first.
    fn is_done(&mut self, ended: Ended) -> bool {
        if self.kill_at.is_none() && (self.to_end.is_some() || matches!(ended, Ended::Killed(_))) {
            self.end_rest();
        }
        let Some(kill_at) = self.kill_at.filter(|_| !self.is_over) else {
            return true;
        };
        let is_late = Instant::now() >= kill_at + UNTIL_OVER;
        if is_late {
            let name = self.held.as_ref().map_or("", |held| held.name);
            note(format_args!(
                "semaphore {name}: the guard does not respond: check whether processes of the \
                 command are left"
            ));
        }
        is_late
    }

    fn send(&mut self, word: Word) {
        if let Some(held) = &mut self.held {
            held.guard.send(word);
        }
    }

    async fn on(&mut self, signal: Signal) {
        self.is_interrupted |= signal == Signal::SIGINT;
        let is_stop = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU].contains(&signal);
        match signal {
            Signal::SIGCHLD => {
                // The command is a child of this process if there is no guard, or if an earlier
                // guard was killed.
                for (process, change) in changes() {
                    match process == self.command.group {
                        true => self.note(change).await,
                        false => self.note_other(process, change),
                    }
                }
            }
            // The command was already continued. A second SIGCONT would undo a later stop.
            Signal::SIGCONT if self.has_gone_on => self.has_gone_on = false,
            Signal::SIGCONT => self.go_on().await,
            _ if is_stop && !job::can_stop() && self.command.signal_those_that_catch(signal) => {}
            // The command is already stopped, so only this process must stop: see `stopped`.
            _ if is_stop && self.is_stopped => self.stop().await,
            signal if self.command.is_out_of_reach() => note(format_args!(
                "{signal} cannot be forwarded, because the command runs as another user: write \
                 `sudo redis-semaphore run NAME -- COMMAND` instead"
            )),
            signal => {
                self.is_to_stop |= is_stop;
                self.to_end = Some(signal).filter(|_| ENDS.contains(&signal)).or(self.to_end);
                self.command.signal(signal);
            }
        }
    }

    async fn note(&mut self, change: Change) {
        match change {
            Change::Ended(ended) => self.ended = Some(ended),
            Change::Stopped(signal) => self.stopped(signal).await,
            Change::Continued => self.is_stopped = false,
        }
    }

    /// Replaces the guard if it was killed, and continues it if it was stopped. Other children need
    /// no action: this process inherited them, for example as the first process of a container.
    fn note_other(&mut self, process: Pid, change: Change) {
        let Some(Held { name, guard, .. }) = &mut self.held else { return };
        match change {
            _ if guard.process() != process => {}
            Change::Stopped(_) => guard.go_on(),
            Change::Continued => {}
            Change::Ended(_) => {
                if guard.replace() {
                    guard.send(Word::Started(self.command.group));
                    if let Some(at) = self.kill_at {
                        guard.send(Word::Ending(at.saturating_duration_since(Instant::now())));
                    }
                }
                if self.ended.is_none() && self.command.is_gone() {
                    self.ended = Some(Ended::unreported(name, self.to_end));
                }
            }
        }
    }

    /// Acts on the stop of the command. Usually stops this process, too, so that the shell gets the
    /// terminal back. `fg` or `bg` continues this process and the command.
    async fn stopped(&mut self, signal: i32) {
        let wants_terminal = [Signal::SIGTTIN, Signal::SIGTTOU].map(|wants| wants as i32);
        // The command may have requested the terminal just before it was moved to the foreground.
        if self.kill_at.is_some() || wants_terminal.contains(&signal) && self.to_foreground() {
            self.command.signal(Signal::SIGCONT);
            return;
        }
        self.is_stopped = true;
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.command.group);
        } else if !self.is_to_stop {
            // Without a terminal, no shell could continue this process. So it does not stop, and
            // keeps the permit.
            return;
        }
        if self.is_to_stop || !job::can_stop() {
            self.stop().await;
        } else {
            // Other processes of the job must stop, too, so the whole job gets a SIGTSTP. This
            // process also gets the signal, and stops when it handles the signal.
            job::stop_all();
        }
    }

    /// Stops this process, and continues the command afterwards. If no shell could continue this
    /// process, neither this process nor the command may stay stopped.
    async fn stop(&mut self) {
        self.has_gone_on = job::stop_this_process();
        if !self.has_gone_on {
            // Without this pause, a command that needs the terminal and does not get it would stop
            // again and again.
            sleep(UNTIL_NEXT_TRY).await;
        }
        self.go_on().await;
    }

    /// Continues the command if it still has the permit.
    async fn go_on(&mut self) {
        self.is_to_stop = false;
        if self.is_stopped && self.kill_at.is_none() {
            if let Some(held) = &self.held {
                // If no reply arrives, the second half of the remaining time is needed to end the
                // command.
                let patience = PATIENCE.min(held.permit.expires_in() / 2);
                let response = timeout(patience, held.permit.refresh()).await;
                let is_lost = matches!(response, Ok(Err(Error::Lost { .. })));
                if is_lost || held.times.left(held.permit).is_zero() {
                    self.terminate();
                    return;
                }
            }
            self.is_stopped = false;
            self.look();
        }
        self.to_foreground();
        self.command.signal(Signal::SIGCONT);
    }

    /// Moves the command to the foreground of the terminal. Returns whether it is in the foreground
    /// now.
    fn to_foreground(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.give_to(self.command.group))
    }

    /// Returns the time until the next check.
    fn pause(&self) -> Duration {
        match (self.kill_at, &self.held) {
            (Some(at), _) => at.saturating_duration_since(Instant::now()).max(UNTIL_NEXT_TRY),
            (None, Some(Held { permit, times, .. })) => times.left(permit).min(times.pause()),
            (None, None) => Duration::MAX,
        }
    }

    fn look(&mut self) {
        let Some(Held { permit, times, guard, .. }) = &mut self.held else {
            return;
        };
        match self.kill_at {
            Some(at) if at <= Instant::now() => self.command.signal(Signal::SIGKILL),
            Some(_) => {}
            None if times.left(permit).is_zero() => self.terminate(),
            None => guard.send(Word::MayRun(times.left_for_guard(permit))),
        }
    }

    fn terminate(&mut self) {
        let Some(Held { name, permit, times, guard }) = &mut self.held else {
            return;
        };
        let name = *name;
        let grace = times.grace_left(permit);
        (self.is_lost, self.is_over) = (true, false);
        self.kill_at = Some(Instant::now() + grace);
        guard.send(Word::Ending(grace));
        let reason = match permit.is_lost() {
            true => "the permit was lost (revoked, lost by the server, or not refreshed while \
                     redis-semaphore was stopped)"
                .to_owned(),
            false => format!(
                "the permit was not refreshed in time ({}), and its lease expires soon",
                outages::refresh_failure(name, times.lease)
            ),
        };
        let fate = match self.command.is_out_of_reach() {
            true => {
                "the command runs as another user, so it cannot be ended and continues without a \
                 permit"
            }
            false => "the command is being ended",
        };
        // In the foreground, the command may still write to the terminal before it ends.
        self.to_foreground();
        self.command.terminate();
        // The note is printed last, because writing to a terminal may block.
        note(format_args!("semaphore {name}: {reason}: {fate}"));
    }

    /// Ends the processes that the command has left behind.
    fn end_rest(&mut self) {
        let Some(Held { permit, times, guard, .. }) = &mut self.held else { return };
        let grace = times.grace_left(permit);
        self.kill_at = Some(Instant::now() + grace);
        guard.send(Word::Ending(grace));
        self.command.terminate();
    }
}
