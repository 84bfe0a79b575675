//! Waits until a moment, with a precision of a few microseconds. Tokio's timers are only
//! precise to a millisecond.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

/// The possible lateness of a thread after a long sleep and after the following short sleep. After
/// both sleeps, the thread spins, which uses processor time.
const LATENESS: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(30)];

/// Disables the timer slack of the calling thread. Otherwise, Linux may delay the thread by up to
/// 50 µs, so that it can wake several threads together.
pub fn be_punctual() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
}

pub fn sleep_until(due: Instant) {
    for early in LATENESS {
        thread::sleep(due.saturating_duration_since(Instant::now() + early));
    }
    while Instant::now() < due {
        spin_loop();
    }
}
