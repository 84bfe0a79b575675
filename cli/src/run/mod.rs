//! `run`: a command that runs while this process holds a permit.
//!
//! ```text
//!   tool ----- starts, passes signals on, waits ------> command (a process group)
//!     \                                                    ^
//!      `--- pipe: what goes on ---> guard --- ends it -----'   when the tool is gone
//! ```
//!
//! The command must have ended before the lease has. Where renewals fail, the tool sees to that
//! (`times.rs`), and where the tool is killed or stopped, its guard does. With `--leave` only the
//! start counts: then there is neither a guard nor anything to lose.

mod acquire;
mod command;
mod guard;
mod hold;
mod outages;
mod signals;
mod starter;
mod terminal;
mod times;

use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, panic};

use nix::sys::signal::Signal;
use redis_semaphore::{Error, Permit, Semaphores};
use tokio::time::timeout;

use crate::failure::{Failure, LOST};
use crate::options::Run;
use crate::output::tell;
use crate::server::options::Server;
use crate::server::{block_on, connect};
use command::{Ended, Running};
use guard::Guard;
use hold::{Held, Hold, Outcome};
use signals::{Signals, die_of};
use times::Times;

/// For what this process starts as a part of itself. By its own path there may be another program
/// meanwhile, or none: an upgrade does not wait for those that run.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long to wait for an answer at the end, where it does not matter much.
const PATIENCE: Duration = Duration::from_secs(1);

/// How the tool ends, where nothing failed that is not told yet.
enum End {
    /// As the command did.
    With(Ended),
    Lost,
    /// Of a signal that came while it waited.
    Of(Signal),
    /// What failed is told already.
    Told(ExitCode),
}

/// The process of the guard is started while other things take their time.
type Starting = JoinHandle<io::Result<Guard>>;

pub fn run(server: &Server, asked: &Run) -> Result<ExitCode, Failure> {
    let times = Times::of(asked)?;
    let grace = times.grace;
    let start = || thread::Builder::new().spawn(move || Guard::start(grace));
    let guard = (!asked.leave).then(start).transpose();
    let guard = guard.map_err(Failure::system("a thread cannot be started"))?;
    Ok(match block_on(connected(server, asked, &times, guard))?? {
        End::With(ended) => ExitCode::from(ended.status()),
        End::Lost => ExitCode::from(LOST),
        End::Of(signal) => die_of(signal),
        End::Told(status) => status,
    })
}

pub use outages::listener as outages;
pub use starter::become_command;

pub fn guard(grace: &str) -> Result<ExitCode, Failure> {
    let grace = humantime::parse_duration(grace).map_err(Failure::usage)?;
    guard::watch(grace).map_err(Failure::system("signals cannot be listened to"))?;
    Ok(ExitCode::SUCCESS)
}

async fn connected(
    server: &Server,
    asked: &Run,
    times: &Times,
    guard: Option<Starting>,
) -> Result<End, Failure> {
    let mut signals =
        Signals::listen().map_err(Failure::system("signals cannot be listened to"))?;
    let connected = tokio::select! {
        connected = connect(server, Semaphores::builder()) => connected.map(Ok),
        // Children stay until the guard is known among them.
        signal = signals.next_fatal(|| ()) => Ok(Err(signal)),
    };
    let mut guard = guard.map(started).transpose()?;
    let ended = match connected {
        Ok(Ok(semaphores)) => {
            permitted(semaphores, asked, times, guard.as_mut(), &mut signals).await
        }
        Ok(Err(signal)) => Ok(End::Of(signal)),
        Err(failure) => Err(failure),
    };
    if let Some(guard) = guard {
        guard.end();
    }
    ended
}

fn started(guard: Starting) -> Result<Guard, Failure> {
    let guard = guard.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked));
    guard.map_err(Failure::system("the guard cannot be started"))
}

async fn permitted(
    semaphores: Semaphores,
    asked: &Run,
    times: &Times,
    mut guard: Option<&mut Guard>,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let told = outages::Told::while_this_lives();
    let mut pick_up_children = || {
        for child in command::ended_children() {
            // Others the first process of a container inherits.
            if let Some(guard) = guard.as_mut().filter(|guard| guard.is(child)) {
                guard.replace(times.grace);
            }
        }
    };
    pick_up_children();
    let permit = tokio::select! {
        permit = acquire::acquire(&semaphores, asked, times) => permit.map(Ok),
        signal = signals.next_fatal(pick_up_children) => Ok(Err(signal)),
    };
    drop(told);
    match permit {
        Ok(Ok(permit)) => {
            let command = match guard {
                Some(_) => Running::prepare(asked, &permit),
                None => Running::start(asked, &permit),
            };
            match (command, guard) {
                (Ok(command), Some(guard)) => {
                    let held = Held { name: &asked.name, permit: &permit, times, guard };
                    let outcome = Hold::new(Some(held), command).until_ended(signals).await;
                    given_back(&semaphores, permit, Ok(outcome)).await
                }
                (Ok(command), None) => left(semaphores, permit, command, signals).await,
                // Nothing was started, so nothing counts.
                (Err(failure), _) => given_back(&semaphores, permit, Err(failure)).await,
            }
        }
        Ok(Err(signal)) => {
            leave_queue(&semaphores).await;
            Ok(End::Of(signal))
        }
        Err(failure) => {
            let status = failure.tell();
            leave_queue(&semaphores).await;
            Ok(End::Told(status))
        }
    }
}

/// What waited leaves the queue. That goes out when the wait ends; an answer is not waited for long.
async fn leave_queue(semaphores: &Semaphores) {
    if timeout(PATIENCE, semaphores.shutdown()).await.is_err() {
        tell(
            "redis-semaphore: Redis does not answer: the request leaves the queue when it has not \
             been heard of for a while",
        );
    }
}

/// The command goes on without its permit, which counts its start for a lease from now on.
async fn left(
    semaphores: Semaphores,
    permit: Permit,
    command: Running,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let leaving = permit.leave();
    let leaving = async {
        match leaving.await {
            // However long the command takes, Redis is not needed any more.
            Ok(()) => {
                semaphores.shutdown().await;
                drop(semaphores);
                None
            }
            Err(error) => {
                tell(format_args!(
                    "redis-semaphore: {error}: more commands than the limit may start"
                ));
                Some(semaphores)
            }
        }
    };
    let (outcome, trying) = tokio::join!(Hold::new(None, command).until_ended(signals), leaving);
    if let Some(semaphores) = trying {
        semaphores.shutdown().await;
    }
    Ok(as_command(outcome.ended))
}

async fn given_back(
    semaphores: &Semaphores,
    permit: Permit,
    outcome: Result<Outcome, Failure>,
) -> Result<End, Failure> {
    if let Ok(Outcome { was_terminated: true, .. }) = outcome {
        // There may be nothing to give back, and no server.
        drop(permit);
        let _ = timeout(PATIENCE, semaphores.shutdown()).await;
        return Ok(End::Lost);
    }
    match permit.release().await {
        Err(error @ Error::Lost { .. }) => return outcome.and(Err(error.into())),
        // It was tried for long enough.
        Err(error) => {
            tell(format_args!(
                "redis-semaphore: {error}: the permit stays taken until its lease ends"
            ));
        }
        Ok(()) => semaphores.shutdown().await,
    }
    Ok(as_command(outcome?.ended))
}

fn as_command(ended: Ended) -> End {
    match ended {
        // A shell's loop ends at ^C only if what it ran has died of that.
        ended if ended.is_interrupt() => End::Of(Signal::SIGINT),
        ended => End::With(ended),
    }
}
