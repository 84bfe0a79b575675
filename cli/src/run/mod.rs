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
use crate::options::{self, Run, Server};
use crate::server::{connect, runtime};
use command::{Ended, Running};
use guard::Guard;
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

/// The process of the guard is started while others things take their time.
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

pub fn guard(asked: &options::Guard) -> Result<ExitCode, Failure> {
    guard::watch(asked.grace)?;
    Ok(ExitCode::SUCCESS)
}

async fn connected(
    server: &Server,
    asked: &Run,
    times: &Times,
    guard: Starting,
) -> Result<End, Failure> {
    let mut signals = Signals::listen()?;
    let semaphores = tokio::select! {
        connected = connect(server, Semaphores::builder()) => connected?,
        signal = signals.next_fatal() => return Ok(End::Of(signal)),
    };
    let ended = permitted(&semaphores, asked, times, guard, &mut signals).await;
    // What waited leaves the queue.
    semaphores.shutdown().await;
    ended
}

async fn permitted(
    semaphores: &Semaphores,
    asked: &Run,
    times: &Times,
    guard: Starting,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let permit = tokio::select! {
        permit = acquire::acquire(semaphores, asked, times) => permit?,
        signal = signals.next_fatal() => return Ok(End::Of(signal)),
    };
    let mut guard = match guard.join() {
        Ok(guard) => guard.map_err(|error| {
            Failure::new(command::NOT_EXECUTABLE, format!("the guard cannot be started: {error}"))
        })?,
        Err(panicked) => panic::resume_unwind(panicked),
    };
    let outcome = match Running::start(asked, &permit) {
        Ok(command) => {
            Ok(Hold::new(&permit, times, command, &mut guard).until_ended(signals).await)
        }
        Err(failure) => Err(failure),
    };
    guard.tell(guard::Word::Done);
    let ended = given_back(permit, outcome).await;
    guard.end();
    ended
}

async fn given_back(permit: Permit, outcome: Result<Outcome, Failure>) -> Result<End, Failure> {
    let released = match permit.is_lost() {
        // There is nothing to give back, and maybe no server.
        true => Ok(drop(permit)),
        false => permit.release().await,
    };
    let Outcome { ended, was_terminated } = outcome?;
    match released {
        _ if was_terminated => Ok(End::Lost),
        Err(error @ Error::Lost { .. }) => Err(error.into()),
        Err(error) => {
            eprintln!("redis-semaphore: {error}: the permit stays taken until its lease ends");
            Ok(End::With(ended))
        }
        Ok(()) => Ok(match ended {
            // A shell's loop ends at ^C only if what it ran has died of that.
            Ended::Killed(signal) if signal == Signal::SIGINT as i32 => End::Of(Signal::SIGINT),
            ended => End::With(ended),
        }),
    }
}
