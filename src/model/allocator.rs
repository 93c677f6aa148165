//! Allocates buffers, or computes their sizes before they are allocated.

use std::{ops::AddAssign, sync::Mutex};

use bytemuck::Zeroable;

use crate::{
    platform::memory::{Refused, filled},
    threads::{Phased, Threads},
};

/// A number of rows or of bytes, which depends on the tokens of a micro-batch and on the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The constant part.
    pub fixed: usize,
    /// The amount for each token of a micro-batch.
    pub per_token: usize,
    /// The amount for each [`PART`](super::attention::PART) positions of the context.
    pub per_part: usize,
}

impl Amount {
    pub const fn fixed(fixed: usize) -> Self {
        Amount { fixed, per_token: 0, per_part: 0 }
    }

    pub const fn per_token(per_token: usize) -> Self {
        Amount { fixed: 0, per_token, per_part: 0 }
    }

    pub fn times(self, n: usize) -> Self {
        let Amount { fixed, per_token, per_part } = self;
        Amount { fixed: fixed * n, per_token: per_token * n, per_part: per_part * n }
    }

    /// Returns the maximum of each part.
    pub fn max(self, other: Self) -> Self {
        Amount {
            fixed: self.fixed.max(other.fixed),
            per_token: self.per_token.max(other.per_token),
            per_part: self.per_part.max(other.per_part),
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.fixed += other.fixed;
        self.per_token += other.per_token;
        self.per_part += other.per_part;
    }
}

/// Allocates buffers, or only counts their sizes and returns empty ones. So each buffer is
/// described in one place, where it is made.
pub struct Allocator<'t> {
    run: Option<Run<'t>>,
    /// The number of workers.
    workers: usize,
    /// The number of buffers that the next one counts for: one for each worker, or one.
    copies: usize,
    bytes: Amount,
    /// The first buffer that the system had no memory for.
    refused: Option<Refused>,
}

#[derive(Clone, Copy)]
struct Run<'t> {
    team: &'t Threads,
    tokens: usize,
}

impl<'t> Allocator<'t> {
    /// Creates an allocator for micro-batches of `tokens`.
    pub fn new(team: &'t Threads, tokens: usize) -> Self {
        let run = Some(Run { team, tokens });
        Allocator { run, ..Allocator::counting(team.count()) }
    }

    /// Creates an allocator that only computes sizes.
    pub fn counting(workers: usize) -> Self {
        Allocator { run: None, workers, copies: 1, bytes: Amount::default(), refused: None }
    }

    /// Returns the bytes of all buffers so far.
    pub fn bytes(&self) -> Amount {
        self.bytes
    }

    /// Checks that all buffers were allocated. The others are empty and unusable.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn check(&self) -> Result<(), Refused> {
        self.refused.map_or(Ok(()), Err)
    }

    /// Returns a buffer, or `empty` if the system has no memory left.
    fn or<B>(&mut self, buffer: Result<B, Refused>, empty: B) -> B {
        buffer.unwrap_or_else(|refused| {
            self.refused.get_or_insert(refused);
            empty
        })
    }

    /// Returns a buffer through which workers exchange data.
    pub fn shared<T: Zeroable + Copy>(&mut self, rows: Amount, columns: usize) -> Phased<T> {
        self.count(rows.times(columns * size_of::<T>()));
        match self.run {
            Some(run) => self.or(Phased::new(run.team, self.rows(rows), columns), Phased::empty()),
            None => Phased::empty(),
        }
    }

    /// Returns a buffer of one worker.
    pub fn own<T: Zeroable + Clone>(&mut self, rows: Amount, columns: usize) -> Vec<T> {
        self.count(rows.times(columns * size_of::<T>()));
        self.or(filled(T::zeroed(), self.rows(rows).saturating_mul(columns)), Vec::new())
    }

    /// Returns a number of rows; 0 when only counting. Too many for a number saturate:
    /// the system then refuses the buffer.
    pub fn rows(&self, rows: Amount) -> usize {
        let of = |tokens| rows.fixed.saturating_add(rows.per_token.saturating_mul(tokens));
        self.run.map_or(0, |run| of(run.tokens))
    }

    /// Counts the bytes of a buffer that the caller allocates.
    pub fn count(&mut self, bytes: Amount) {
        self.bytes += bytes.times(self.copies);
    }

    /// Returns the buffers of each worker, or of fewer workers if the system has no memory left.
    pub fn workers<W>(
        &mut self,
        mut worker: impl FnMut(&mut Self) -> Result<W, Refused>,
    ) -> Vec<Mutex<W>> {
        if self.run.is_some() {
            let workers = (0..self.workers).map_while(|_| {
                let worker = worker(self).map(Some);
                self.or(worker, None).map(Mutex::new)
            });
            return workers.collect();
        }
        self.copies = self.workers;
        let counted = worker(self).map(drop);
        self.or(counted, ());
        self.copies = 1;
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_the_system_refuses_are_an_error() {
        let team = Threads::new(1).unwrap();
        let mut allocator = Allocator::new(&team, 1);
        assert!(allocator.own::<u8>(Amount::fixed(1), 7).len() == 7 && allocator.check().is_ok());
        let bytes = isize::MAX as usize / 2;
        assert!(allocator.own::<u8>(Amount::fixed(1), bytes).is_empty());
        assert_eq!(allocator.check(), Err(Refused { bytes }));
        assert_eq!(allocator.shared::<u8>(Amount::fixed(1), bytes).all().len(), 0);
        // The rows, or their bytes, are more than a number holds.
        for tokens in [usize::MAX, 1 << 61] {
            let mut allocator = Allocator::new(&team, tokens);
            assert_eq!(allocator.shared::<f64>(Amount::per_token(3), 1).all().len(), 0);
            assert_eq!(allocator.check(), Err(Refused { bytes: usize::MAX }));
            assert!(allocator.own::<f64>(Amount::per_token(8), 1).is_empty());
        }
        let mut allocator = Allocator::new(&team, 1);
        assert_eq!(allocator.workers(|_| Err::<(), _>(Refused { bytes })).len(), 0);
        assert_eq!(allocator.check(), Err(Refused { bytes }));
    }

    #[test]
    fn sizes_are_those_of_the_buffers() {
        let team = Threads::new(3).unwrap();
        let rows = Amount { fixed: 3, ..Amount::per_token(2) };
        let buffers = |mut allocator: Allocator<'_>| {
            let mut shared: Phased<u32> = allocator.shared(rows, 7);
            let own = allocator.workers(|allocator| Ok(allocator.own::<u16>(rows, 10)));
            let own: usize = own.into_iter().map(|own| own.into_inner().unwrap().len()).sum();
            (shared.all().len() * 4 + own * 2, allocator.bytes())
        };
        for tokens in [0, 1, 5, 9] {
            let (allocated, bytes) = buffers(Allocator::new(&team, tokens));
            let (nothing, counted) = buffers(Allocator::counting(3));
            assert_eq!((nothing, counted), (0, bytes));
            assert_eq!(counted.fixed + counted.per_token * tokens, allocated);
        }
    }
}
