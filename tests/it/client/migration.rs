//! Tests of both migrations in `docs/migrating.md`. In the first migration, permits move from the
//! older design while old and new workers run. In the second migration, each new worker takes a
//! permit and a token of the older design. All workers together never exceed the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, cmd};
use redis_semaphore::{Semaphore, SemaphoreClient};
use tokio::task::{JoinSet, yield_now};

use test_support::observer::{Observer, eventually, in_time};
use test_support::server::{shared_admin_url, shared_url, unique_name};

const PERMITS: u32 = 3;
const WORKERS: u32 = 5;
const PATIENCE_SECONDS: u32 = 20;

#[derive(Default)]
struct Work {
    at_once: AtomicU32,
    most_at_once: AtomicU32,
    old_turns: AtomicU32,
    new_turns: AtomicU32,
    is_over: AtomicBool,
}

impl Work {
    async fn turn(&self, turns: &AtomicU32) {
        self.most_at_once.fetch_max(self.at_once.fetch_add(1, SeqCst) + 1, SeqCst);
        for _ in 0..50 {
            yield_now().await;
        }
        self.at_once.fetch_sub(1, SeqCst);
        turns.fetch_add(1, SeqCst);
    }

    fn assert_safe(&self) {
        let most = self.most_at_once.load(SeqCst);
        assert!((1..=PERMITS).contains(&most), "{most} at once");
    }
}

async fn more(turns: &AtomicU32) {
    let now = turns.load(SeqCst);
    eventually("more turns", async || turns.load(SeqCst), |turns| *turns > now + 20).await;
}

/// The older design: a worker pops a token from a list, and pushes it back.
struct Tokens {
    redis: MultiplexedConnection,
    list: String,
}

impl Tokens {
    /// Connects separately, because each waiter of the older design needs its own connection.
    async fn at(list: &str) -> Self {
        let settings = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(shared_admin_url()).unwrap();
        let redis = client.get_multiplexed_async_connection_with_config(&settings).await.unwrap();
        Self { redis, list: list.to_owned() }
    }

    async fn pop(&mut self) {
        assert!(self.pop_within(0).await);
    }

    /// Returns whether a token was popped within `seconds`. The value 0 means no time limit.
    async fn pop_within(&mut self, seconds: u32) -> bool {
        let mut pop = cmd("BLPOP");
        pop.arg(&self.list).arg(seconds);
        pop.query_async::<Option<(String, String)>>(&mut self.redis).await.unwrap().is_some()
    }

    async fn push(&mut self) {
        let mut push = cmd("RPUSH");
        push.arg(&self.list).arg("token").exec_async(&mut self.redis).await.unwrap();
    }

    async fn count(&mut self) -> u32 {
        cmd("LLEN").arg(&self.list).query_async(&mut self.redis).await.unwrap()
    }
}

async fn old_worker(mut tokens: Tokens, work: Arc<Work>) {
    loop {
        tokens.pop().await;
        work.turn(&work.old_turns).await;
        tokens.push().await;
    }
}

async fn new_worker(semaphore: Semaphore, work: Arc<Work>) {
    while !work.is_over.load(SeqCst) {
        let permit = semaphore.acquire().await.unwrap();
        work.turn(&work.new_turns).await;
        permit.release().await.unwrap();
    }
}

/// Takes a permit, and after the permit a token of the older design. Repeats these steps until the
/// work is over.
async fn worker_with_both(semaphore: Semaphore, mut tokens: Tokens, work: Arc<Work>) {
    while !work.is_over.load(SeqCst) {
        let permit = semaphore.acquire().await.unwrap();
        let has_token = tokens.pop_within(PATIENCE_SECONDS).await;
        assert!(has_token, "no old worker holds a token for long");
        if !permit.is_lost() {
            work.turn(&work.new_turns).await;
        }
        tokens.push().await;
        permit.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_take_an_old_token_and_a_permit_never_exceed_the_limit() {
    let list = unique_name();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(PERMITS).build().unwrap();
    let mut all = Tokens::at(&list).await;
    for _ in 0..PERMITS {
        all.push().await;
    }
    let work = Arc::new(Work::default());
    let (mut old, mut both) = (JoinSet::new(), JoinSet::new());
    for _ in 0..WORKERS {
        old.spawn(old_worker(Tokens::at(&list).await, work.clone()));
        both.spawn(worker_with_both(semaphore.clone(), Tokens::at(&list).await, work.clone()));
    }
    for _ in 0..3 {
        more(&work.old_turns).await;
        more(&work.new_turns).await;
    }
    work.is_over.store(true, SeqCst);
    in_time("the workers with both", both.join_all()).await;
    more(&work.old_turns).await;
    work.assert_safe();
    Observer::of(semaphore).sees(0, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_move_one_by_one_from_the_old_design_without_exceeding_the_limit() {
    let (name, list) = (unique_name(), unique_name());
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(&name).limit(PERMITS).build().unwrap();
    let mut mover = Tokens::at(&list).await;
    for _ in 0..PERMITS {
        mover.push().await;
    }
    semaphore.set_limit(0).await.unwrap();

    let work = Arc::new(Work::default());
    let (mut old, mut new) = (JoinSet::new(), JoinSet::new());
    for _ in 0..WORKERS {
        old.spawn(old_worker(Tokens::at(&list).await, work.clone()));
        new.spawn(new_worker(semaphore.clone(), work.clone()));
    }
    Observer::of(semaphore.clone()).sees(0, WORKERS.into()).await;
    more(&work.old_turns).await;

    for moved in 1..=PERMITS {
        in_time("a token", mover.pop()).await;
        semaphore.set_limit(moved).await.unwrap();
        more(&work.new_turns).await;
        if moved < PERMITS {
            more(&work.old_turns).await;
        }
    }
    assert_eq!(mover.count().await, 0, "all permits have been moved");
    old.shutdown().await;
    assert_eq!(semaphore.clear_limit().await.unwrap(), PERMITS);
    more(&work.new_turns).await;

    work.is_over.store(true, SeqCst);
    in_time("the end", new.join_all()).await;
    work.assert_safe();
}
