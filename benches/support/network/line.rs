//! One direction of a connection. One thread reads, and records when each chunk is due. Another
//! thread delivers the chunks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use super::Way;
use super::alarm::{be_punctual, sleep_until};
use super::waves::Waves;
use crate::support::designs::random;

/// The size of the buffer, which is larger than any write of a client or a server in the benches.
const CHUNK: usize = 256 * 1024;

struct Chunk {
    bytes: Vec<u8>,
    due: Instant,
    wave: u32,
}

/// The direction of a line, and its counter of round trips.
#[derive(Clone)]
pub enum Direction {
    /// To the server.
    There(Arc<Waves>),
    /// To the client.
    Back(Arc<Waves>),
}

impl Direction {
    fn wave(&self) -> u32 {
        match self {
            Self::There(waves) => waves.of_client(),
            Self::Back(waves) => waves.of_server(),
        }
    }

    fn arrived(&self, wave: u32) {
        match self {
            Self::There(waves) => waves.reaches_server(wave),
            Self::Back(waves) => waves.reaches_client(wave),
        }
    }
}

/// Carries all data from one socket to the other, until one of the sockets is closed.
pub fn carry(from: TcpStream, to: TcpStream, way: Way, direction: Direction) {
    let (sender, chunks) = channel();
    let other_end = direction.clone();
    thread::spawn(move || receive(from, &sender, way, &direction));
    thread::spawn(move || deliver(to, &chunks, &other_end));
}

fn receive(mut from: TcpStream, chunks: &Sender<Chunk>, way: Way, direction: &Direction) {
    let mut buffer = vec![0; CHUNK];
    let mut last_due = Instant::now();
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let delay = way.delay.mul_f64(1.0 + way.jitter * (2.0 * random() - 1.0));
        last_due = last_due.max(Instant::now() + delay);
        let (bytes, wave) = (buffer[..length].to_vec(), direction.wave());
        if chunks.send(Chunk { bytes, due: last_due, wave }).is_err() {
            break;
        }
    }
}

fn deliver(mut to: TcpStream, chunks: &Receiver<Chunk>, direction: &Direction) {
    be_punctual();
    while let Ok(Chunk { bytes, due, wave }) = chunks.recv() {
        sleep_until(due);
        // The wave is recorded before the bytes are sent, and thus before their effects.
        direction.arrived(wave);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // When the sender closes its connection, this connection is closed, too.
    let _ = to.shutdown(Shutdown::Write);
}
