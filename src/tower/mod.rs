//! A layer for HTTP services of tower (axum, hyper, tonic): so many requests at once, over all
//! processes. Feature `tower`.
//!
//! A request acquires a permit when it is called, and holds it until the body of its response has
//! ended or is dropped: as long as it takes anything of what the limit protects. Whoever gets none
//! is answered with 503 and `Retry-After`: when too many wait already, when the wait takes too
//! long, and when Redis is away, since without it nobody knows how many are inside. When the permit
//! is lost before the response, the answer is 503 as well; when it is lost after that, the body
//! ends with [`Error::Lost`](crate::Error::Lost), and the connection is cut.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use redis_semaphore::{Error, Semaphores};
//! use redis_semaphore::tower::SemaphoreLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
//! let reports = semaphores
//!     .semaphore("reports")
//!     .limit(10)
//!     .acquire_timeout(Duration::from_secs(5))
//!     .build()?;
//! let layer = SemaphoreLayer::new(reports).max_waiting(100);
//! // axum: Router::new().route("/report", get(report)).layer(layer)
//! # Ok(())
//! # }
//! ```

mod body;
mod layer;
mod service;

pub use body::LimitedBody;
pub use layer::SemaphoreLayer;
pub use service::Limited;
