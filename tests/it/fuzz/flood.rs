//! Messages that an attacker sends in bulk must neither stay in the client's memory nor delay its
//! waiters.
//!
//! The client runs in a second process of this test program, which has its own memory.

use std::time::Duration;

use redis::Connection;
use redis_semaphore::SemaphoreClient;

use test_support::child::{self, Process, memory};
use test_support::observer::Observer;
use test_support::scripts::{keys_of, part};
use test_support::server::Server;

const NAME: &str = "flooded";
/// No heartbeat is sent during the test, so only a message notifies a waiter of its grant.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3600);
const LARGE: usize = 1 << 16;
const LARGE_MESSAGES: usize = 1_000;
const SMALL_MESSAGES: usize = 10_000;
/// The memory in kB that a client may need for the 64 MB of large messages. A client reads about
/// 128 messages before it handles them.
const MOST: u64 = 32 * 1024;

/// This function is not a test. It is the code of the second process, and does nothing in the first
/// process.
#[tokio::test]
async fn child_process_waits_during_a_flood_of_messages() {
    let Some(url) = child::role() else {
        return;
    };
    let client = SemaphoreClient::builder()
        .heartbeat_timeout(HEARTBEAT_TIMEOUT)
        .connect(&url)
        .await
        .unwrap();
    let semaphore = client.semaphore(NAME).limit(1).build().unwrap();
    let before = memory("VmHWM");
    let permit = semaphore.acquire().await.unwrap();
    child::say(&(memory("VmHWM") - before).to_string());
    permit.release().await.unwrap();
    client.shutdown().await;
    child::say("done");
}

#[tokio::test]
async fn a_flood_of_messages_uses_little_client_memory_and_blocks_no_grant() {
    // The server must not disconnect a client that reads more slowly than other clients publish.
    let server = Server::start_with(&["--client-output-buffer-limit", "pubsub", "0", "0", "0"]);
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let holder = client.semaphore(NAME).limit(1).build().unwrap().acquire().await.unwrap();
    let observer = Observer::new(&server.url(), NAME, 1).await;
    let mut process = Process::start(
        "fuzz::flood::child_process_waits_during_a_flood_of_messages",
        &server.url(),
    );
    observer.sees(1, 1).await;

    let mut stranger = server.connect();
    // The flood runs in its own thread, so that the holder's lease is refreshed during the flood.
    let flood = tokio::task::spawn_blocking(move || flood(&mut stranger));
    flood.await.unwrap();
    holder.release().await.unwrap();
    let grown = process.next().await.expect("the client was granted its permit");
    println!("{LARGE_MESSAGES} large messages, and {SMALL_MESSAGES} small ones: {grown} kB");
    assert!(grown.parse::<u64>().unwrap() < MOST, "the client has grown by {grown} kB");
    assert_eq!(process.next().await.unwrap(), "done");
}

fn flood(stranger: &mut Connection) {
    let waiting: Vec<String> =
        redis::cmd("ZRANGE").arg(&keys_of(NAME)[1]).arg(0).arg(0).query(stranger).unwrap();
    let channel = &format!("sem:wake:{}", part(&waiting[0], 1));
    let mut publish = |message: &[u8]| {
        redis::cmd("PUBLISH").arg(channel).arg(message).exec(stranger).unwrap();
    };
    let line = format!("\nnobody:{:032x} 1 1", 7);
    let readable = [NAME, &line.repeat(LARGE / line.len() - 1)].concat();
    for number in 0..LARGE_MESSAGES {
        match number % 10 {
            0 => publish(readable.as_bytes()),
            1 => publish(&vec![0xff; LARGE]),
            _ => publish(&vec![b'x'; LARGE + number]),
        }
    }
    for _ in 0..SMALL_MESSAGES {
        publish(line.as_bytes());
    }
}
