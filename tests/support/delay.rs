//! The delays of a proxy, which are precise to a few microseconds. Tokio's timers are only precise
//! to a millisecond.

use std::hint::spin_loop;
use std::io;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::runtime::{Builder, Handle};
use uuid::Uuid;

/// The runtime of all proxies with a delay. This runtime has its own thread, so that the tasks of
/// the program do not make data late.
pub static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
});

/// The possible lateness of a thread after a long sleep and after the following short sleep. After
/// both sleeps, the thread spins, which uses processor time.
const LATENESS: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(30)];

/// The delay in one direction. The delays of successive pieces of data overlap, so they do not add
/// up. No piece overtakes an earlier piece.
#[derive(Debug, Clone, Copy)]
pub struct Delay {
    pub one_way: Duration,
    /// The maximum random deviation, as a part of the delay.
    pub jitter: f64,
}

impl Delay {
    pub fn of(one_way: Duration) -> Self {
        Self { one_way, jitter: 0.0 }
    }

    fn random(&self) -> Duration {
        let random = Uuid::new_v4().as_fields().0 as f64 / u32::MAX as f64;
        self.one_way.mul_f64(1.0 + self.jitter * (2.0 * random - 1.0))
    }
}

/// The end of one direction of a connection.
pub enum Outlet {
    Prompt(OwnedWriteHalf),
    /// A thread delivers each piece when it is due.
    Late {
        delay: Delay,
        last_due: Instant,
        pieces: Sender<(Instant, Vec<u8>)>,
    },
}

impl Outlet {
    pub fn new(to: OwnedWriteHalf, delay: Option<Delay>) -> Self {
        let Some(delay) = delay else {
            return Self::Prompt(to);
        };
        let (sender, pieces) = channel();
        thread::spawn(move || deliver(to, &pieces));
        Self::Late { delay, last_due: Instant::now(), pieces: sender }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Prompt(to) => to.write_all(bytes).await,
            Self::Late { delay, last_due, pieces } => {
                *last_due = (*last_due).max(Instant::now() + delay.random());
                let sent = pieces.send((*last_due, bytes.to_vec()));
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

/// Delivers pieces until the other end of the direction is closed. Then closes this end.
fn deliver(mut to: OwnedWriteHalf, pieces: &Receiver<(Instant, Vec<u8>)>) {
    be_punctual();
    while let Ok((due, bytes)) = pieces.recv() {
        sleep_until(due);
        if RUNTIME.block_on(to.write_all(&bytes)).is_err() {
            return;
        }
    }
}

/// Disables the timer slack of the calling thread. Otherwise, Linux may delay the thread by up to
/// 50 µs, so that it can wake several threads together.
fn be_punctual() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
}

fn sleep_until(due: Instant) {
    for early in LATENESS {
        thread::sleep(due.saturating_duration_since(Instant::now() + early));
    }
    while Instant::now() < due {
        spin_loop();
    }
}
