//! Numbers near the limits of types, where sizes and counts go wrong.

use arbitrary::Arbitrary;

/// A number in an input.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Small(u8),
    Near { bits: u8, offset: i8 },
    Any(u64),
}

impl Number {
    /// Returns the number.
    pub fn get(self) -> u64 {
        match self {
            Number::Small(number) => number.into(),
            Number::Near { bits, offset } => {
                (1u64 << (bits % 64)).wrapping_add_signed((offset % 4).into())
            }
            Number::Any(number) => number,
        }
    }

    /// Returns an index into `len` items.
    pub fn index(self, len: usize) -> usize {
        (self.get() % len.max(1) as u64) as usize
    }
}
