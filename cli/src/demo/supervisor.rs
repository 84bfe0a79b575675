//! The supervisor: starts the workers, shows what they do, kills one, and checks what came of it.

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_semaphore::redis::Client;
use redis_semaphore::{Holder, Inspection, Semaphore};
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::demo::crew::{self, Crew};
use crate::demo::history::{History, Kill, Page, Step};
use crate::demo::job::Job;
use crate::demo::moment::Moment;
use crate::demo::plan::{self, LIMIT, PAGES, WORKERS};
use crate::demo::screen::Screen;
use crate::demo::view::View;
use crate::demo::{Result, proof, timeline};
use crate::failure::Failure;
use crate::interruption::interruption;
use crate::output::tell;
use crate::server::options::Server;

/// How often to ask Redis who holds and who waits.
const TICK: Duration = Duration::from_millis(50);
/// Ten seconds are enough on a machine with nothing else to do.
const TOO_LONG: Duration = Duration::from_secs(40);

pub async fn run(server: Server, client: Client) -> Result<ExitCode> {
    // Runs must not meet each other, nor what else is on the server.
    let prefix = format!("{}:demo:{}", server.prefix, Uuid::new_v4());
    let server = Server { prefix, ..server };
    let connected = plan::connect(&server, "supervisor").await;
    let semaphores = connected.map_err(|failure| for_all_runs(failure, &server.prefix))?;
    let semaphore = plan::database_connections(&semaphores)?;
    let job = Job::open(client, &server.prefix).await?;

    // From now on there is something to tidy up.
    let interrupted = interruption()?;
    let (history, screen) = (History::new(), Screen::new());
    let mut run = Run { semaphore, job, history, screen, is_told: false };
    let outcome = run.start_and_watch(&server.prefix, interrupted).await;
    // However it ended, no worker is there any more.
    semaphores.shutdown().await;
    let deleted = run.job.delete_all().await;
    let code = outcome?;
    deleted?;
    Ok(code)
}

/// A right of a user is needed for all runs, and each has a prefix of its own.
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
    /// Whether the permit of the killed worker was seen to come back.
    is_told: bool,
}

impl Run {
    async fn start_and_watch(
        &mut self,
        prefix: &str,
        interrupted: impl Future<Output = u8>,
    ) -> Result<ExitCode> {
        self.screen.say(&format!(
            "{WORKERS} processes work off {PAGES} pages, never more than {LIMIT} of them at once.\n"
        ))?;
        self.job.add_pages().await?;
        let mut crew = Crew::start(prefix)?;
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(TOO_LONG, self.watch(&mut crew)) => {
                outcome.unwrap_or_else(|_| Err(format!("not done within {TOO_LONG:?}").into()))
            }
            signal = interrupted => {
                crew.stop().await;
                tell("\ninterrupted; the workers have ended, too");
                return Ok(ExitCode::from(128 + signal));
            }
        };
        crew.stop().await;
        outcome?;
        crew.check(self.victim())?;
        self.conclude().await
    }

    /// Until all workers have ended.
    async fn watch(&mut self, crew: &mut Crew) -> Result<()> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                report = crew.next_report() => match report {
                    Some(report) => {
                        let (worker, report) = report?;
                        self.history.note(worker, report);
                    }
                    None => return Ok(()),
                },
                _ = ticks.tick() => self.look(crew).await?,
            }
        }
    }

    async fn look(&mut self, crew: &mut Crew) -> Result<()> {
        crew.check(self.victim())?;
        let semaphore = self.semaphore.inspect().await?;
        match self.history.kill {
            None => {
                if let Some((holder, worker, page)) = self.find_victim(&semaphore) {
                    self.kill(crew, holder, worker, page).await?;
                }
            }
            Some(_) => self.tell_of_return()?,
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

    /// A holder that is half-way through one of the long pages, when the run is well under way. So
    /// it will not be gone a moment later, when it is to be killed.
    fn find_victim<'a>(&self, semaphore: &'a Inspection) -> Option<(&'a Holder, usize, u32)> {
        let now = Moment::now();
        let is_half_way = |page: u32, begun| now - begun >= plan::time_for(page) / 2;
        semaphore.holders.iter().find_map(|holder| {
            let worker = crew::worker_of(holder.client_name())?;
            let Page { number: page, begun } = self.history.page_of(worker)?;
            let is_victim = page > PAGES / 3 && plan::is_long(page) && is_half_way(page, begun);
            is_victim.then_some((holder, worker, page))
        })
    }

    async fn kill(
        &mut self,
        crew: &mut Crew,
        holder: &Holder,
        worker: usize,
        page: u32,
    ) -> Result<()> {
        let name = crew::name(worker);
        let process = crew.process_id(worker).unwrap_or_default();
        // Who is stopped cannot give anything back: what Redis says then is so when it dies.
        crew.signal(worker, Signal::SIGSTOP)?;
        let asked = Moment::now();
        let semaphore = self.semaphore.inspect().await?;
        let Some(permit) = semaphore.holders.iter().find(|permit| permit.id == holder.id) else {
            // It was quicker. There are other pages.
            return crew.signal(worker, Signal::SIGCONT);
        };
        let at = crew.kill(worker).await?;
        // Its page need not wait for the end of the lease, as it is known to be dead.
        if self.job.put_page_back(&name).await? != Some(page) {
            return Err(format!("{name} had not page {page} when it was killed").into());
        }

        // On a busy machine it did not die at once.
        let lease_left = asked.plus(permit.expires_in) - at;
        self.history.kill = Some(Kill { worker, at, page, lease_left });
        self.note(&format!(
            "{name} (process {process}) killed while it holds a permit, half-way through page {page}"
        ))?;
        self.note(&format!(
            "Redis counts its permit until the lease ends, in {:.2} s; page {page} goes back",
            lease_left.as_secs_f64()
        ))
    }

    fn tell_of_return(&mut self) -> Result<()> {
        // Reports of different workers may arrive a little out of order: wait for the stragglers.
        let long_ago = |step: &Step| Moment::now() - step.at >= TICK;
        match self.history.permit_came_back().filter(long_ago) {
            Some(back) if !self.is_told => {
                self.is_told = true;
                let name = crew::name(back.worker);
                self.note(&format!("the lease has ended; {name}, which waited, has the permit"))
            }
            _ => Ok(()),
        }
    }

    /// The picture at the end, and what it proves.
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

    /// Something that happened just now.
    fn note(&mut self, text: &str) -> Result<()> {
        Ok(self.screen.say(&format!("{:5.1} s  {text}", self.time().as_secs_f64()))?)
    }

    fn time(&self) -> Duration {
        Moment::now() - self.history.began
    }

    fn victim(&self) -> Option<usize> {
        self.history.kill.map(|kill| kill.worker)
    }
}
