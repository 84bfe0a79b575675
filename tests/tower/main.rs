//! Tests the layer for HTTP services with real servers, real clients and several processes.

mod logs;
mod processes;

use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::{StreamExt, stream};
use nix::sys::signal::Signal;
use redis_semaphore::tower::SemaphoreLayer;
use redis_semaphore::{PermitWatch, Semaphore, SemaphoreBuilder, SemaphoreClient};
use reqwest::{Method, StatusCode};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tower_http::cors::CorsLayer;

use crate::processes::{Example, Reports, most_inside};
use test_support::observer::Observer;
use test_support::server::{Server, shared_url, unique_name};

/// Returns a client whose timeout includes the body.
fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap()
}

/// Sends a load of requests to two processes, and returns the largest number of concurrent
/// requests.
async fn load(limit: &str) -> u32 {
    const REQUESTS: usize = 200;
    let name = unique_name();
    let services = [Reports::start(&name, limit).await, Reports::start(&name, limit).await];
    let client = client();
    let get = |n: usize| {
        let request = client.get(&services[n % 2].url);
        async move {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.text().await.unwrap(), "a page\n".repeat(3));
        }
    };
    stream::iter((0..REQUESTS).map(get)).buffer_unordered(40).collect::<()>().await;
    most_inside(&name)
}

#[tokio::test]
async fn two_processes_never_handle_more_requests_at_once_than_the_limit() {
    assert_eq!(load("3").await, 3);
}

/// Checks that without the layer, the measured number can exceed the limit.
#[tokio::test]
async fn without_the_layer_concurrent_requests_exceed_the_limit() {
    assert!(load("without-a-layer").await > 3);
}

/// Tests two processes of the example `axum`. The semaphore shows which requests hold permits.
#[tokio::test]
async fn the_axum_example_handles_three_requests_at_once_and_shuts_down_cleanly() {
    let redis = Server::start();
    let observer = Observer::new(&redis.url(), "reports", 3).await;
    let [one, other] = [Example::start(&redis.url()).await, Example::start(&redis.url()).await];
    let client = client();
    let get = |example: &Example| tokio::spawn(client.get(&example.url).send());
    let requests: Vec<_> = [&one, &other].into_iter().cycle().take(6).map(get).collect();
    observer.sees(3, 3).await;
    for request in requests {
        let response = request.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.text().await.unwrap(), "a thousand pages\n");
    }
    observer.sees(0, 0).await;

    // After a signal, a request with a permit is completed, and a waiting request is shed.
    let inside = get(&one);
    observer.sees(1, 0).await;
    one.signal(Signal::SIGINT);
    assert_eq!(inside.await.unwrap().unwrap().status(), StatusCode::OK);
    assert!(one.ended().await.success());
    let semaphores = SemaphoreClient::connect(&redis.url()).await.unwrap();
    let all = semaphores.semaphore("reports").limit(3).build().unwrap();
    let all = all.acquire_many(3).await.unwrap();
    let waiting = get(&other);
    observer.sees(3, 1).await;
    other.signal(Signal::SIGTERM);
    let shed = waiting.await.unwrap().unwrap();
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(other.ended().await.success());
    all.release().await.unwrap();
}

async fn watched(Extension(watch): Extension<PermitWatch>) -> String {
    format!("{}", watch.is_held())
}

/// A service in this process. Each response of the service continues until the test ends the
/// response.
struct Service {
    client: reqwest::Client,
    url: String,
    observer: Observer,
    /// Sends a page to the oldest open response. `None` ends that response.
    pages: mpsc::Sender<Option<&'static str>>,
    semaphores: SemaphoreClient,
}

impl Service {
    async fn start(
        redis: &str,
        build: fn(SemaphoreBuilder) -> SemaphoreBuilder,
        layer: fn(Semaphore) -> SemaphoreLayer,
    ) -> Self {
        let semaphores = SemaphoreClient::builder()
            .response_timeout(Duration::from_millis(500))
            .outage_tolerance(Duration::from_millis(500))
            .connect(redis)
            .await
            .unwrap();
        Self::of(semaphores, build, layer).await
    }

    async fn of(
        semaphores: SemaphoreClient,
        build: fn(SemaphoreBuilder) -> SemaphoreBuilder,
        layer: fn(Semaphore) -> SemaphoreLayer,
    ) -> Self {
        let semaphore = build(semaphores.semaphore(unique_name()).limit(1)).build().unwrap();
        let (pages, its) = mpsc::channel::<Option<&'static str>>(10);
        let its = std::sync::Arc::new(tokio::sync::Mutex::new(its));
        let respond = move || {
            let pages = stream::unfold(its, |its| async {
                let page = its.lock().await.recv().await.flatten()?;
                Some((Ok::<_, std::io::Error>(page), its))
            });
            async { Body::from_stream(pages) }
        };
        let app = Router::new()
            .route("/", get(respond))
            .route("/silent", get(std::future::pending::<()>))
            .route("/watched", get(watched))
            .layer(layer(semaphore.clone()));
        let (client, observer) = (client(), Observer::of(semaphore));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { client, url, observer, pages, semaphores }
    }

    async fn get(&self) -> reqwest::Response {
        self.client.get(&self.url).send().await.unwrap()
    }

    fn begin(&self, path: &str) -> JoinHandle<reqwest::Result<reqwest::Response>> {
        tokio::spawn(self.client.get(format!("{}{path}", self.url)).send())
    }

    async fn sees(&self, held: u64, queued: u64) {
        self.observer.sees(held, queued).await;
    }
}

fn is_shed(response: &reqwest::Response) -> bool {
    let after = response.headers().get("retry-after").map(|after| after.to_str().unwrap());
    response.status() == StatusCode::SERVICE_UNAVAILABLE && after == Some("7")
}

/// Sets a lease that is longer than any test.
fn with_long_lease(builder: SemaphoreBuilder) -> SemaphoreBuilder {
    builder.lease(Duration::from_secs(600))
}

fn with_short_lease(builder: SemaphoreBuilder) -> SemaphoreBuilder {
    builder.lease(Duration::from_secs(9))
}

fn forget_all_permits(redis: &Server) {
    redis::cmd("FLUSHDB").exec(&mut redis.connect()).unwrap();
}

fn waits(semaphore: Semaphore) -> SemaphoreLayer {
    SemaphoreLayer::new(semaphore).max_waiting(1).retry_after(Duration::from_millis(6001))
}

fn sheds(semaphore: Semaphore) -> SemaphoreLayer {
    SemaphoreLayer::new(semaphore).max_waiting(0).retry_after(Duration::from_secs(7))
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_has_ended() {
    let service = Service::start(&shared_url(), with_long_lease, waits).await;
    let mut response = service.get().await;
    service.sees(1, 0).await;
    service.pages.send(Some("one")).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
    service.sees(1, 0).await;
    service.pages.send(None).await.unwrap();
    assert_eq!(response.chunk().await.unwrap(), None);
    service.sees(0, 0).await;
    service.semaphores.shutdown().await;
}

#[tokio::test]
async fn a_permit_is_released_when_the_http_client_disconnects() {
    let service = Service::start(&shared_url(), with_long_lease, waits).await;
    let response = service.get().await;
    service.sees(1, 0).await;
    let waiting = service.begin("");
    service.sees(1, 1).await;
    // The waiting request ends first, and leaves the queue.
    waiting.abort();
    service.sees(1, 0).await;
    drop(response);
    service.sees(0, 0).await;
}

#[tokio::test]
async fn a_request_is_shed_if_no_request_may_wait() {
    let service = Service::start(&shared_url(), with_long_lease, sheds).await;
    let response = service.get().await;
    assert!(is_shed(&service.get().await));
    drop(response);
    service.sees(0, 0).await;
    assert_eq!(service.get().await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_is_shed_if_the_maximum_number_of_requests_waits() {
    let service = Service::start(&shared_url(), with_long_lease, waits).await;
    let first = service.get().await;
    let waiting = service.begin("");
    service.sees(1, 1).await;
    assert!(is_shed(&service.get().await));
    drop(first);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_is_shed_after_its_acquire_timeout() {
    let impatient = |builder: SemaphoreBuilder| builder.acquire_timeout(Duration::from_secs(1));
    let service = Service::start(&shared_url(), impatient, waits).await;
    let first = service.get().await;
    assert!(is_shed(&service.get().await));
    service.sees(1, 0).await;
    drop(first);
}

#[tokio::test]
async fn every_request_is_shed_while_redis_is_unavailable() {
    for layer in [waits, sheds] {
        let redis = Server::start();
        let service = Service::start(&redis.url(), with_long_lease, layer).await;
        drop(service.get().await);
        service.sees(0, 0).await;
        drop(redis);
        assert!(is_shed(&service.get().await));
    }
}

/// Each request fails early, although the response timeout and the outage tolerance are ten minutes
/// long.
#[tokio::test]
async fn a_request_waits_for_redis_no_longer_than_for_a_permit() {
    for layer in [waits, sheds] {
        let redis = Server::start();
        let long = Duration::from_secs(600);
        let patient = SemaphoreClient::builder().response_timeout(long).outage_tolerance(long);
        let semaphores = patient.connect(&redis.url()).await.unwrap();
        let impatient =
            |builder: SemaphoreBuilder| builder.acquire_timeout(Duration::from_millis(100));
        let service = Service::of(semaphores, impatient, layer).await;
        redis.signal(Signal::SIGSTOP);
        assert!(is_shed(&service.get().await));
    }
}

#[tokio::test]
async fn a_handler_finds_a_watch_of_its_permit() {
    let service = Service::start(&shared_url(), with_long_lease, waits).await;
    let response = service.begin("watched").await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "true");
}

/// Layers of tower-http create responses with an empty body of the type of the layer below.
#[tokio::test]
async fn a_layer_above_responds_without_a_permit() {
    let semaphores = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = semaphores.semaphore(unique_name()).limit(1).build().unwrap();
    let layers = (CorsLayer::permissive(), waits(semaphore.clone()));
    let app = Router::new().route("/", get(async || "a page")).layer(layers);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, app).await });

    let permit = semaphore.acquire().await.unwrap();
    let preflight = client().request(Method::OPTIONS, &url).header("origin", "http://a");
    let response = preflight.header("access-control-request-method", "GET").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.text().await.unwrap(), "");
    permit.release().await.unwrap();
    assert_eq!(client().get(&url).send().await.unwrap().text().await.unwrap(), "a page");
}

#[tokio::test]
async fn a_loss_ends_the_body_with_an_error() {
    let redis = Server::start();
    let service = Service::start(&redis.url(), with_short_lease, waits).await;
    let mut response = service.get().await;
    service.pages.send(Some("one")).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
    forget_all_permits(&redis);
    // The next refresh finds no permit.
    let ended = response.chunk().await;
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn a_request_is_shed_if_its_permit_is_lost_before_the_response() {
    let redis = Server::start();
    let service = Service::start(&redis.url(), with_short_lease, waits).await;
    let response = service.begin("silent");
    service.sees(1, 0).await;
    forget_all_permits(&redis);
    assert!(is_shed(&response.await.unwrap().unwrap()));
}
