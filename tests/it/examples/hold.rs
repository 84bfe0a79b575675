use nix::sys::signal::Signal;

use super::{Process, fails, output_of};
use test_support::observer::Observer;
use test_support::server::{shared_admin_url, unique_name};

async fn observe(name: &str, limit: u32) -> Observer {
    Observer::new(&shared_admin_url(), name, limit).await
}

#[tokio::test]
async fn a_try_is_not_granted_while_all_permits_are_held() {
    let name = unique_name();
    let arguments = ["try", &name, "2"];
    let mut holders = [Process::start("hold", &arguments), Process::start("hold", &arguments)];
    for holder in &mut holders {
        holder.reads("granted ").await;
    }
    assert_eq!(output_of("hold", &arguments).await, "not granted\n");
    // The process without a permit left no request in the queue.
    observe(&name, 2).await.sees(2, 0).await;
    holders[0].let_go();
    assert_eq!(holders[0].line().await.as_deref(), Some("released"));
    Process::start("hold", &arguments).reads("granted ").await;
}

#[tokio::test]
async fn a_queue_is_served_in_the_order_of_arrival() {
    let name = unique_name();
    let observer = observe(&name, 1).await;
    let mut processes = Vec::new();
    for waiting in 0..4 {
        processes.push(Process::start("hold", &["queue", &name, "1"]));
        observer.sees(1, waiting).await;
        assert_eq!(processes[waiting as usize].line().await.as_deref(), Some("waiting"));
    }
    let mut last_token = 0;
    for waiting in (0..4).rev() {
        // Only the first of the remaining processes gets a permit.
        let mut first = processes.remove(0);
        let token = first.reads("granted ").await.parse::<u64>().unwrap();
        assert!(token > last_token);
        last_token = token;
        let now = observer.sees(1, waiting).await;
        assert_eq!(
            now.holders[0].client_name().rsplit_once('.').unwrap().1,
            first.child.id().unwrap().to_string()
        );
        first.let_go();
        assert_eq!(first.line().await.as_deref(), Some("released"));
    }
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_stream_outlives_its_lease_and_stops_when_the_permit_is_lost() {
    let name = unique_name();
    let observer = observe(&name, 1).await;
    let mut stream = Process::start("hold", &["stream", &name, "1", "3000"]);
    stream.reads("granted ").await;
    let at_first = observer.look().await.holders[0].id.clone();
    let mut elapsed = 0;
    while elapsed < 7000 {
        let chunk = stream.reads("chunk ").await;
        let (_, time) = chunk.split_once(" after ").unwrap();
        elapsed = time.strip_suffix(" ms").unwrap().parse().unwrap();
    }
    assert_eq!(observer.look().await.holders[0].id, at_first, "after two leases");
    assert_eq!(output_of("hold", &["try", &name, "1"]).await, "not granted\n");

    stream.signal(Signal::SIGSTOP);
    let mut next = Process::start("hold", &["queue", &name, "1"]);
    next.reads("granted ").await;
    stream.signal(Signal::SIGCONT);
    stream.reads("lost").await;
    assert_eq!(stream.line().await, None, "no chunk without the permit");
    observer.sees(1, 0).await;
}

#[tokio::test]
async fn a_wait_for_a_lock_ends_by_timeout_or_when_a_dead_holders_lease_expires() {
    let name = unique_name();
    let mut holder = Process::start("hold", &["lock", &name, "1000", "3000"]);
    holder.reads("granted ").await;
    let refused = output_of("hold", &["lock", &name, "1000", "3000"]).await;
    let waited = refused.strip_prefix("waiting\ntimed out after ").expect(&refused);
    let (milliseconds, position) = waited.split_once(" ms, at position ").unwrap();
    assert!(milliseconds.parse::<u32>().unwrap() >= 1000, "{refused}");
    assert_eq!(position, "1\n");

    let mut next = Process::start("hold", &["lock", &name, "20000", "3000"]);
    let observer = observe(&name, 1).await;
    observer.sees(1, 1).await;
    holder.signal(Signal::SIGKILL);
    next.reads("granted ").await;
    next.let_go();
    next.reads("released").await;
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_message() {
    fails("hold", &[], 2, "Usage: hold").await;
    fails("hold", &["try", "x", "many"], 2, "invalid value 'many' for '<LIMIT>'").await;
    fails("hold", &["queue", "{x}", "1"], 1, "no braces").await;
    fails("hold", &["queue", "x", "0"], 1, "limit").await;
    fails("hold", &["lock", "x", "1000", "1"], 1, "lease").await;
}
