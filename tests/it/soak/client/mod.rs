//! A client process: the tasks of the process acquire permits of the semaphores, and report which
//! permits they believe they hold.

mod own;
mod reporter;
mod set;
mod task;

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{DetachedPermit, SemaphoreClient};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::history::What;
use super::topology::{Address, Names};
use super::{HEARTBEAT_TIMEOUT, KINDS, LEASE, RESPONSE_TIMEOUT, Special, stalls};
use reporter::Reporter;
use set::SetTask;
use task::Task;

use crate::metrics::counted::Counted;

pub use reporter::MARK;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub process: u32,
    pub seed: u64,
    pub address: Address,
    pub names: Names,
}

/// Runs the tasks until the standard input is closed. Each line of the input is a permit that
/// another process offers.
pub fn run(orders: &Orders) {
    let reporter = Reporter::new(orders.process);
    report_panics(&reporter);
    let offers = listen(&reporter);
    let counted = Counted::here();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let stalled = reporter.clone();
        stalls::watch(move |what| stalled.say(what));
        let semaphores = connect(&orders.address, &reporter).await;
        let tasks = tasks(orders, &semaphores, &reporter);
        let mut working = JoinSet::new();
        working.spawn(adopt(offers, tasks.clone()));
        for (number, kind) in KINDS.iter().enumerate() {
            for index in 0..kind.tasks {
                working
                    .spawn(tasks[number].seeded(orders.seed ^ (100 * number + index) as u64).run());
            }
        }
        for index in 0..SetTask::TASKS {
            let seed = orders.seed ^ (100 * KINDS.len() + index) as u64;
            working.spawn(SetTask::new(&tasks, seed).run());
        }
        working.spawn(own::keep_order(semaphores.clone(), reporter.clone()));
        working.join_all().await;
        semaphores.shutdown().await;
    });
    super::counts::reported(&counted, &orders.names).for_each(|counts| reporter.say(counts));
}

fn tasks(orders: &Orders, semaphores: &SemaphoreClient, reporter: &Arc<Reporter>) -> Vec<Task> {
    let task = |(number, name): (usize, &String)| {
        let kind = &KINDS[number];
        let semaphore = semaphores.semaphore(name).limit(kind.limit).lease(LEASE);
        let semaphore =
            semaphore.let_expire_on_drop(kind.special == Special::Leaves).build().unwrap();
        Task::new(semaphore, number, reporter)
    };
    orders.names.iter().enumerate().map(task).collect()
}

fn listen(reporter: &Arc<Reporter>) -> UnboundedReceiver<DetachedPermit> {
    let (sender, offers) = mpsc::unbounded_channel();
    let reporter = reporter.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line.parse().unwrap());
        }
        reporter.ends.send_replace(true);
    });
    offers
}

/// Adopts all offered permits, until the input ends.
async fn adopt(mut offers: UnboundedReceiver<DetachedPermit>, tasks: Vec<Task>) {
    let mut adopting = JoinSet::new();
    while let Some(detached) = offers.recv().await {
        let is_its = |task: &&Task| task.semaphore.name() == detached.name();
        let task = tasks.iter().find(is_its).expect("the permit of a known semaphore").clone();
        adopting.spawn(task.seeded(fastrand::u64(..)).adopt(detached));
    }
    adopting.join_all().await;
}

/// Reports panics, including those in tasks of the crate, which nothing else would report.
fn report_panics(reporter: &Arc<Reporter>) {
    let (reporter, usual) = (reporter.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        let (operation, error) = ("panic".to_owned(), panic.to_string());
        reporter.say(What::Failed { turn: u64::MAX, operation, error, excusable: false });
        usual(panic);
    }));
}

/// Connects. If the server is unavailable, tries again.
async fn connect(address: &Address, reporter: &Reporter) -> SemaphoreClient {
    loop {
        let builder = SemaphoreClient::builder()
            .heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .response_timeout(RESPONSE_TIMEOUT);
        match address.connect(builder).await {
            Ok(semaphores) => return semaphores,
            Err(_) if reporter.ends() => std::process::exit(0),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}
