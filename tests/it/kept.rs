//! What a process keeps of semaphores that it has dropped: nothing. It is measured in a process of
//! its own.

use std::process::Command;
use std::time::Duration;

use redis_semaphore::Semaphores;

use crate::support::server::{shared_url, unique_name};

const ROLE: &str = "TEST_DROPS_SEMAPHORES";
const SEMAPHORES: usize = 20_000;

/// What the process has of memory, in KB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Acquires once from each of many semaphores with long leases, and drops them.
async fn drop_semaphores(semaphores: &Semaphores, count: usize) {
    let prefix = unique_name();
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        let lease = Duration::from_secs(60 * 60);
        let semaphore = semaphores.semaphore(name).limit(1).lease(lease).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
    }
}

#[test]
fn dropped_semaphores_leave_nothing() {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", "kept::a_process_that_drops_semaphores", "--nocapture"]);
    let output = child.env(ROLE, "1").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let grown = text.split("grown by ").nth(1).unwrap().split(' ').next().unwrap();
    let grown: usize = grown.parse().unwrap();
    // A fifth of a kilobyte each would be as much.
    assert!(grown * 1024 / SEMAPHORES < 200, "grown by {grown} KB");
}

/// The other process of the test above.
#[tokio::test]
async fn a_process_that_drops_semaphores() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let semaphores = Semaphores::connect(&shared_url()).await.unwrap();
    drop_semaphores(&semaphores, SEMAPHORES / 10).await;
    let before = resident();
    drop_semaphores(&semaphores, SEMAPHORES).await;
    println!("grown by {} KB", resident().saturating_sub(before));
}
