//! A lease: for how long a permit is held, and may be renewed.
//!
//! It counts from before the request was sent, so it ends here before it ends on the server, and
//! the server's clock is never compared with ours. The server counts in whole ms, from the one in
//! which the request came: see [`lasts`].

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::Hold;
use crate::protocol::millis;
use crate::semaphore::term::Term;

/// How a permit was granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    /// A moment at which it surely was not granted yet: the lease counts from here.
    pub(crate) since: Instant,
}

/// How long a lease of that duration surely is on the server.
pub(crate) fn lasts(duration: Duration) -> Duration {
    Duration::from_millis(millis(duration) - 1)
}

pub(crate) struct Lease {
    pub(crate) token: u64,
    /// When a permit is held no longer, however often it was renewed.
    latest_end: Option<Instant>,
    term: Mutex<Kept>,
    hold: Hold,
}

/// Most permits are never watched, and do without what telling others takes.
enum Kept {
    Alone(Term),
    Watched(watch::Sender<Term>),
}

impl Lease {
    pub(crate) fn new(
        grant: Grant,
        duration: Duration,
        max_hold: Option<Duration>,
        hold: Hold,
    ) -> Self {
        let term = Mutex::new(Kept::Alone(Term::until(grant.since + lasts(duration))));
        // One so long that it cannot be added to the clock is none.
        let latest_end = max_hold.and_then(|max_hold| grant.since.checked_add(max_hold));
        Self { token: grant.token, latest_end, term, hold }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.term.lock().expect("nothing panics while it is locked")
    }

    /// Whoever judges it looks at the clock before, and `change` after that: so what was seen to be
    /// lost is not renewed.
    fn term(&self) -> Term {
        match &*self.kept() {
            Kept::Alone(term) => *term,
            Kept::Watched(term) => *term.borrow(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Term, Instant)) -> Term {
        let term = self.update(|term| change(term, Instant::now()));
        if term.is_over() {
            self.hold.ended(Instant::now(), term.is_lost());
        }
        term
    }

    fn update(&self, change: impl FnOnce(&mut Term)) -> Term {
        let watched = match &mut *self.kept() {
            Kept::Alone(term) => {
                change(term);
                return *term;
            }
            Kept::Watched(term) => term.clone(),
        };
        // Not under the lock, since it wakes others.
        watched.send_modify(change);
        *watched.borrow()
    }

    /// The term, for others that live longer: whoever changes it, all of them see it.
    pub(crate) fn watch(&self) -> watch::Sender<Term> {
        let mut kept = self.kept();
        let watched = match &*kept {
            Kept::Alone(term) => watch::Sender::new(*term),
            Kept::Watched(term) => return term.clone(),
        };
        *kept = Kept::Watched(watched.clone());
        watched
    }

    /// For how long it may be renewed now; `None` when it has been held for as long as it may be.
    pub(crate) fn next_duration(&self, duration: Duration) -> Option<Duration> {
        let Some(latest_end) = self.latest_end else {
            return Some(duration);
        };
        let left = latest_end.saturating_duration_since(Instant::now()).min(duration);
        (left >= Duration::from_millis(1)).then_some(left)
    }

    /// A renewal was granted that was asked for at `sent`. Answers whether it is still held.
    pub(crate) fn renewed(&self, sent: Instant, duration: Duration) -> bool {
        let ends = sent + lasts(duration);
        // It may have been sent later than the duration was reckoned.
        let ends = self.latest_end.map_or(ends, |latest| latest.min(ends));
        !self.change(|term, now| term.renew(now, ends)).is_lost()
    }

    /// Answers whether nobody has told of it yet.
    pub(crate) fn lose(&self) -> bool {
        let mut is_news = false;
        self.change(|term, _| {
            term.lose();
            is_news = term.tell();
        });
        is_news
    }

    pub(crate) fn is_lost(&self) -> bool {
        let now = Instant::now();
        self.term().is_lost_at(now)
    }

    /// Answers whether it was lost before.
    pub(crate) fn let_go(&self) -> bool {
        self.change(Term::let_go).is_lost()
    }

    pub(crate) fn expires_in(&self) -> Duration {
        let now = Instant::now();
        self.term().left_at(now)
    }
}
