//! `run`: runs a command while this process holds a permit.
//!
//! ```text
//!   CLI <-- socket: messages --> guard -- starts it, waits for it, ends it --> command
//!     \                                                                          ^
//!      `---------------- signals, the terminal (a process group) ----------------'
//! ```
//!
//! The command must end before the lease expires, and so must all processes that it has started. If
//! refreshes fail, the CLI ends these processes (`times.rs`). If the CLI is killed or stopped, its
//! guard ends them (`guard/`). With `--per`, only the start of the command counts. The CLI then
//! uses no guard, and the permit cannot be lost.

mod acquire;
mod command;
mod family;
mod guard;
mod hold;
mod job;
mod label;
pub mod options;
mod outages;
mod release;
mod signals;
mod starter;
mod terminal;
mod times;

use std::io::{IsTerminal, stderr};
use std::panic;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_semaphore::{Error, Permit, SemaphoreClient};
use rustix::process::{getpid, set_child_subreaper};
use tokio::time::timeout;

use crate::failure::{Failure, LOST, with_options};
use crate::output::note;
use crate::server::options::Server;
use crate::server::{block_on, connect, read_files};
use command::{Change, Ended, Running};
use guard::Guard;
use hold::{Held, Hold, Outcome};
use options::{OUTAGE_TOLERANCE, Run, with_per};
use signals::{Signals, die_of};
use times::Times;

/// How long the CLI delays its end to wait for a reply that it does not need.
const PATIENCE: Duration = Duration::from_secs(1);

/// How the CLI ends, if no failure is left to report.
enum End {
    /// The CLI exits with the status of the command, as shells report it.
    With(Ended),
    Lost,
    /// The CLI ends by this signal: a signal that arrived during the wait, or SIGINT that ended the
    /// command or interrupted the release.
    Of(Signal),
    /// The CLI ends with this exit status, after a failure that it has already reported.
    Reported(ExitCode),
}

pub fn run(server: &Server, asked: &Run) -> Result<ExitCode, Failure> {
    ended(server, asked).map_err(|failure| asked.own(failure))
}

fn ended(server: &Server, asked: &Run) -> Result<ExitCode, Failure> {
    let times = Times::of(asked)?;
    read_files(server)?;
    let start = || guard::Started::start(asked.clone(), times.grace);
    let guard = asked.per.is_none().then(start).transpose();
    let guard = guard.map_err(Failure::system("cannot start the guard process"))?;
    Ok(match block_on(connected(server, asked, &times, guard))?? {
        End::With(ended) => ExitCode::from(ended.status()),
        End::Lost => ExitCode::from(asked.own_status(LOST)),
        End::Of(signal) => die_of(signal),
        End::Reported(status) => status,
    })
}

pub use outages::listener as outage_listener;
pub use starter::become_command;

pub fn guard(grace: &str) -> Result<ExitCode, Failure> {
    let grace = humantime::parse_duration(grace).map_err(Failure::usage)?;
    guard::watch(grace).map_err(Failure::system("the guard process failed"))?;
    Ok(ExitCode::SUCCESS)
}

async fn connected(
    server: &Server,
    asked: &Run,
    times: &Times,
    guard: Option<guard::Started>,
) -> Result<End, Failure> {
    let mut signals =
        Signals::listen().map_err(Failure::system("cannot install signal handlers"))?;
    let mut guard = guard.map(started).transpose()?;
    let reporting = outages::Reporting::while_this_lives(&asked.name);
    let (began, patience) = (Instant::now(), asked.patience());
    let builder = SemaphoreClient::builder()
        .client_name(label::of(asked))
        .connect_timeout(patience)
        .outage_tolerance(patience.max(OUTAGE_TOLERANCE));
    let connected = tokio::select! {
        connected = connect(server, builder) => connected.map(Ok),
        signal = signals.next_fatal(|| ()) => Ok(Err(signal)),
    };
    let ended = match connected {
        Ok(Ok(client)) => {
            let waits = Waits { reporting, began };
            permitted(client, asked, times, guard.as_mut(), &mut signals, waits).await
        }
        Ok(Err(signal)) => Ok(End::Of(signal)),
        Err(failure) => Err(failure),
    };
    if let Some(guard) = guard {
        guard.end();
    }
    ended
}

/// The state while the CLI connects and waits.
struct Waits {
    reporting: outages::Reporting,
    began: Instant,
}

fn started(guard: guard::Started) -> Result<Guard, Failure> {
    // If the guard is killed, its children become children of this process.
    Guard::of(guard)
        .and_then(|guard| Ok(set_child_subreaper(Some(getpid())).map(|()| guard)?))
        .map_err(Failure::system("cannot start the guard process"))
}

async fn permitted(
    client: SemaphoreClient,
    asked: &Run,
    times: &Times,
    mut guard: Option<&mut Guard>,
    signals: &mut Signals,
    Waits { reporting, began }: Waits,
) -> Result<End, Failure> {
    let mut pick_up_children = || {
        for (child, change) in command::changes() {
            // Other children need no action: this process inherited them, for example as the first
            // process of a container.
            match (change, guard.as_mut().filter(|guard| guard.process() == child)) {
                (Change::Ended(_), Some(guard)) => drop(guard.replace()),
                (Change::Stopped(_), Some(guard)) => guard.go_on(),
                _ => {}
            }
        }
    };
    pick_up_children();
    let permit = tokio::select! {
        permit = acquire::acquire(&client, asked, times, began) => permit.map(Ok),
        signal = signals.next_fatal(pick_up_children) => Ok(Err(signal)),
    };
    // Without a permit, the last message gives the reason.
    let is_reported = matches!(permit, Ok(Ok(_))) && !stderr().is_terminal();
    let _reporting = is_reported.then_some(reporting);
    match permit {
        Ok(Ok(permit)) => {
            let command = match &mut guard {
                Some(guard) => guard.prepare(&permit).await.map(|group| Running { group }),
                None => Running::start(asked, &permit),
            };
            match (command, guard) {
                (Ok(command), Some(guard)) => {
                    let held = Held { name: &asked.name, permit: &permit, times, guard };
                    let outcome = Hold::new(Some(held), command).until_ended(signals).await;
                    let is_interrupted = outcome.as_ref().is_ok_and(|it| it.is_interrupted);
                    let end = given_back(&client, asked, permit, outcome, signals).await;
                    // The signal is sent after the release, because it also reaches this process,
                    // and would shorten the release.
                    if is_interrupted {
                        job::interrupt_all();
                    }
                    end
                }
                (Ok(command), None) => {
                    let_expire(client, &asked.name, permit, command, signals).await
                }
                // No command was started, so the permit is released, and no start counts.
                (Err(failure), _) => {
                    given_back(&client, asked, permit, Err(failure), signals).await
                }
            }
        }
        Ok(Err(signal)) => {
            give_up(&client, asked, unconfirmed).await;
            Ok(End::Of(signal))
        }
        Err(failure) => {
            let status = asked.own(failure).report();
            // The failure already has the reason.
            give_up(&client, asked, no_reply).await;
            Ok(End::Reported(status))
        }
    }
}

/// Leaves the queue, and releases a permit that was granted at the last moment. The calls are sent
/// when the wait ends. This function waits only briefly for the replies.
async fn give_up(client: &SemaphoreClient, asked: &Run, reason: fn() -> String) {
    if timeout(PATIENCE, client.shutdown()).await.is_err() {
        let leaves = match asked.waits() {
            true => "the request leaves the queue after the heartbeat timeout, and ",
            false => "",
        };
        note(format_args!(
            "semaphore {}: {}: {leaves}a permit that was just granted may stay taken until its \
             lease expires",
            asked.name,
            reason()
        ));
    }
}

/// Returns why the outcome of a call is unknown.
fn unconfirmed() -> String {
    outages::reason().unwrap_or_else(no_reply)
}

fn no_reply() -> String {
    format!("no confirmation from Redis within {PATIENCE:?}")
}

/// Does the remaining work with Redis after the command has ended. After a fatal signal, this
/// function waits only briefly for a reply. If no reply arrives, returns the signal. `earlier` is a
/// signal that arrived while the command ran.
async fn unless_signalled<T>(
    signals: &mut Signals,
    earlier: Option<Signal>,
    work: impl Future<Output = T>,
) -> Result<T, Signal> {
    let mut work = pin!(work);
    let signal = match earlier {
        Some(signal) => signal,
        None => tokio::select! {
            done = &mut work => return Ok(done),
            signal = signals.next_fatal(|| ()) => signal,
        },
    };
    timeout(PATIENCE, work).await.map_err(|_| signal)
}

/// Lets the permit expire, so that the start counts for one lease from now on. The command
/// continues without the permit.
async fn let_expire(
    client: SemaphoreClient,
    name: &str,
    permit: Permit,
    command: Running,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let expiring = permit.let_expire();
    let expiring = tokio::spawn(async move {
        match expiring.await {
            // Redis is no longer needed, however long the command takes.
            Ok(()) => {
                client.shutdown().await;
                drop(client);
                None
            }
            Err(error) => {
                let reason = with_per(&with_options(&error.to_string()));
                note(format_args!("{reason}; more commands than the limit may start"));
                Some(client)
            }
        }
    });
    let outcome = Hold::new(None, command).until_ended(signals).await?;
    let to_end = outcome.to_end;
    let given_up = match unless_signalled(signals, to_end, expiring).await {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(trying))) => unless_signalled(signals, to_end, trying.shutdown()).await.err(),
        Ok(Err(error)) => panic::resume_unwind(error.into_panic()),
        Err(signal) => {
            note(format_args!(
                "semaphore {name}: {}; more commands than the limit may start",
                unconfirmed()
            ));
            Some(signal)
        }
    };
    if outcome.is_interrupted {
        job::interrupt_all();
    }
    Ok(as_command(outcome.ended, given_up.filter(|_| to_end.is_none())))
}

async fn given_back(
    client: &SemaphoreClient,
    Run { name, .. }: &Run,
    permit: Permit,
    outcome: Result<Outcome, Failure>,
    signals: &mut Signals,
) -> Result<End, Failure> {
    if let Ok(Outcome { was_terminated: true, .. }) = outcome {
        // The permit may be lost, and the server may be unavailable, so the CLI waits only briefly.
        outages::stop_reporting();
        drop(permit);
        let _ = timeout(PATIENCE, client.shutdown()).await;
        return Ok(End::Lost);
    }
    let to_end = outcome.as_ref().ok().and_then(|outcome| outcome.to_end);
    let released = release::release(client, name, permit);
    let given_up = match unless_signalled(signals, to_end, released).await {
        Ok(Ok(())) => unless_signalled(signals, to_end, client.shutdown()).await.err(),
        Ok(Err(error @ Error::Lost { .. })) => return outcome.and(Err(error.into())),
        // The lease has expired, so there is nothing left to release.
        Ok(Err(error)) => {
            note(format_args!(
                "{}; the release was retried until the lease expired",
                Failure::from(error)
            ));
            None
        }
        Err(signal) => {
            note(format_args!(
                "semaphore {name}: {}: the permit may stay taken until its lease expires",
                unconfirmed()
            ));
            Some(signal)
        }
    };
    Ok(as_command(outcome?.ended, given_up.filter(|_| to_end.is_none())))
}

/// Returns how the CLI ends after the command. If a signal arrived after the end of the command, and
/// made the CLI give up its remaining work, `given_up` is that signal.
fn as_command(ended: Ended, given_up: Option<Signal>) -> End {
    // ^C ends a shell's loop only if the process that the loop runs died of SIGINT.
    match ended.is_interrupt() || given_up == Some(Signal::SIGINT) {
        true => End::Of(Signal::SIGINT),
        false => End::With(ended),
    }
}
