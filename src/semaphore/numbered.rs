//! Tables of acquisitions by their numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type Numbered<T> = HashMap<u128, T, BuildHasherDefault<LowerHalf>>;

/// The lower half of an acquisition's number is a hash already, with a key that nobody else knows.
#[derive(Default)]
pub(crate) struct LowerHalf(u64);

impl Hasher for LowerHalf {
    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
