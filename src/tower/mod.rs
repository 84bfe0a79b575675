//! A layer for HTTP services of tower (axum, hyper, tonic): so many requests at once, over all
//! processes. Feature `tower`.
//!
//! A request acquires a permit when it is called, and holds it until the body of its response has
//! ended or is dropped: as long as it takes anything of what the limit protects. Whoever gets none
//! is answered with 503 and `Retry-After`: when too many wait already, when the wait takes too
//! long, and when Redis is away, since without it nobody knows how many are inside. That answer
//! comes when the semaphore's acquire timeout ends, or twice the response timeout where nobody may
//! wait and that is shorter.
//!
//! # When a permit is lost
//!
//! Before the response, the answer is 503 as well, and what the handler was doing is dropped. After
//! that the body ends with [`Error::Lost`](crate::Error::Lost) when it is asked for its next part,
//! and the connection is cut. The server asks when the client has read what was sent: a body whose
//! client does not read stays, and what it keeps with it, though its permit may be another's by
//! then. What the handler has spawned goes on, too; it finds a [`PermitWatch`](crate::PermitWatch)
//! among the extensions of the request.
//!
//! # Clients that read slowly
//!
//! Their permits are in use for as long as they read.
//! [`max_hold`](crate::SemaphoreBuilder::max_hold) bounds that, as does a limit of time in the
//! server in front.
//!
//! # Connections that are upgraded
//!
//! The answer 101 has no body: the permit of a WebSocket's request is given back at once, while the
//! connection goes on. Do not put such a route under the layer. Let its handler acquire a permit
//! of its own, move it into the task that has the connection, and end that task when the permit is
//! [lost](crate::Permit::lost).
//!
//! # When the service ends
//!
//! [Close](crate::Semaphore::close) the semaphore first: whoever waits is shed, and nobody else
//! comes in. Then let the server finish what is inside, which goes on to be renewed, and [shut
//! down](crate::SemaphoreClient::shutdown) at last, as `examples/axum` does. Shut down first,
//! responses that take longer than the lease are cut. Before all that, take the process out of the
//! load balancer: a connection that the system has taken when the server stops is cut without an
//! answer.
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
//! // With `layer` in its place paths that there are not would take permits, too.
//! # Ok(())
//! # }
//! ```

mod body;
mod layer;
mod service;

pub use body::LimitedBody;
pub use layer::SemaphoreLayer;
pub use service::Limited;
