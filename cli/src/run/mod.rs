//! `run`: a command that runs while this process holds a permit.
//!
//! ```text
//!   tool ----- starts, passes signals on, waits ------> command (a process group)
//!     \                                                    ^
//!      `--- pipe: what goes on ---> guard --- ends it -----'   when the tool is gone
//! ```
//!
//! The command must have ended before the lease has. Where renewals fail, the tool sees to that
//! (`times.rs`), and where the tool is killed or stopped, its guard does.

mod acquire;
mod command;
mod guard;
mod hold;
mod signals;
mod terminal;
mod times;

use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::{io, panic};

use nix::sys::signal::Signal;
use redis_semaphore::{Error, Permit, Semaphores};

use crate::failure::{Failure, LOST};
use crate::options::{Run, Server};
use crate::server::{connect, runtime};
use command::{Ended, Running};
use guard::{Guard, Word};
use hold::{Hold, Outcome};
use signals::{Signals, die_of};
use times::Times;

/// How the tool ends, where nothing failed.
enum End {
    /// As the command did.
    With(Ended),
    Lost,
    /// Of a signal that came while it waited.
    Of(Signal),
}

/// The process of the guard is started while other things take their time.
type Starting = JoinHandle<io::Result<Guard>>;

pub fn run(server: &Server, asked: &Run) -> Result<ExitCode, Failure> {
    let times = Times::of(asked)?;
    let grace = times.grace;
    let guard = thread::spawn(move || Guard::start(grace));
    let runtime = runtime()?;
    let ended = runtime.block_on(connected(server, asked, &times, guard));
    // A name of a host that is still being looked up must not hold this up.
    runtime.shutdown_background();
    Ok(match ended? {
        End::With(ended) => ExitCode::from(ended.status()),
        End::Lost => ExitCode::from(LOST),
        End::Of(signal) => die_of(signal),
    })
}

pub fn guard(grace: &str) -> Result<ExitCode, Failure> {
    let grace = humantime::parse_duration(grace).map_err(Failure::usage)?;
    guard::watch(grace).map_err(Failure::system("signals cannot be listened to"))?;
    Ok(ExitCode::SUCCESS)
}

async fn connected(
    server: &Server,
    asked: &Run,
    times: &Times,
    guard: Starting,
) -> Result<End, Failure> {
    let mut signals =
        Signals::listen().map_err(Failure::system("signals cannot be listened to"))?;
    let connected = tokio::select! {
        connected = connect(server, Semaphores::builder()) => connected.map(Ok),
        signal = signals.next_fatal() => Ok(Err(signal)),
    };
    let mut guard = started(guard)?;
    let ended = match connected {
        Ok(Err(signal)) => Ok(End::Of(signal)),
        Ok(Ok(semaphores)) => {
            let ended = permitted(&semaphores, asked, times, &mut guard, &mut signals).await;
            // What waited leaves the queue.
            semaphores.shutdown().await;
            ended
        }
        Err(failure) => Err(failure),
    };
    guard.end();
    ended
}

fn started(guard: Starting) -> Result<Guard, Failure> {
    let guard = guard.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked));
    guard.map_err(|error| {
        Failure::new(command::NOT_EXECUTABLE, format!("the guard cannot be started: {error}"))
    })
}

async fn permitted(
    semaphores: &Semaphores,
    asked: &Run,
    times: &Times,
    guard: &mut Guard,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let permit = tokio::select! {
        permit = acquire::acquire(semaphores, asked, times) => permit?,
        signal = signals.next_fatal() => return Ok(End::Of(signal)),
    };
    let outcome = match Running::start(asked, &permit) {
        Ok(command) => Ok(Hold::new(&permit, times, command, guard).until_ended(signals).await),
        Err(failure) => Err(failure),
    };
    guard.tell(Word::Done);
    given_back(permit, outcome).await
}

async fn given_back(permit: Permit, outcome: Result<Outcome, Failure>) -> Result<End, Failure> {
    if let Ok(Outcome { was_terminated: true, .. }) = outcome {
        // In the background: there may be nothing to give back, and no server.
        drop(permit);
        return Ok(End::Lost);
    }
    let released = permit.release().await;
    let ended = outcome?.ended;
    match released {
        Err(error @ Error::Lost { .. }) => return Err(error.into()),
        Err(error) => {
            eprintln!("redis-semaphore: {error}: the permit stays taken until its lease ends");
        }
        Ok(()) => {}
    }
    Ok(match ended {
        // A shell's loop ends at ^C only if what it ran has died of that.
        Ended::Killed(signal) if signal == Signal::SIGINT as i32 => End::Of(Signal::SIGINT),
        ended => End::With(ended),
    })
}
