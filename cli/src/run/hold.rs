//! The time from the start of the command to its end: what is passed on to it, and what becomes of
//! it when it is stopped, or the permit is lost.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use redis_semaphore::{Error, Permit};
use tokio::time::{sleep, timeout};

use super::command::{Change, Ended, Running, changes};
use super::guard::Guard;
use super::guard::words::{Report, Word};
use super::job;
use super::signals::Signals;
use super::terminal::Terminal;
use super::times::Times;
use crate::output::note;

/// How long to ask at most whether the permit is still held. Meanwhile no signal is heard.
const PATIENCE: Duration = Duration::from_secs(5);
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(100);
/// From when on the guard kills to its last word, at most.
const UNTIL_OVER: Duration = Duration::from_secs(10);

/// What asks for the end. (SIGHUP may as well have a service read its settings again.)
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// What the command needs all the time.
pub struct Held<'a> {
    /// Of the semaphore.
    pub name: &'a str,
    pub permit: &'a Permit,
    pub times: &'a Times,
    pub guard: &'a mut Guard,
}

pub struct Hold<'a> {
    /// Nothing where the permit was left: then none can be lost.
    held: Option<Held<'a>>,
    command: Running,
    terminal: Option<Terminal>,
    is_stopped: bool,
    /// This process was told to stop, and has told the command.
    is_to_stop: bool,
    /// The same of the end.
    is_to_end: bool,
    /// It has gone on with this process, which is about to hear of the SIGCONT that did that.
    has_gone_on: bool,
    /// This process was sent a SIGINT itself.
    is_interrupted: bool,
    ended: Option<Ended>,
    /// The command was told to end, since the permit was lost, or about to be.
    is_lost: bool,
    /// When to kill what is left of the command.
    kill_at: Option<Instant>,
    /// Nothing of it is left.
    is_over: bool,
}

enum Event {
    Signal(Signal),
    Report(Report),
    Lost,
    Time,
}

/// What became of the command.
pub struct Outcome {
    pub ended: Ended,
    /// It was told to end, since the permit was lost, or about to be.
    pub was_terminated: bool,
    /// It had the terminal, and died of its ^C, of which our own group has not heard.
    pub is_interrupted: bool,
}

impl<'a> Hold<'a> {
    pub fn new(held: Option<Held<'a>>, command: Running) -> Self {
        let terminal = Terminal::open();
        Self {
            held,
            command,
            terminal,
            is_stopped: false,
            is_to_stop: false,
            is_to_end: false,
            has_gone_on: false,
            is_interrupted: false,
            ended: None,
            is_lost: false,
            kill_at: None,
            is_over: false,
        }
    }

    pub async fn until_ended(mut self, signals: &mut Signals) -> Outcome {
        self.to_foreground();
        if self.held.is_some() {
            // Its guard may have been killed just now.
            self.on(Signal::SIGCHLD).await;
            self.look();
            // What was prepared becomes the command.
            self.command.signal(Signal::SIGCONT);
        }
        let ended = loop {
            self.look();
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
        let is_interrupted = had_terminal && ended.is_interrupt() && !self.is_interrupted;
        self.tell(Word::Done);
        Outcome { ended, was_terminated: self.is_lost, is_interrupted }
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

    /// Whether the permit may go, once the command has ended. One that ends by itself may leave
    /// something behind in the background. Where it was killed, told to end, or has no permit any
    /// more, what it has started is ended, too.
    fn is_done(&mut self, ended: Ended) -> bool {
        if self.kill_at.is_none() && (self.is_to_end || matches!(ended, Ended::Killed(_))) {
            self.end_rest();
        }
        let Some(kill_at) = self.kill_at.filter(|_| !self.is_over) else {
            return true;
        };
        let is_late = Instant::now() >= kill_at + UNTIL_OVER;
        if is_late {
            note("the guard does not answer: something of the command may still be there");
        }
        is_late
    }

    fn tell(&mut self, word: Word) {
        if let Some(held) = &mut self.held {
            held.guard.tell(word);
        }
    }

    async fn on(&mut self, signal: Signal) {
        self.is_interrupted |= signal == Signal::SIGINT;
        let is_stop = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU].contains(&signal);
        match signal {
            Signal::SIGCHLD => {
                // The command is among them where its guard was killed, or where there is none.
                for (process, change) in changes() {
                    match process == self.command.group {
                        true => self.note(change).await,
                        false => self.note_other(process, change),
                    }
                }
            }
            // To go on twice would undo a stop in between.
            Signal::SIGCONT if self.has_gone_on => self.has_gone_on = false,
            Signal::SIGCONT => self.go_on().await,
            _ if is_stop && !job::can_stop() && self.command.signal_those_that_catch(signal) => {}
            // What is left to stop is this process: see `stopped`.
            _ if is_stop && self.is_stopped => self.stop().await,
            signal if self.command.is_out_of_reach() => note(format_args!(
                "{signal} is not passed on: the command runs as another user: write `sudo \
                 redis-semaphore run NAME -- COMMAND`"
            )),
            signal => {
                self.is_to_stop |= is_stop;
                self.is_to_end |= ENDS.contains(&signal);
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

    /// The guard is replaced where it was killed, and goes on where it was stopped. Others the
    /// first process of a container inherits.
    fn note_other(&mut self, process: Pid, change: Change) {
        let Some(guard) = self.held.as_mut().map(|held| &mut *held.guard) else { return };
        match change {
            _ if !guard.is(process) => {}
            Change::Stopped(_) => guard.go_on(),
            Change::Continued => {}
            Change::Ended(_) => {
                if guard.replace() {
                    guard.tell(Word::Started(self.command.group));
                    if let Some(at) = self.kill_at {
                        guard.tell(Word::Ending(at.saturating_duration_since(Instant::now())));
                    }
                }
                // How it ended nobody knows: the guard was killed before it could tell.
                if self.ended.is_none() && self.command.is_gone() {
                    self.ended = Some(Ended::Killed(Signal::SIGKILL as i32));
                }
            }
        }
    }

    /// The tool stops, too, so that the shell of the terminal gets on. It goes on with `fg` or
    /// `bg`.
    async fn stopped(&mut self, signal: i32) {
        let wants_terminal = [Signal::SIGTTIN, Signal::SIGTTOU].map(|wants| wants as i32);
        // It may have asked for the terminal just before it got it.
        if self.kill_at.is_some() || wants_terminal.contains(&signal) && self.to_foreground() {
            self.command.signal(Signal::SIGCONT);
            return;
        }
        self.is_stopped = true;
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.command.group);
        } else if !self.is_to_stop {
            // Nobody has it go on at a terminal. The permit is kept.
            return;
        }
        if self.is_to_stop || !job::can_stop() {
            self.stop().await;
        } else {
            // Others of the job have commands to stop, too. This process is told among them.
            job::stop_all();
        }
    }

    /// Where no shell could have the tool go on it is not stopped. Nor may the command be.
    async fn stop(&mut self) {
        self.has_gone_on = job::stop_this_process();
        if !self.has_gone_on {
            // What wants the terminal, and does not get it, would stop again and again.
            sleep(UNTIL_NEXT_TRY).await;
        }
        self.go_on().await;
    }

    /// The command goes on only if it still has the permit.
    async fn go_on(&mut self) {
        self.is_to_stop = false;
        if self.is_stopped && self.kill_at.is_none() {
            if let Some(held) = &self.held {
                // The rest of the lease is for the end of the command, where there is no answer.
                let patience = PATIENCE.min(held.permit.expires_in() / 2);
                let answer = timeout(patience, held.permit.refresh()).await;
                let is_lost = matches!(answer, Ok(Err(Error::Lost { .. })));
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

    /// Answers whether it is for the command now.
    fn to_foreground(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.give_to(self.command.group))
    }

    /// Until the next look.
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
            None => guard.tell(Word::MayRun(times.left_for_guard(permit))),
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
        guard.tell(Word::Ending(grace));
        let reason = match permit.is_lost() {
            true => {
                "the permit was lost (revoked, forgotten by the server, or not renewed while this \
                 tool was stopped)"
            }
            false => "the permit cannot be renewed, and its lease ends soon",
        };
        let fate = match self.command.is_out_of_reach() {
            true => {
                "the command runs as another user, cannot be ended, and goes on without a permit"
            }
            false => "the command is ended",
        };
        // It may have something to say.
        self.to_foreground();
        self.command.terminate();
        // After that: where the terminal stops who writes in the background, it stops us here.
        note(format_args!("semaphore {name}: {reason}: {fate}"));
    }

    /// What goes on without the command.
    fn end_rest(&mut self) {
        let Some(Held { permit, times, guard, .. }) = &mut self.held else { return };
        let grace = times.grace_left(permit);
        self.kill_at = Some(Instant::now() + grace);
        guard.tell(Word::Ending(grace));
    }
}
