//! Round trips, counted without a clock: by what can have been an answer to what.
//!
//! Whatever clients send belongs to the wave after the last one that has come back to any of them,
//! and what the server sends belongs to the last wave that has reached it. So the number of the
//! wave that has come back is how many trips had to be made one after the other, over all
//! connections. The delay of the network must be longer than what clients and server do between two
//! waves.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Default)]
pub struct Waves {
    /// The last that has reached the server.
    there: AtomicU32,
    /// The last that has come back to a client.
    back: AtomicU32,
}

impl Waves {
    pub fn come_back(&self) -> u32 {
        self.back.load(Ordering::SeqCst)
    }

    /// The wave of what a client sends now.
    pub fn of_client(&self) -> u32 {
        self.come_back() + 1
    }

    /// The wave of what the server sends now.
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
