//! What a process keeps of semaphores that it has dropped: nothing, or the numbers of words that are
//! in use without it. It is measured in a process of its own.

use std::process::Command;
use std::time::Duration;

use redis_semaphore::Semaphores;

use test_support::server::{Server, unique_name};

const ROLE: &str = "TEST_DROPS_SEMAPHORES";
const URL: &str = "TEST_DROPS_THEM_AT";
const SEMAPHORES: usize = 10_000;

/// How its permits end.
const RELEASED: &str = "released";
const LEFT: &str = "left";
const PASSED_ON: &str = "passed on";
const DROPPED: &str = "left on drop";

/// What the process has of memory, in KB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Acquires once from each of many semaphores with long leases, and drops them.
async fn drop_semaphores(semaphores: &Semaphores, count: usize, ends: &str) {
    let prefix = unique_name();
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        let lease = Duration::from_secs(60 * 60);
        let builder = semaphores.semaphore(name).limit(1).lease(lease);
        let semaphore = builder.leave_on_drop(ends == DROPPED).build().unwrap();
        let permit = semaphore.acquire().await.unwrap();
        match ends {
            RELEASED => permit.release().await.unwrap(),
            LEFT => permit.leave().await.unwrap(),
            PASSED_ON => drop(permit.into_parts()),
            _ => drop(permit),
        }
    }
}

#[test]
fn dropped_semaphores_leave_nothing() {
    [RELEASED, LEFT, PASSED_ON, DROPPED].into_iter().for_each(leaves_nothing);
}

fn leaves_nothing(ends: &str) {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", "semaphore::kept::a_process_that_drops_semaphores", "--nocapture"]);
    // What is left there stays for an hour.
    let server = Server::start();
    let output = child.env(ROLE, ends).env(URL, server.url()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let grown = text.split("grown by ").nth(1).unwrap().split(' ').next().unwrap();
    let grown: usize = grown.parse().unwrap();
    // A fifth of a kilobyte each would be as much.
    assert!(grown * 1024 / SEMAPHORES < 200, "{ends}: grown by {grown} KB");
}

/// The other process of the test above.
#[tokio::test]
async fn a_process_that_drops_semaphores() {
    let Ok(ends) = std::env::var(ROLE) else { return };
    let semaphores = Semaphores::connect(&std::env::var(URL).unwrap()).await.unwrap();
    drop_semaphores(&semaphores, SEMAPHORES / 10, &ends).await;
    let before = resident();
    drop_semaphores(&semaphores, SEMAPHORES, &ends).await;
    println!("grown by {} KB", resident().saturating_sub(before));
}
