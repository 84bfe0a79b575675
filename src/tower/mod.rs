//! A tower layer for HTTP services (axum, hyper, tonic). The layer limits the number of concurrent
//! requests over all processes. Requires the feature `tower`.
//!
//! Each request acquires a permit when the service is called. The request holds the permit until
//! the body of its response ends or is dropped. If a request gets no permit, it is shed: the
//! response has status 503 and a `Retry-After` header. A request gets no permit if:
//!
//! - too many requests wait already, and no permit is free
//! - the wait takes too long
//! - Redis is unavailable, because the number of running requests is then unknown
//! - the semaphore is closed, or acquiring fails with another error
//!
//! If Redis is unavailable, the response is sent after the shorter of two times: the semaphore's
//! acquire timeout, and the outage tolerance (default 30 s).
//!
//! If too many requests wait already, a further request does not wait for a permit, but only for
//! the reply of Redis. If Redis is unavailable, too, the response to this request is sent after the
//! shorter of two times: the acquire timeout, and twice the response timeout (default 4 s). With an
//! acquire timeout of zero, no request waits for a permit. The response is then sent after at most
//! twice the response timeout.
//!
//! # When a permit is lost
//!
//! If the permit is lost before the response, the client gets status 503, too, and the handler's
//! future is dropped. If the permit is lost later, the body ends with
//! [`Error::Lost`](crate::Error::Lost) when the server polls the next part of the body. The server
//! then closes the connection or, with HTTP/2, resets the stream. The server polls the body only
//! while its send buffers have room. If a client does not read, the body keeps its resources,
//! although another request may already have been granted a permit. Tasks that the handler has
//! spawned continue, unless they watch the [`PermitWatch`](crate::PermitWatch) in the request's
//! extensions.
//!
//! # Slow clients
//!
//! A permit is held while the client reads the response. To bound this time, set
//! [`max_hold`](crate::SemaphoreBuilder::max_hold), or a time limit in the proxy in front of the
//! server.
//!
//! # Upgraded connections
//!
//! A response with status 101 has no body. The permit of a WebSocket request is therefore released
//! immediately, while the connection continues. Do not put such a route under the layer. Instead,
//! acquire a permit in the handler, move it into the task of the connection, and end the task when
//! the permit is [lost](crate::Permit::lost).
//!
//! # Shutdown
//!
//! 1. Take the process out of the load balancer. Otherwise, connections that the operating system
//!    has accepted are cut without a response when the server stops.
//! 2. [Close](crate::Semaphore::close) the semaphore. Waiting and new requests are shed.
//! 3. Let the server finish its requests. Their permits are still refreshed.
//! 4. [Shut down](crate::SemaphoreClient::shutdown) the client. If you shut down earlier, responses
//!    that take longer than the lease are cut.
//!
//! `examples/axum` shows this order.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use redis_semaphore::{Error, SemaphoreClient};
//! use redis_semaphore::tower::SemaphoreLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
//! let reports = client
//!     .semaphore("reports")
//!     .limit(10)
//!     .acquire_timeout(Duration::from_secs(5))
//!     .build()?;
//! let layer = SemaphoreLayer::new(reports).max_waiting(100);
//! // axum: Router::new().route("/report", get(report)).route_layer(layer)
//! // With axum's `layer` instead of `route_layer`, requests for unknown paths take permits, too.
//! # Ok(())
//! # }
//! ```

mod body;
mod layer;
mod service;

pub use body::LimitedBody;
pub use layer::SemaphoreLayer;
pub use service::Limited;
