//! The calls of one acquisition: which kinds of requests are under way, and what earlier calls may
//! have done.

use std::sync::atomic::{AtomicU8, Ordering};

/// A set of kinds of requests, with one bit for each kind.
pub(crate) type Kinds = u8;

/// An acquire or an adoption. Both may create a permit. No acquisition has both.
pub(crate) const ACQUIRE: Kinds = 1;
pub(crate) const RELEASE: Kinds = 2;
/// A refresh, with or without acknowledgements by replicas.
pub(crate) const REFRESH: Kinds = 4;

/// This bit and the next two are not kinds. Set if a request is kept back until another request of
/// the acquisition has ended.
const KEPT: Kinds = 1 << 7;
/// Set if a failed call may still reach the server, and may then create a request or a permit for
/// the ID.
const DOUBT: Kinds = 1 << 6;
/// Set if a call with the ID was written to a connection.
const WRITTEN: Kinds = 1 << 5;

/// The kinds of an acquisition's requests that are under way, and notes about its calls.
#[derive(Default)]
pub(crate) struct Calls(AtomicU8);

impl Calls {
    /// Marks a request of this kind as under way, and returns true. But if a request of a kind in
    /// `after` is under way, only notes that the new request is kept back, and returns false.
    pub(crate) fn begin(&self, kind: Kinds, after: Kinds) -> bool {
        let go = |out: Kinds| Some(out | if out & after == 0 { kind } else { KEPT });
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, go);
        before.is_ok_and(|out| out & after == 0)
    }

    /// If an acquire or an adoption is under way, notes that the caller keeps its own request back
    /// until `Core::kept_may_go` is called, and returns true.
    pub(crate) fn keep_back_during_acquire(&self) -> bool {
        let keep = |out: Kinds| (out & ACQUIRE != 0).then_some(out | KEPT);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, keep).is_ok()
    }

    /// Whether a request of these kinds is under way.
    pub(crate) fn has(&self, kinds: Kinds) -> bool {
        self.0.load(Ordering::SeqCst) & kinds != 0
    }

    /// Notes that a call with the ID is being written to a connection.
    pub(crate) fn set_written(&self) {
        self.0.fetch_or(WRITTEN, Ordering::SeqCst);
    }

    /// Whether the server may have a request or a permit for the ID, now or later.
    pub(crate) fn may_have_created(&self) -> bool {
        self.has(WRITTEN | ACQUIRE)
    }

    pub(crate) fn was_written(&self) -> bool {
        self.has(WRITTEN)
    }

    pub(crate) fn set_in_doubt(&self) {
        self.0.fetch_or(DOUBT, Ordering::SeqCst);
    }

    /// Whether an acquire or an adoption of the ID may still reach the server.
    pub(crate) fn are_in_doubt(&self) -> bool {
        self.has(DOUBT)
    }

    /// Returns whether calls were in doubt. From now on, they are not.
    pub(crate) fn take_doubt(&self) -> bool {
        self.are_in_doubt() && self.0.fetch_and(!DOUBT, Ordering::SeqCst) & DOUBT != 0
    }

    /// Marks a request as ended. Returns whether another request was kept back and may be sent now.
    pub(crate) fn end(&self, kind: Kinds) -> bool {
        self.0.fetch_and(!(kind | KEPT), Ordering::SeqCst) & KEPT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_kept_until_the_request_before_it_has_ended() {
        let calls = Calls::default();
        assert!(calls.begin(ACQUIRE, 0));
        assert!(!calls.begin(RELEASE, ACQUIRE));
        assert!(!calls.has(RELEASE));
        assert!(calls.end(ACQUIRE), "a request was kept");
        assert!(calls.begin(RELEASE, ACQUIRE));
        assert!(calls.has(RELEASE));
        assert!(!calls.end(RELEASE), "no request is kept any more");
        assert!(!calls.has(RELEASE));
    }

    #[test]
    fn a_request_behind_another_request_is_kept() {
        let calls = Calls::default();
        calls.begin(RELEASE, 0);
        assert!(!calls.keep_back_during_acquire());
        assert!(!calls.end(RELEASE), "nothing is behind a release");
        calls.begin(ACQUIRE, 0);
        assert!(calls.keep_back_during_acquire());
        assert!(calls.end(ACQUIRE));
        assert!(!calls.end(ACQUIRE));
    }

    #[test]
    fn the_server_may_have_an_id_from_the_first_write_or_during_a_creating_call() {
        let calls = Calls::default();
        calls.begin(RELEASE, 0);
        assert!(!calls.may_have_created());
        calls.begin(ACQUIRE, 0);
        assert!(calls.may_have_created());
        calls.end(ACQUIRE);
        assert!(!calls.may_have_created() && !calls.was_written());
        calls.set_written();
        assert!(calls.may_have_created() && calls.was_written());
    }

    #[test]
    fn doubt_is_taken_once() {
        let calls = Calls::default();
        assert!(!calls.take_doubt());
        calls.set_in_doubt();
        assert!(calls.are_in_doubt());
        assert!(calls.take_doubt());
        assert!(!calls.are_in_doubt() && !calls.take_doubt());
    }
}
