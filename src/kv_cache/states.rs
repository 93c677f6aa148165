//! The states of recurrent layers in one sequence.
//!
//! A state belongs to one length of the sequence, and cannot be rewound to an earlier length. So the
//! sequence keeps snapshots. A step reads the state before it and writes new states, so a failed
//! step changes nothing, and clones share snapshots.

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
/// Maximum bytes of the states that make tokens of a step removable. The state after its last token
/// is not counted.
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
    /// A length shortly before the end of a prompt. The next prompt often differs after it, so the
    /// first snapshot from there on is removed late.
    pub before_end: Option<usize>,
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
    /// Whether a prompt ends shortly after it.
    before_end: bool,
    state: Arc<PooledState>,
}

impl States {
    /// Allocates the states that a step over the positions `start .. end` writes. If there is too
    /// little memory for snapshots, the step writes none.
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
        let point = |(len, state)| Point { len, kept: kept(&len), before_end: false, state };
        self.targets = lens.into_iter().zip(states).map(point).collect();
        if let Some(len) = points.before_end {
            // For a very short prompt, take the state before it.
            let mut all = self.points.iter_mut().chain(&mut self.targets);
            if let Some(point) = all.find(|point| point.kept && point.len >= len) {
                point.before_end = true;
            }
        }
        Ok(())
    }

    /// Frees the states of a step that was not computed.
    pub fn cancel(&mut self) {
        self.targets.clear();
    }

    /// Makes the states that a step has written current. Keeps at most `max` snapshots, always
    /// including the one at `retained`.
    pub fn commit(&mut self, max: usize, retained: usize) {
        if self.targets.is_empty() {
            return;
        }
        let start = self.start;
        self.points.retain(|point| point.kept || point.len == start);
        self.points.append(&mut self.targets);
        let held = self.before_ends(usize::MAX);
        let rank = |point: &Point| {
            let rank = if held.contains(&point.len) { Rank::BeforeEnd } else { Rank::Other };
            (point.kept && point.len != retained).then_some(rank)
        };
        thin(&mut self.points, |point| point.len, rank, max);
    }

    /// Returns the lengths of the last points before prompts' ends, up to `len`, latest first.
    fn before_ends(&self, len: usize) -> Vec<usize> {
        let points = self.points.iter().rev().filter(|point| point.before_end && point.len <= len);
        points.map(|point| point.len).take(HELD).collect()
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

    /// Returns the lengths up to `len` with states to save to a file: a few snapshots, and `len`
    /// itself.
    ///
    /// A conversation continues from `len`. If the next prompt lacks the reasoning of the answer,
    /// it continues from the point before the last prompt's end. So points within the last answer
    /// are removed first.
    pub fn lens_in_file(&self, len: usize) -> Vec<usize> {
        let mut lens: Vec<_> = self.lens().filter(|point| *point <= len).collect();
        let held = self.before_ends(len);
        let rank = |len: &usize| match held.first() {
            _ if held.contains(len) => Rank::BeforeEnd,
            Some(last) if len > last => Rank::LastAnswer,
            _ => Rank::Other,
        };
        thin(&mut lens, |len| *len, |len| Some(rank(len)), FILE_MAX);
        lens
    }

    /// Returns the state of a length.
    pub fn at(&self, len: usize) -> Option<&State> {
        self.points.iter().find(|point| point.len == len).map(|point| &**point.state)
    }

    /// Replaces all states by states of these lengths.
    pub(super) fn replace(&mut self, lens: &[usize], states: Vec<Arc<PooledState>>) {
        let point = |(&len, state)| Point { len, kept: true, before_end: false, state };
        self.points = lens.iter().zip(states).map(point).collect();
    }
}

/// Maximum snapshots of a file, and the state of its length.
pub const FILE_MAX: usize = 4;

/// The number of points before prompts' ends that are removed last. The other half of a file serves
/// edits of earlier messages, and conversations with the same first messages.
const HELD: usize = FILE_MAX / 2;

/// The order of removal, first to last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    LastAnswer,
    Other,
    BeforeEnd,
}

/// Removes ranked points until at most `max` are left, not counting the last point. The lowest rank
/// goes first. A text that differs from the sequence is computed again from the point before the
/// difference. So within a rank, the point with the smallest gap is removed, relative to its
/// distance from the end.
fn thin<P>(
    points: &mut Vec<P>,
    len: impl Fn(&P) -> usize,
    rank: impl Fn(&P) -> Option<Rank>,
    max: usize,
) {
    let Some(end) = points.last().map(&len) else { return };
    loop {
        let before_last = &points[..points.len() - 1];
        let ranked = |(i, point)| rank(point).map(|rank| (i, rank));
        let candidates = before_last.iter().enumerate().filter_map(ranked);
        let cost = |i: usize| {
            let before = if i == 0 { 0 } else { len(&points[i - 1]) };
            (len(&points[i + 1]) - before) as f64 / (end - before) as f64
        };
        let count = candidates.clone().count();
        let cheapest = candidates
            .min_by(|(a, of), (b, other)| of.cmp(other).then(cost(*a).total_cmp(&cost(*b))));
        match cheapest {
            Some((index, _)) if count > max => drop(points.remove(index)),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a prompt and writes an answer, token by token, up to these lengths.
    fn turn(states: &mut States, pool: &Pool, [prompt, end]: [usize; 2], max: usize) {
        let team = Threads::new(1).unwrap();
        let start = states.lens().last().unwrap_or(0);
        let grid = (1..).map(|i| 512 * i).take_while(|len| *len <= end).collect::<Vec<_>>();
        let before_end = prompt - 16;
        let kept = [&grid[..], &[before_end, prompt]].concat();
        let points = Points { first: true, kept, before_end: Some(before_end), all: false };
        states.reserve(pool, &team, start..prompt, &points).unwrap();
        states.commit(max, usize::MAX);
        let points = Points { all: true, kept: grid, ..Points::default() };
        for len in prompt + 1..=end {
            states.reserve(pool, &team, len - 1..len, &points).unwrap();
            states.commit(max, usize::MAX);
        }
    }

    #[test]
    fn the_points_before_the_last_prompts_ends_stay() {
        let pool = &Pool::new([], [[1, 1]], usize::MAX);
        let mut states = States::default();
        turn(&mut states, pool, [2000, 2050], 64);
        assert_eq!(states.lens_in_file(2050), [512, 1024, 1536, 1984, 2050]);
        turn(&mut states, pool, [10273, 11472], 64);
        assert_eq!(states.lens_in_file(11472), [1984, 6144, 9216, 10257, 11472]);
        // Not yet in the second answer.
        assert_eq!(states.lens_in_file(10273), [1984, 9728, 10240, 10257, 10273]);
        // A prompt of fewer than 16 tokens continues from the end of the answer before it.
        turn(&mut states, pool, [11482, 12600], 64);
        assert_eq!(states.lens_in_file(12600), [4096, 8192, 10257, 11472, 12600]);

        let mut states = States::default();
        turn(&mut states, pool, [2000, 2050], 8);
        turn(&mut states, pool, [10273, 16000], 8);
        let lens: Vec<_> = states.lens().collect();
        assert!([1984, 10257].iter().all(|len| lens.contains(len)), "{lens:?}");
        assert!(lens.len() <= 10, "{lens:?}");
    }

    #[test]
    fn snapshots_are_denser_near_the_end() {
        let mut lens: Vec<usize> = Vec::new();
        for len in (1..=1000).map(|i| 100 * i) {
            lens.push(len);
            thin(&mut lens, |len| *len, |_| Some(Rank::Other), 12);
            assert!(lens.len() <= 13 && lens.last() == Some(&len));
        }
        // Wherever a text differs, at most twice the rest of the text is computed again.
        let end = lens[lens.len() - 1];
        for departs in (0..end).step_by(100) {
            let from = lens.iter().rfind(|len| **len <= departs).copied().unwrap_or(0);
            let again = departs - from;
            assert!(again <= 2 * (end - departs), "{departs} from {from} of {end}: {lens:?}");
        }
    }
}
