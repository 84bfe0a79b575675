//! Waiting until a moment, to some microseconds: timers of tokio are as coarse as a millisecond.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

/// How late a thread may wake up: some 100 µs after a long sleep, so that it sleeps once more. For
/// the rest it is awake, which costs the processor's time.
const LATENESS: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(30)];

/// Has the thread that calls it wake up on time. Linux wakes threads 50 µs late otherwise, to wake
/// several at once.
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
