//! Limits the size of replies while they arrive, because redis-rs accepts any length. Records the
//! first error.

use std::io;

use super::first_error::FirstError;
use crate::error::TOO_LARGE;

/// The maximum size of a reply in bytes. The largest page of an inspection and the map of the
/// largest cluster are smaller.
const MAX_REPLY: usize = 64 << 20;

/// The reply that is arriving.
pub(super) struct Replies {
    length: usize,
    max: usize,
    part: Part,
    /// The number of remaining parts of each incomplete array.
    nested: Vec<u64>,
    first_error: FirstError,
    /// The bytes of an error that have arrived.
    error: Vec<u8>,
}

enum Part {
    /// The next byte is the first byte of a part.
    Start,
    /// A line. `kind` is its first byte. `number` is the number after `kind`, or `None` if the line
    /// contains other characters, such as a minus sign.
    Line {
        kind: u8,
        number: Option<u64>,
    },
    Bytes {
        left: u64,
    },
}

impl Default for Replies {
    fn default() -> Self {
        Self {
            length: 0,
            max: MAX_REPLY,
            part: Part::Start,
            nested: Vec::new(),
            first_error: FirstError::default(),
            error: Vec::new(),
        }
    }
}

impl Replies {
    pub(super) fn first_error(&self) -> FirstError {
        self.first_error.clone()
    }

    /// Fails if a reply is too large, or announces a size that is too large.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let [first, rest @ ..] = bytes {
            match &mut self.part {
                Part::Bytes { left } => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    let is_over = *left == 0;
                    self.grow(taken)?;
                    bytes = &bytes[taken..];
                    if is_over {
                        self.end_part();
                    }
                    continue;
                }
                _ => self.grow(1)?,
            }
            bytes = rest;
            self.record(*first);
            match &mut self.part {
                Part::Start | Part::Bytes { .. } => {
                    self.part = Part::Line { kind: *first, number: Some(0) }
                }
                Part::Line { kind, .. } if *first == b'\n' => {
                    let kind = *kind;
                    self.end_line(kind)?;
                }
                Part::Line { number, .. } if first.is_ascii_digit() => {
                    let digit = u64::from(first - b'0');
                    *number = number.map(|number| number.saturating_mul(10).saturating_add(digit));
                }
                Part::Line { .. } if *first == b'\r' => {}
                Part::Line { number, .. } => *number = None,
            }
        }
        Ok(())
    }

    /// Records the byte if it belongs to the line of an error.
    fn record(&mut self, byte: u8) {
        let is_error = match self.part {
            Part::Start => byte == b'-' && self.nested.is_empty(),
            Part::Line { .. } => !self.error.is_empty(),
            Part::Bytes { .. } => false,
        };
        match byte {
            _ if !is_error => {}
            b'\n' => self.first_error.set(&std::mem::take(&mut self.error)),
            b'\r' => {}
            byte => self.first_error.extend(&mut self.error, byte),
        }
    }

    fn end_line(&mut self, kind: u8) -> io::Result<()> {
        let Part::Line { number, .. } = self.part else { return Ok(()) };
        match (kind, number) {
            (b'$' | b'=' | b'!', Some(length)) => {
                if length > self.max as u64 {
                    return Err(too_large());
                }
                // `\r\n` follows the bytes. `left` includes these two characters.
                self.part = Part::Bytes { left: length + 2 };
            }
            (b'*' | b'~' | b'>', Some(parts)) => self.begin(parts),
            (b'%', Some(pairs)) => self.begin(pairs.saturating_mul(2)),
            // The value to which the attributes apply follows them, and is one more part.
            (b'|', Some(pairs)) => self.begin(pairs.saturating_mul(2).saturating_add(1)),
            _ => self.end_part(),
        }
        Ok(())
    }

    fn begin(&mut self, parts: u64) {
        self.part = Part::Start;
        match parts {
            0 => self.end_part(),
            parts => self.nested.push(parts),
        }
    }

    fn end_part(&mut self) {
        self.part = Part::Start;
        while let Some(left) = self.nested.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.nested.pop();
        }
        self.length = 0;
    }

    fn grow(&mut self, bytes: usize) -> io::Result<()> {
        self.length += bytes;
        if self.length > self.max { Err(too_large()) } else { Ok(()) }
    }
}

/// The error for a reply that is too large. No supported server sends such a reply.
fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, TOO_LARGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(max: usize) -> Replies {
        Replies { max, ..Replies::default() }
    }

    const REPLIES: &str = "+OK\r\n:17\r\n$5\r\na\r\nbc\r\n*3\r\n:1\r\n$-1\r\n*0\r\n%1\r\n+a\r\n*2\r\n:1\r\n:-2\r\n-ERR 5 is wrong\r\n$0\r\n\r\n>2\r\n+a\r\n+b\r\n_\r\n*-1\r\n|1\r\n+a\r\n:1\r\n:5\r\n";

    /// The counted length restarts with each reply, regardless of how the bytes of the replies are
    /// split.
    #[test]
    fn many_small_replies_are_never_too_large() {
        for size in [1, 2, 3, 7, REPLIES.len()] {
            let mut replies = limited(40);
            for _ in 0..100 {
                for piece in REPLIES.as_bytes().chunks(size) {
                    replies.read(piece).unwrap();
                }
                assert_eq!((replies.length, replies.nested.len()), (0, 0), "{size}");
            }
        }
    }

    #[test]
    fn an_endless_reply_is_too_large() {
        let piece = [b'a'; 1000];
        for start in
            ["$1000000\r\n", "+", "-ERR ", ":", "*1000000000\r\n+", "$99999999999999999999\r\n"]
        {
            let mut replies = limited(10_000);
            let mut read = replies.read(start.as_bytes());
            for _ in 0..20 {
                read = read.and_then(|()| replies.read(&piece));
            }
            assert!(read.is_err(), "{start:?}");
        }
        let mut replies = limited(10_000);
        let endless = "*1\r\n".repeat(5000);
        assert!(replies.read(endless.as_bytes()).is_err());
    }
}
