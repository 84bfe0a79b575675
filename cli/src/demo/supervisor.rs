//! The supervisor: starts the workers, shows their work, kills one of them, and checks the result.

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_semaphore::redis::Client;
use redis_semaphore::{Holder, Inspection, Semaphore};
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::demo::history::{History, Kill, Page, Step};
use crate::demo::job::Job;
use crate::demo::moment::Moment;
use crate::demo::plan::{self, LIMIT, PAGES, WORKERS};
use crate::demo::report::Report;
use crate::demo::screen::Screen;
use crate::demo::view::View;
use crate::demo::{Result, proof, timeline};
use crate::failure::Failure;
use crate::interruption::interruption;
use crate::output::report;
use crate::server::options::Server;
use crate::workers::Crew;

/// The interval between inspections of the semaphore.
const TICK: Duration = Duration::from_millis(50);
/// After this time, the demo is aborted. On an idle machine, the demo takes ten seconds.
const TOO_LONG: Duration = Duration::from_secs(40);

pub async fn run(server: Server, client: Client) -> Result<ExitCode> {
    // Runs must not use the keys of other runs, or of other programs.
    let prefix = format!("{}:demo:{}", server.prefix, Uuid::new_v4());
    let server = Server { prefix, ..server };
    let connected = plan::connect(&server, "supervisor").await;
    let semaphores = connected.map_err(|failure| for_all_runs(failure, &server.prefix))?;
    let semaphore = plan::database_connections(&semaphores)?;
    let job = Job::open(client, &server.prefix).await?;

    // From now on, there are keys to delete, so a signal must not end this process immediately.
    let interrupted = interruption()?;
    let (history, screen) = (History::new(), Screen::new());
    let mut run = Run { semaphore, job, history, screen, is_reported: false };
    let outcome = run.start_and_watch(&server.prefix, interrupted).await;
    // No worker is left now, even if the run has failed.
    semaphores.shutdown().await;
    let deleted = run.job.delete_all().await;
    let code = outcome?;
    deleted?;
    Ok(code)
}

/// Changes advice about a missing right, so that the right is valid for all runs. Each run has its
/// own prefix.
fn for_all_runs(failure: Failure, prefix: &str) -> Failure {
    let base = prefix.rsplit_once(':').map_or(prefix, |(base, _)| base);
    let reason = failure.reason.replace(&format!("~{prefix}:{{*"), &format!("~{base}:*"));
    Failure { reason, ..failure }
}

struct Run {
    semaphore: Semaphore,
    job: Job,
    history: History,
    screen: Screen,
    /// Whether the demo has already reported that the killed worker's permit was granted again.
    is_reported: bool,
}

impl Run {
    async fn start_and_watch(
        &mut self,
        prefix: &str,
        interrupted: impl Future<Output = u8>,
    ) -> Result<ExitCode> {
        self.screen.say(&format!(
            "{WORKERS} processes work on {PAGES} pages, but never more than {LIMIT} at the same \
             time.\n"
        ))?;
        self.job.add_pages().await?;
        let role = |worker| format!("{} {prefix}", plan::name_of(worker));
        let mut crew = Crew::start(WORKERS, role)?;
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(TOO_LONG, self.watch(&mut crew)) => {
                outcome.unwrap_or_else(|_| Err(format!("the demo did not end within {TOO_LONG:?}: \
                                                        check whether Redis or this machine is \
                                                        overloaded").into()))
            }
            signal = interrupted => {
                crew.dismiss().await;
                report("\ninterrupted; all workers have ended");
                return Ok(ExitCode::from(128 + signal));
            }
        };
        crew.dismiss().await;
        outcome?;
        self.conclude().await
    }

    /// Shows the run until all workers have ended.
    async fn watch(&mut self, crew: &mut Crew<Report>) -> Result<()> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                report = crew.next_report() => match report? {
                    Some((worker, report)) => self.history.note(worker, report),
                    None => return Ok(()),
                },
                _ = ticks.tick() => self.look(crew).await?,
            }
        }
    }

    async fn look(&mut self, crew: &mut Crew<Report>) -> Result<()> {
        let semaphore = self.semaphore.inspect().await?;
        match self.history.kill {
            None => {
                if let Some((holder, worker, page)) = self.find_victim(&semaphore) {
                    self.kill(crew, holder, worker, page).await?;
                }
            }
            Some(_) => self.report_return()?,
        }
        let view = View {
            time: self.time(),
            progress: &self.job.progress().await?,
            semaphore: &semaphore,
            history: &self.history,
        };
        let paint = self.screen.paint;
        Ok(self.screen.show(|| view.picture(paint), || view.line())?)
    }

    /// Returns a holder that is at least half-way through a long page, so that the demo can kill
    /// this holder. Pages in the first third of the job do not count.
    fn find_victim<'a>(&self, semaphore: &'a Inspection) -> Option<(&'a Holder, usize, u32)> {
        let now = Moment::now();
        let is_half_way = |page: u32, begun| now - begun >= plan::time_for(page) / 2;
        semaphore.holders.iter().find_map(|holder| {
            let worker = plan::worker_of(holder.client_name())?;
            let Page { number: page, begun } = self.history.page_of(worker)?;
            let is_victim = page > PAGES / 3 && plan::is_long(page) && is_half_way(page, begun);
            is_victim.then_some((holder, worker, page))
        })
    }

    async fn kill(
        &mut self,
        crew: &mut Crew<Report>,
        holder: &Holder,
        worker: usize,
        page: u32,
    ) -> Result<()> {
        let name = plan::name_of(worker);
        let process = crew.process_id(worker).unwrap_or_default();
        // A stopped worker cannot release its permit, so this inspection is still valid when the
        // worker dies.
        crew.signal(worker, Signal::SIGSTOP)?;
        let asked = Moment::now();
        let semaphore = self.semaphore.inspect().await?;
        let Some(permit) = semaphore.holders.iter().find(|permit| permit.id == holder.id) else {
            // The worker released its permit before it was stopped. A later page allows another
            // attempt.
            return crew.signal(worker, Signal::SIGCONT);
        };
        crew.kill(worker).await?;
        let at = Moment::now();
        // The worker is known to be dead, so its page need not wait for the expiry of the lease.
        if self.job.put_page_back(&name).await? != Some(page) {
            return Err(format!("{name} did not have page {page} when it was killed").into());
        }

        // On a busy machine, some time passes between the inspection and the death of the worker.
        let lease_left = asked.plus(permit.expires_in) - at;
        self.history.kill = Some(Kill { worker, at, page, lease_left });
        self.note(&format!(
            "{name} (process {process}) is killed while it holds a permit, half-way through page \
             {page}"
        ))?;
        self.note(&format!(
            "its permit stays taken until its lease expires in {:.2} s; page {page} returns to \
             the list",
            lease_left.as_secs_f64()
        ))
    }

    fn report_return(&mut self) -> Result<()> {
        // Reports of different workers may arrive a little out of order, so this function waits for
        // late reports.
        let long_ago = |step: &Step| Moment::now() - step.at >= TICK;
        match self.history.permit_came_back().filter(long_ago) {
            Some(back) if !self.is_reported => {
                self.is_reported = true;
                let name = plan::name_of(back.worker);
                self.note(&format!("the lease has expired; {name}, which waited, gets the permit"))
            }
            _ => Ok(()),
        }
    }

    /// Prints the timeline and the proofs.
    async fn conclude(&mut self) -> Result<ExitCode> {
        let paint = self.screen.paint;
        let time = self.history.ended() - self.history.began;
        let mut lines = vec![String::new()];
        lines.extend(timeline::draw(&self.history, paint));
        lines.push(String::new());

        let proofs = proof::all(&self.history, &self.job.done_pages().await?);
        for proof in &proofs {
            let sign = if proof.is_true { paint.green("✓") } else { paint.red("✗ FAILED:") };
            lines.push(format!("{sign} {}", proof.text));
        }
        lines.push(format!("  total time {:.1} s", time.as_secs_f64()));
        self.screen.say(&lines.join("\n"))?;

        let all_are_true = proofs.iter().all(|proof| proof.is_true);
        Ok(if all_are_true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Prints something that happened just now.
    fn note(&mut self, text: &str) -> Result<()> {
        Ok(self.screen.say(&format!("{:5.1} s  {text}", self.time().as_secs_f64()))?)
    }

    fn time(&self) -> Duration {
        Moment::now() - self.history.began
    }
}
