//! A process that forks with a connection: both go on from the same memory.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, pipe};
use redis_semaphore::{Semaphore, Semaphores};
use test_support::server::{shared_url, unique_name};

const IDS: usize = 5;

/// Of permits that nobody gives back.
async fn ids(semaphore: &Semaphore) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..IDS {
        let permit = semaphore.acquire().await.unwrap();
        ids.push(permit.id().to_owned());
        std::mem::forget(permit);
    }
    ids
}

/// They share a connection that only one of them may use at a time: the parent goes on when the
/// child has ended.
#[test]
fn after_a_fork_no_id_is_made_twice() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let semaphore = runtime.block_on(async {
        let semaphores = Semaphores::builder().response_timeout(Duration::from_secs(60));
        let semaphores = semaphores.liveness(Duration::from_secs(3600));
        let semaphores = semaphores.connect(&shared_url()).await.unwrap();
        let semaphore = semaphores.semaphore(unique_name()).limit(20).build().unwrap();
        // The limit is declared now.
        semaphore.acquire().await.unwrap().release().await.unwrap();
        semaphore
    });
    let (from_child, to_parent) = pipe().unwrap();
    // SAFETY: the child uses no lock that another thread may hold: the runtime has no other thread,
    // and that of the tests only waits for this one.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            alarm::set(60); // Ends it where it hangs.
            let made = runtime.block_on(ids(&semaphore)).join("\n");
            let written = File::from(to_parent).write_all(made.as_bytes());
            // Nothing is dropped: what the parent has would be closed.
            // SAFETY: it only ends the process.
            unsafe { nix::libc::_exit(i32::from(written.is_err())) }
        }
        ForkResult::Parent { child } => child,
    };
    drop(to_parent);
    let mut of_child = String::new();
    File::from(from_child).read_to_string(&mut of_child).unwrap();
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
    let of_child: Vec<&str> = of_child.lines().collect();
    let of_parent = runtime.block_on(ids(&semaphore));
    assert_eq!((of_child.len(), of_parent.len()), (IDS, IDS));
    assert!(of_parent.iter().all(|id| !of_child.contains(&&**id)), "{of_parent:?} {of_child:?}");
    let held = runtime.block_on(semaphore.inspect()).unwrap().held;
    assert_eq!(held, 2 * IDS as u64);
}
