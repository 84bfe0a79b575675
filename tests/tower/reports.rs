//! A service that records in Redis the largest number of concurrent requests of all processes.
//! Usage: `reports NAME LIMIT`, or `reports NAME without-a-layer`. The service ends when its standard
//! input ends.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use futures_util::stream;
use redis::Script;
use redis::aio::MultiplexedConnection;
use redis_semaphore::SemaphoreClient;
use redis_semaphore::tower::SemaphoreLayer;
use tokio::net::TcpListener;

const CHUNKS: u32 = 3;

#[derive(Clone)]
struct Counter {
    redis: MultiplexedConnection,
    name: String,
}

impl Counter {
    async fn add(&mut self, n: i64) {
        let count = "local n = redis.call('HINCRBY', KEYS[1], 'inside', ARGV[1]) \
                     if n > tonumber(redis.call('HGET', KEYS[1], 'most') or 0) then \
                     redis.call('HSET', KEYS[1], 'most', n) end";
        let script = Script::new(count);
        let mut call = script.key(&self.name);
        let () = call.arg(n).invoke_async(&mut self.redis).await.unwrap();
    }
}

#[tokio::main]
async fn main() {
    let [name, limit] = <[String; 2]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
        .expect("a name and a limit");
    let url = std::env::var("REDIS_URL").expect("a server");
    let client = redis::Client::open(url.as_str()).unwrap();
    let redis = client.get_multiplexed_async_connection().await.unwrap();
    let counter = Counter { redis, name: format!("count:{name}") };
    let app = Router::new().route("/report", get(report)).with_state(counter);
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let app = match limit.parse() {
        Ok(limit) => {
            let semaphore = client.semaphore(name).limit(limit).build().unwrap();
            app.layer(SemaphoreLayer::new(semaphore))
        }
        Err(_) => app,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let end =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let ended = async { end.await.map(drop).expect("it reads to the end") };
    axum::serve(listener, app).with_graceful_shutdown(ended).await.unwrap();
    client.shutdown().await;
}

/// Returns a body. The request counts as concurrent until the last chunk.
async fn report(State(mut counter): State<Counter>) -> Body {
    counter.add(1).await;
    Body::from_stream(stream::unfold((counter, 0), |(mut counter, sent)| async move {
        tokio::time::sleep(Duration::from_millis(2)).await; // simulates the work
        if sent == CHUNKS {
            return None;
        }
        if sent + 1 == CHUNKS {
            counter.add(-1).await;
        }
        Some((Ok::<_, Infallible>("a page\n"), (counter, sent + 1)))
    }))
}
