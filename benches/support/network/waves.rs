//! Counts round trips without a clock, from the order in which data are sent and received.
//!
//! Data sent by a client belong to the wave after the last wave that has returned to any client.
//! Data sent by the server belong to the last wave that has reached it. The number of the last
//! returned wave is therefore the number of sequential round trips, over all connections. Between
//! two waves, clients and server must work for less time than the network delays a wave.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Default)]
pub struct Waves {
    /// The last wave that has reached the server.
    there: AtomicU32,
    /// The last wave that has returned to a client.
    back: AtomicU32,
}

impl Waves {
    pub fn come_back(&self) -> u32 {
        self.back.load(Ordering::SeqCst)
    }

    pub fn of_client(&self) -> u32 {
        self.come_back() + 1
    }

    pub fn of_server(&self) -> u32 {
        self.there.load(Ordering::SeqCst)
    }

    pub fn reaches_server(&self, wave: u32) {
        self.there.fetch_max(wave, Ordering::SeqCst);
    }

    pub fn reaches_client(&self, wave: u32) {
        self.back.fetch_max(wave, Ordering::SeqCst);
    }
}
