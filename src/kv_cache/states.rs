//! The states of recurrent layers in one sequence.
//!
//! A state belongs to a length of the sequence, and cannot be taken back to an earlier one. So the
//! sequence keeps snapshots. A step reads the state before it and writes new ones, so that a step
//! that fails changes nothing, and clones share snapshots.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use super::pool::{Full, Pool, PooledState};
use crate::{
    platform::memory::Refused,
    threads::{Memory, Phased, Threads},
};

/// The bytes of a sequence's snapshots, unless there are fewer than [`SNAPSHOTS_MIN`].
const SNAPSHOT_BYTES: usize = 256 << 20;
const SNAPSHOTS_MIN: usize = 8;
const SNAPSHOTS_MAX: usize = 64;
/// The bytes of the states of a step that may be removed in part, without its last token.
const REMOVABLE_BYTES: usize = 128 << 20;
const REMOVABLE_MAX: usize = 15;

/// Returns the maximum snapshots of a sequence with states of these `bytes`.
pub fn snapshots_max(bytes: usize) -> usize {
    (SNAPSHOT_BYTES / bytes.max(1)).clamp(SNAPSHOTS_MIN, SNAPSHOTS_MAX)
}

/// Returns the maximum tokens of a step that can be removed again, with states of these `bytes`.
pub fn removable_max(bytes: usize) -> usize {
    (REMOVABLE_BYTES / bytes.max(1)).min(REMOVABLE_MAX)
}

/// Returns the maximum states of a sequence: the snapshots, the states before the last two steps, and
/// the states of the next step.
pub fn states_max(bytes: usize) -> usize {
    snapshots_max(bytes) + 2 + removable_max(bytes) + 1
}

/// The state of all recurrent layers at one length.
pub struct State {
    buffers: Vec<Phased<f32>>,
}

impl State {
    /// Allocates a state of zeros, with buffers of these numbers of floats.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn zeros(team: &Threads, floats: &[usize]) -> Result<Self, Refused> {
        let mut memory =
            Memory::for_buffers(floats.iter().map(|floats| floats * size_of::<f32>()))?;
        let buffers = floats.iter().map(|&floats| Phased::within(&mut memory, team, 1, floats));
        Ok(State { buffers: buffers.collect() })
    }

    /// Returns a buffer.
    pub fn buffer(&self, index: usize) -> &Phased<f32> {
        &self.buffers[index]
    }

    /// Passes all floats to `with`, buffer by buffer.
    pub fn read(&self, team: &Threads, with: impl FnMut(&[f32]) + Send) {
        let with = Mutex::new(with);
        team.step(|worker| {
            let Some(phase) = worker.phase(1) else { return };
            phase.for_each(|_| {
                let with = &mut *with.lock().unwrap_or_else(PoisonError::into_inner);
                self.buffers.iter().for_each(|buffer| with(buffer.read(&phase)));
            });
        });
    }

    /// Passes all floats to `with`, which may change them, buffer by buffer.
    pub fn write(&self, team: &Threads, with: impl FnMut(&mut [f32]) + Send) {
        let with = Mutex::new(with);
        team.step(|worker| {
            let Some(phase) = worker.phase(1) else { return };
            phase.for_each(|claim| {
                let with = &mut *with.lock().unwrap_or_else(PoisonError::into_inner);
                self.buffers.iter().for_each(|buffer| with(buffer.write(claim, buffer.width())));
            });
        });
    }
}

/// The lengths in a step that get a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    /// Whether the next step may return to any length of this one.
    pub all: bool,
    /// Whether the state before the step is kept.
    pub first: bool,
    /// The lengths with snapshots that are kept for later.
    pub kept: Vec<usize>,
}

/// The states of a sequence: of its current length, and snapshots.
#[derive(Clone, Default)]
pub struct States {
    /// In ascending order of lengths. The last one is of the current length.
    points: Vec<Point>,
    /// The states that the step in progress writes, in ascending order.
    targets: Vec<Point>,
    /// The length before the step in progress.
    start: usize,
}

#[derive(Clone)]
struct Point {
    len: usize,
    /// Whether it is kept for later: others last until the end of the next step.
    kept: bool,
    state: Arc<PooledState>,
}

impl States {
    /// Takes memory for the states that a step over the positions `start .. end` writes. If there is
    /// not enough for snapshots, the step writes none.
    ///
    /// # Errors
    /// If there is no memory for the states that the next step may need.
    pub fn reserve(
        &mut self,
        pool: &Pool,
        team: &Threads,
        Range { start, end }: Range<usize>,
        points: &Points,
    ) -> Result<(), Full> {
        self.cancel();
        if !pool.has_states() || start == end {
            return Ok(());
        }
        self.start = start;
        if points.first
            && let Some(last) = self.points.last_mut()
        {
            last.kept = true;
        }
        let needed = |len: &usize| points.all || *len == end;
        let kept = |len: &usize| points.kept.contains(len);
        let mut lens: Vec<_> = (start + 1..=end).filter(|len| needed(len) || kept(len)).collect();
        let states = pool.take_states(team, lens.len()).or_else(|full| {
            let all = lens.len();
            lens.retain(needed);
            if lens.len() < all { pool.take_states(team, lens.len()) } else { Err(full) }
        })?;
        let point = |(len, state)| Point { len, kept: kept(&len), state };
        self.targets = lens.into_iter().zip(states).map(point).collect();
        Ok(())
    }

    /// Frees the states of a step that was not computed.
    pub fn cancel(&mut self) {
        self.targets.clear();
    }

    /// Makes the states that a step has written the current ones. Removes snapshots if there are more
    /// than `max`.
    pub fn commit(&mut self, max: usize, retained: usize) {
        if self.targets.is_empty() {
            return;
        }
        let start = self.start;
        self.points.retain(|point| point.kept || point.len == start);
        self.points.append(&mut self.targets);
        let of = |point: &Point| point.kept && point.len != retained;
        thin(&mut self.points, |point| point.len, of, max);
    }

    /// Returns the state before the step in progress; `None` if it is zero.
    pub fn source(&self) -> Option<&State> {
        let last = self.points.last().filter(|point| point.len == self.start);
        last.map(|point| &**point.state)
    }

    /// Returns the states that the step in progress writes, in ascending order, each with its number
    /// of tokens after the start of the step.
    pub fn targets(&self) -> impl Iterator<Item = (usize, &State)> {
        self.targets.iter().map(|point| (point.len - self.start, &**point.state))
    }

    /// Returns the lengths with a state, in ascending order.
    pub fn lens(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.points.iter().map(|point| point.len)
    }

    /// Removes the states of more than `len` positions.
    pub fn truncate(&mut self, len: usize) {
        self.points.retain(|point| point.len <= len);
    }

    /// Moves lengths after `kept + positions` down by `positions`, and removes the states from `kept`
    /// up to there. The current state stays as it is.
    pub fn shift(&mut self, kept: usize, positions: usize) {
        self.points.retain(|point| point.len < kept || point.len > kept + positions);
        for point in self.points.iter_mut().filter(|point| point.len > kept) {
            point.len -= positions;
        }
    }

    /// Returns the lengths up to `len` with a state in a file: a few snapshots, and the state of
    /// `len` itself.
    pub fn lens_in_file(&self, len: usize) -> Vec<usize> {
        let mut lens: Vec<_> = self.lens().filter(|point| *point <= len).collect();
        thin(&mut lens, |len| *len, |_| true, FILE_MAX);
        lens
    }

    /// Returns the state of a length.
    pub fn at(&self, len: usize) -> Option<&State> {
        self.points.iter().find(|point| point.len == len).map(|point| &**point.state)
    }

    /// Replaces all states by states of these lengths.
    pub(super) fn replace(&mut self, lens: &[usize], states: Vec<Arc<PooledState>>) {
        let points = lens.iter().zip(states);
        self.points = points.map(|(&len, state)| Point { len, kept: true, state }).collect();
    }
}

/// Maximum snapshots of a file, and the state of its length.
pub const FILE_MAX: usize = 4;

/// Removes points until at most `max` are left that meet `condition`, the last one not counted. A
/// text that departs from the sequence is computed again from the point before it. So the removed
/// point is the one with the smallest gap, relative to its distance from the end.
fn thin<P>(
    points: &mut Vec<P>,
    len: impl Fn(&P) -> usize,
    condition: impl Fn(&P) -> bool,
    max: usize,
) {
    let Some(end) = points.last().map(&len) else { return };
    loop {
        let before_last = &points[..points.len() - 1];
        let candidates = before_last.iter().enumerate().filter(|(_, point)| condition(point));
        let cost = |i: usize| {
            let before = if i == 0 { 0 } else { len(&points[i - 1]) };
            (len(&points[i + 1]) - before) as f64 / (end - before) as f64
        };
        let count = candidates.clone().count();
        let cheapest = candidates.min_by(|(a, _), (b, _)| cost(*a).total_cmp(&cost(*b)));
        match cheapest {
            Some((index, _)) if count > max => drop(points.remove(index)),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_denser_near_the_end() {
        let mut lens: Vec<usize> = Vec::new();
        for len in (1..=1000).map(|i| 100 * i) {
            lens.push(len);
            thin(&mut lens, |len| *len, |_| true, 12);
            assert!(lens.len() <= 13 && lens.last() == Some(&len));
        }
        // Wherever a text departs, what is computed again is at most twice as long as what follows.
        let end = lens[lens.len() - 1];
        for departs in (0..end).step_by(100) {
            let from = lens.iter().rfind(|len| **len <= departs).copied().unwrap_or(0);
            let again = departs - from;
            assert!(again <= 2 * (end - departs), "{departs} from {from} of {end}: {lens:?}");
        }
    }
}
