//! Sends forged messages to a client with real waiters, as an attacker that knows the client's
//! channel could.

use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Connection;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinHandle;

use super::Plan;
use super::forgeries::{Known, message};
use super::shown;
use test_support::observer::{Observer, in_time};
use test_support::scripts::{keys_of, part};
use test_support::server::Server;

const NAMES: [&str; 2] = ["first", "second"];
const WAITERS: u64 = 5;
/// The number of forged messages between two real messages.
const ROUND: u64 = 100;
/// No heartbeat is sent during the test, so only a message notifies a waiter of its grant.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn forged_messages_grant_no_permit_and_block_no_grant() {
    let plan = Plan::read(4_000);
    let mut random = Rng::with_seed(plan.seed);
    let mut scene = Scene::set().await;
    let mut published = 0;
    for round in 0_usize.. {
        if published >= plan.cases {
            break;
        }
        let last = scene.forge(&mut random);
        published += ROUND;
        if let Err(problem) = scene.hand_off(round % 2).await {
            let last: Vec<_> = last.iter().map(|message| shown(message)).collect();
            panic!(
                "{problem}\nafter {published} messages, the last of them:\n{}\nAgain: FUZZ_SEED={}",
                last.join("\n"),
                plan.seed
            );
        }
    }
    println!("{published} forged messages, {} true ones", scene.known.messages.len());
}

struct Scene {
    _server: Server,
    stranger: Connection,
    /// A connection that receives the same messages as the client.
    tap: Connection,
    channel: String,
    known: Known,
    places: Vec<Place>,
}

/// A semaphore whose only permit is held, and the waiters for this permit.
struct Place {
    semaphore: Semaphore,
    observer: Observer,
    holder: Option<Permit>,
    waiting: FuturesUnordered<JoinHandle<Result<Permit, Error>>>,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start();
        let client = SemaphoreClient::builder()
            .heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .connect(&server.url())
            .await
            .unwrap();
        let mut places = Vec::new();
        for name in NAMES {
            let semaphore = client.semaphore(name).limit(1).build().unwrap();
            let observer = Observer::new(&server.url(), name, 1).await;
            let holder = Some(semaphore.acquire().await.unwrap());
            let mut place = Place { semaphore, observer, holder, waiting: FuturesUnordered::new() };
            for _ in 0..WAITERS {
                place.wait().await;
            }
            places.push(place);
        }
        let mut stranger = server.connect();
        let first = redis::cmd("ZRANGE").arg(&keys_of(NAMES[0])[1]).arg(0).arg(0).clone();
        let waiting: Vec<String> = first.query(&mut stranger).unwrap();
        let channel = format!("sem:wake:{}", part(&waiting[0], 1));
        let mut tap = server.connect();
        let subscribe = redis::cmd("SUBSCRIBE").arg(&channel).get_packed_command();
        tap.send_packed_command(&subscribe).unwrap();
        tap.recv_response().unwrap();
        let known = Known { names: NAMES.map(str::to_owned).to_vec(), ..Known::default() };
        Self { _server: server, stranger, tap, channel, known, places }
    }

    fn forge(&mut self, random: &mut Rng) -> Vec<Vec<u8>> {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.stranger).unwrap();
        self.known.token = seconds * 1_000_000 + micros;
        self.known.ends = (seconds * 1_000) as i64 + 60_000;
        let messages: Vec<_> = (0..ROUND).map(|_| message(random, &self.known)).collect();
        let mut pipeline = redis::pipe();
        for message in &messages {
            pipeline.cmd("PUBLISH").arg(&self.channel).arg(message).ignore();
        }
        pipeline.exec(&mut self.stranger).unwrap();
        self.received();
        messages
    }

    /// Checks that a real message after the forged messages grants the permit to the next waiter
    /// only.
    async fn hand_off(&mut self, place: usize) -> Result<(), String> {
        let granted = self.places[place].hand_off().await?;
        let message = self.received();
        self.known.granted.push(granted);
        self.known.messages.extend(message);
        self.known.waiting.clear();
        for place in &mut self.places {
            place.expect_nobody_else()?;
            let waiters = place.observer.look().await.waiters;
            self.known.waiting.extend(waiters.into_iter().map(|waiter| waiter.id));
        }
        Ok(())
    }

    /// Returns the messages published since the previous call.
    fn received(&mut self) -> Vec<Vec<u8>> {
        const END: &[u8] = b"that is all";
        redis::cmd("PUBLISH").arg(&self.channel).arg(END).exec(&mut self.stranger).unwrap();
        let mut received = Vec::new();
        loop {
            let message = self.tap.recv_response().unwrap();
            let (_, _, text): (String, String, Vec<u8>) = redis::from_redis_value(message).unwrap();
            if text == END {
                return received;
            }
            received.push(text);
        }
    }
}

impl Place {
    async fn wait(&mut self) {
        let queued = self.observer.look().await.queued;
        let semaphore = self.semaphore.clone();
        self.waiting.push(tokio::spawn(async move { semaphore.acquire().await }));
        self.observer.sees(1, queued + 1).await;
    }

    /// Releases the permit, which the next waiter gets. Returns the ID of that waiter.
    async fn hand_off(&mut self) -> Result<String, String> {
        let before = self.observer.look().await;
        let next = before.waiters[0].id.clone();
        let holder = self.holder.take().unwrap();
        holder.release().await.map_err(|e| e.to_string())?;
        let permit = in_time("the next turn", self.waiting.next()).await.unwrap();
        let permit = permit.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let now = self.observer.look().await;
        // A forged message may cause the client to send a request again, so the token may be larger
        // than the next number.
        let numbers = before.last_token + 1..=now.last_token;
        let (id, token) = (permit.id(), permit.fencing_token());
        if id != next || now.holders[0].id != next || !numbers.contains(&token) {
            return Err(format!("{id} has {token}, the server knows of {next} and {now:?}"));
        }
        self.holder = Some(permit);
        self.wait().await;
        Ok(next)
    }

    fn expect_nobody_else(&mut self) -> Result<(), String> {
        match self.waiting.next().now_or_never() {
            None => Ok(()),
            Some(outcome) => Err(format!("a waiter that was not granted a permit has {outcome:?}")),
        }
    }
}
