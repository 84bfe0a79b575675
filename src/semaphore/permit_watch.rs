//! Seeing a permit end, for whoever does not have it.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::runtime::Timer;
use crate::semaphore::lease::Lease;
use crate::semaphore::term::Term;

/// Tells whether a permit is still held, to whoever has no permit in hand: subtasks, say. From
/// [`Permit::watch`](crate::Permit::watch). Cheap to clone, and may go anywhere.
///
/// It watches only: the permit is given back when the [`Permit`](crate::Permit) is released or
/// dropped, however many watch it. It tells the end in whichever way it comes: by a loss, at the
/// latest at the deadline on this machine's own clock, and as soon as the permit is released,
/// forgotten or dropped, since whoever works on then has no permit either. Nobody needs to poll the
/// permit for that.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let semaphore = client.semaphore(name).limit(1).build()?;
/// # async fn work_on(_part: u32) {}
/// let permit = semaphore.acquire().await?;
/// let mut parts = tokio::task::JoinSet::new();
/// for part in 0..4 {
///     let watch = permit.watch();
///     parts.spawn(async move {
///         tokio::select! {
///             () = work_on(part) => true,
///             () = watch.ended() => false,
///         }
///     });
/// }
/// assert_eq!(parts.join_all().await, [true; 4]);
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PermitWatch {
    token: u64,
    /// Not the lease itself, with which the permit would keep its connections.
    term: watch::Sender<Term>,
    /// The runtime that connected.
    home: Handle,
}

impl PermitWatch {
    pub(crate) fn new(lease: &Lease, home: &Handle) -> Self {
        Self { token: lease.token, term: lease.watch(), home: home.clone() }
    }

    /// Waits until the permit is held no longer: at the latest when its lease has ended on this
    /// machine's monotonic clock. Where no runtime is left to measure time (see
    /// [`SemaphoreClient`](crate::SemaphoreClient#runtimes)), the permit is lost at once.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    ///
    /// # Examples
    ///
    /// See [`PermitWatch`].
    pub async fn ended(&self) {
        let mut term = self.term.subscribe();
        loop {
            let now = Instant::now();
            // From here on no change goes unnoticed.
            let seen = *term.borrow_and_update();
            if seen.is_over_at(now) {
                return;
            }
            let (mut changed, mut timer) = (pin!(term.changed()), Timer::new(seen.ends()));
            let is_measured = poll_fn(|cx| match changed.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => timer.poll(&self.home, cx),
            });
            if !is_measured.await {
                // Nobody is left who can renew it either.
                self.term.send_modify(Term::lose);
            }
        }
    }

    /// Whether the permit is held: neither lost nor given back. Once it is not, it stays so.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let permit = client.semaphore(name).limit(1).build()?.acquire().await?;
    /// let watch = permit.watch();
    /// assert!(watch.is_held());
    /// drop(permit);
    /// assert!(!watch.is_held() && !watch.is_lost());
    /// watch.ended().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_held(&self) -> bool {
        !self.term.borrow().is_over_at(Instant::now())
    }

    /// Whether the permit was lost, and not given back before.
    ///
    /// # Examples
    ///
    /// See [`is_held`](Self::is_held).
    pub fn is_lost(&self) -> bool {
        self.term.borrow().is_lost_at(Instant::now())
    }
}

impl fmt::Debug for PermitWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitWatch").field("fencing_token", &self.token).finish_non_exhaustive()
    }
}
