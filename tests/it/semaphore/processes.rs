//! Tests in which several processes share one semaphore. One process is killed, and another process
//! is stopped for longer than its lease.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use redis_semaphore::{Permit, Semaphore, SemaphoreClient};

use test_support::child::{self, Process, say};
use test_support::observer::Observer;
use test_support::server::{shared_url, unique_name};

/// The lease of processes that are killed or stopped. This lease is short, so that other processes
/// do not wait long.
const SHORT: Duration = Duration::from_millis(1_500);
/// The lease of processes that must not lose a permit on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// An event that a test process prints, one per line.
#[derive(Debug, Clone, PartialEq)]
enum Event {
    Holds {
        from: u128,
    },
    /// The process held a permit for this time, which it measured itself.
    Held {
        from: u128,
        to: u128,
        weight: u64,
    },
    Lost,
    Done,
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

fn parse(line: &str) -> Event {
    let mut words = line.split(' ');
    let kind = words.next().unwrap();
    let mut number = || words.next().unwrap().parse::<u128>().unwrap();
    match kind {
        "holds" => Event::Holds { from: number() },
        "held" => Event::Held { from: number(), to: number(), weight: number() as u64 },
        "lost" => Event::Lost,
        "done" => Event::Done,
        other => panic!("{other}"),
    }
}

fn start(role: &str, name: &str) -> Process {
    Process::start("semaphore::processes::a_process_of_another_test", &format!("{role} {name}"))
}

async fn next(process: &mut Process) -> Event {
    parse(&process.next().await.expect("an event"))
}

/// This is not a test, but the code of the other tests' processes. Without a role, this function
/// does nothing.
#[tokio::test]
async fn a_process_of_another_test() {
    let Some(role) = child::role() else {
        return;
    };
    let (role, name) = role.split_once(' ').unwrap();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let with = |lease| client.semaphore(name).limit(3).lease(lease).build().unwrap();
    match role {
        "hammer" => hammer(&with(LONG)).await,
        "hold" => hold(&with(SHORT), 1).await,
        "hold-all" => hold(&with(SHORT), 3).await,
        "hold-all-for-long" => hold(&with(LONG), 3).await,
        other => panic!("{other}"),
    }
    client.shutdown().await;
    say("done");
}

async fn hammer(semaphore: &Semaphore) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_u32 {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            for turn in 0..25 {
                let weight = (task + turn) % 3 + 1;
                let permit = semaphore.acquire_many(weight).await.unwrap();
                let from = now();
                tokio::task::yield_now().await;
                report_held(from, &permit);
                if turn % 4 == 0 {
                    drop(permit);
                } else {
                    permit.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
}

fn report_held(from: u128, permit: &Permit) {
    say(&format!("held {from} {} {}", now(), permit.weight()));
}

/// Holds a permit until the input ends, and prints a loss.
async fn hold(semaphore: &Semaphore, weight: u32) {
    let permit = semaphore.acquire_many(weight).await.unwrap();
    say(&format!("holds {}", now()));
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    tokio::select! {
        _ = input => {}
        () = permit.lost() => say("lost"),
    }
    drop(permit);
}

/// Returns the largest weight held at one moment, from the intervals of all processes.
fn most_at_once(intervals: &[(u128, u128, u64)]) -> u64 {
    let mut changes: Vec<(u128, i64)> = Vec::new();
    for (from, to, weight) in intervals {
        changes.push((*from, *weight as i64));
        changes.push((*to, -(*weight as i64)));
    }
    // If an end and a start have the same time, the end is sorted before the start. The next holder
    // starts only after the reply to the release.
    changes.sort();
    let mut held = 0;
    let after_each = changes.iter().map(|(_, change)| {
        held += change;
        held
    });
    after_each.max().unwrap_or(0) as u64
}

#[tokio::test]
async fn several_processes_never_hold_more_than_the_limit() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let mut processes: Vec<_> = (0..4).map(|_| start("hammer", &name)).collect();
    let mut intervals = Vec::new();
    for process in &mut processes {
        loop {
            match next(process).await {
                Event::Held { from, to, weight } => intervals.push((from, to, weight)),
                Event::Done => break,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(intervals.len(), 4 * 8 * 25);
    let most = most_at_once(&intervals);
    assert!((1..=3).contains(&most), "{most} held at once");
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_waiter_gets_the_permit_when_the_holder_and_first_waiter_are_killed() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let mut holder = start("hold-all", &name);
    assert!(matches!(next(&mut holder).await, Event::Holds { .. }));
    let head = start("hold", &name);
    observer.sees(3, 1).await;
    let mut third = start("hold", &name);
    observer.sees(3, 2).await;
    head.signal(Signal::SIGKILL);
    holder.signal(Signal::SIGKILL);
    // The holder's lease expires. The connection of the head of the queue is closed, so the head is
    // skipped.
    assert!(matches!(next(&mut third).await, Event::Holds { .. }));
    observer.sees(1, 0).await;
    third.let_go();
    assert_eq!(next(&mut third).await, Event::Done);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_holder_stopped_for_longer_than_its_lease_reports_the_loss() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let mut stopped = start("hold-all", &name);
    assert!(matches!(next(&mut stopped).await, Event::Holds { .. }));
    stopped.signal(Signal::SIGSTOP);
    // Another process gets the permits when the lease has expired.
    let mut other = start("hold-all", &name);
    let Event::Holds { from } = next(&mut other).await else { panic!("not granted") };
    assert_eq!(stopped.said(), None, "a stopped process prints nothing");
    stopped.signal(Signal::SIGCONT);
    assert_eq!(next(&mut stopped).await, Event::Lost);
    assert!(now() > from);
    // The stopped process's release does not affect the other process's permits.
    assert_eq!(next(&mut stopped).await, Event::Done);
    observer.sees(3, 0).await;
    other.let_go();
    assert_eq!(next(&mut other).await, Event::Done);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn processes_are_granted_permits_in_the_order_of_arrival() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let mut processes = Vec::new();
    for queued in 0..4 {
        processes.push(start("hold-all-for-long", &name));
        observer.sees(3, queued).await;
    }
    for turn in 0..processes.len() {
        assert!(matches!(next(&mut processes[turn]).await, Event::Holds { .. }));
        for later in &mut processes[turn + 1..] {
            assert_eq!(later.said(), None, "a later process overtook number {turn}");
        }
        processes[turn].let_go();
        assert_eq!(next(&mut processes[turn]).await, Event::Done);
    }
    observer.sees(0, 0).await;
}
