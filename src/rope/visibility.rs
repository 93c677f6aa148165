//! The keys that a query attends to, and the positions that attention assigns to both.

use std::ops::Range;

use super::Layers;

/// The keys that a query attends to: near keys at their true distance, and some keys from the start
/// of the sequence at another distance.
///
/// Every method that changes attention is described in this form to the forward pass.
///
/// ```
/// use rope_cpu::rope::{Region, Visibility};
///
/// let window = Visibility::window(1000);
/// assert_eq!(window.visible(Region::Near, 5000), 4001..5001);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visibility {
    /// The number of near keys: their distances are below it.
    pub near: usize,
    /// The number of positions at the start that stay visible as far keys, once they are no longer
    /// near.
    pub first: usize,
    /// The positions assigned to far keys.
    pub far: FarKeys,
}

/// The positions that attention assigns to far keys and to their query. Only the difference of the
/// two affects the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarKeys {
    /// All far keys are at this distance.
    AtDistance(usize),
    /// A key at distance d is moved to w + (d - w) / k. k is the value, and w is
    /// [`Visibility::near`].
    Divided(usize),
    /// Keys and queries are at their position divided by the group size (the value), rounded down.
    /// A constant is added for queries, so that distances continue after the near keys.
    Grouped(usize),
    /// Keys are at their position. Queries are at theirs, but at most at this one.
    Capped(usize),
    /// A key at distance d is moved to d minus this.
    Shifted(usize),
    /// Positions start again in each chunk of s = [`Visibility::near`] tokens. A query is at its place in its
    /// chunk for keys of this chunk, at its place plus s for the chunk before, and at 2s - 1 for older ones,
    /// but at most at this position, which is at least s.
    Chunked(usize),
}

/// A part of the visible keys with one rule for assigned positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Keys at distances below [`Visibility::near`], or under [`FarKeys::Chunked`] those of the query's chunk.
    Near,
    /// All others, among the first [`Visibility::first`] positions.
    Far,
    /// The keys of the chunk with this index, under [`FarKeys::Chunked`].
    Chunk(usize),
}

impl Visibility {
    /// All keys, at their true distance.
    pub const ALL: Visibility = Visibility::window(usize::MAX);

    /// Returns the visibility of a sliding window of `tokens` keys.
    pub const fn window(tokens: usize) -> Visibility {
        Visibility { near: tokens, first: 0, far: FarKeys::AtDistance(0) }
    }

    /// Returns the regions of keys at these positions that have one rule each. They do not overlap.
    pub fn regions(&self, keys: Range<usize>) -> impl Iterator<Item = Region> + use<> {
        let (near_and_far, chunks) = match self.is_chunked() {
            true => (None, keys.start / self.chunk()..keys.end.div_ceil(self.chunk())),
            false => (Some([Region::Near, Region::Far]), 0..0),
        };
        near_and_far.into_iter().flatten().chain(chunks.map(Region::Chunk))
    }

    /// Returns the positions of the keys in `region` that the query at `position` attends to.
    pub fn visible(&self, region: Region, position: usize) -> Range<usize> {
        let end = position + 1;
        let near = match self.is_chunked() {
            true => position - position % self.chunk(),
            false => end.saturating_sub(self.near),
        };
        match region {
            Region::Near => near..end,
            Region::Far => 0..near.min(self.first),
            Region::Chunk(_) => {
                let start = self.origin(region);
                start.min(end)..start.saturating_add(self.near).min(end)
            }
        }
    }

    /// Returns the position that counts as 0 for a key in `region`, if keys are rotated once.
    pub fn origin(&self, region: Region) -> usize {
        match region {
            Region::Chunk(index) => index.saturating_mul(self.chunk()),
            Region::Near | Region::Far => 0,
        }
    }

    /// Returns the position of the key at `key`, counted from the origin of its region.
    pub fn from_origin(&self, key: usize) -> usize {
        if self.is_chunked() { key % self.chunk() } else { key }
    }

    /// Returns whether positions start again in each chunk, so that keys rotate once, to their place in it.
    pub(super) fn is_chunked(&self) -> bool {
        matches!(self.far, FarKeys::Chunked(_))
    }

    /// Returns the number of tokens of a chunk.
    fn chunk(&self) -> usize {
        self.near.max(1)
    }

    /// Returns the position of the first key that the query at `position` attends to.
    pub fn start(&self, position: usize) -> usize {
        let far = self.visible(Region::Far, position);
        if far.is_empty() { self.visible(Region::Near, position).start } else { far.start }
    }

    /// Returns the assigned position of the query at `position` for keys in `region`.
    pub fn query(&self, region: Region, position: usize) -> usize {
        match (region, self.far) {
            (Region::Near, _) => position,
            (Region::Chunk(index), FarKeys::Chunked(last)) => {
                let (chunk, place) = (self.chunk(), self.from_origin(position));
                let from_origin = match (position / chunk).saturating_sub(index) {
                    0 => place,
                    1 => place.saturating_add(chunk).min(last),
                    _ => (chunk - 1).saturating_add(chunk).min(last),
                };
                self.origin(region).saturating_add(from_origin)
            }
            // Each chunk has its own position.
            (Region::Chunk(_), _) | (Region::Far, FarKeys::Chunked(_)) => position,
            (Region::Far, FarKeys::AtDistance(distance)) => distance,
            // In steps of 1 / k, as for the keys: (i - j + w (k - 1)) / k = w + (d - w) / k.
            (Region::Far, FarKeys::Divided(k)) => position + self.near * (k - 1),
            (Region::Far, FarKeys::Grouped(group)) => {
                position / group + self.near - self.near / group
            }
            (Region::Far, FarKeys::Capped(last)) => position.min(last),
            (Region::Far, FarKeys::Shifted(by)) => position.saturating_sub(by),
        }
    }

    /// Returns the number of neighbouring keys in `region` that share a position: key j is assigned
    /// j divided by this number, rounded down. `None` if all keys are at position 0.
    pub fn group(&self, region: Region) -> Option<usize> {
        match (region, self.far) {
            (Region::Far, FarKeys::AtDistance(_)) => None,
            (Region::Far, FarKeys::Grouped(group)) => Some(group),
            _ => Some(1),
        }
    }

    /// Returns the distance in attention between the query at `position` and the key at `key`;
    /// `None` if the query does not attend to it.
    pub fn distance(&self, position: usize, key: usize) -> Option<f64> {
        let sees = |region: &Region| self.visible(*region, position).contains(&key);
        let region = self.regions(key..key + 1).find(sees)?;
        let key = self.group(region).map_or(0, |group| key / group);
        let steps = self.query(region, position) as f64 - key as f64;
        Some(match (region, self.far) {
            (Region::Far, FarKeys::Divided(k)) => steps / k as f64,
            _ => steps,
        })
    }

    /// Returns which cos/sin table rotates `region` in global layers.
    pub fn layers(&self, region: Region) -> Layers {
        match (region, self.far) {
            (Region::Far, FarKeys::Divided(_)) => Layers::Far,
            _ => Layers::Global,
        }
    }

    /// Returns the maximum number of tokens such that all distances are below `trained`.
    pub(super) fn reach(&self, trained: f64) -> f64 {
        let near = self.near as f64;
        match self.far {
            FarKeys::Divided(times) | FarKeys::Grouped(times) => {
                near.min(trained) + (trained - near).max(0.0) * times as f64
            }
            FarKeys::AtDistance(_) if near <= trained => f64::INFINITY,
            FarKeys::Chunked(last) if last as f64 <= trained => f64::INFINITY,
            FarKeys::Shifted(by) if near <= trained => trained + by as f64,
            FarKeys::AtDistance(_)
            | FarKeys::Chunked(_)
            | FarKeys::Shifted(_)
            | FarKeys::Capped(_) => trained,
        }
    }

    /// Returns the number of positions that distances in a sequence of `tokens` span. This is the
    /// inverse of `reach`.
    pub(super) fn span(&self, tokens: usize) -> usize {
        match self.far {
            FarKeys::Divided(times) | FarKeys::Grouped(times) => {
                tokens.min(self.near) + tokens.saturating_sub(self.near).div_ceil(times)
            }
            FarKeys::AtDistance(_) => tokens.min(self.near),
            FarKeys::Capped(last) | FarKeys::Chunked(last) => tokens.min(last.saturating_add(1)),
            FarKeys::Shifted(by) => tokens.min(self.near.max(tokens.saturating_sub(by))),
        }
    }

    /// Returns why all keys of a context of `context` tokens are at their true distance; `None` if
    /// some are not.
    pub(super) fn no_effect_reason(&self, context: usize) -> Option<String> {
        let unchanged = match self.far {
            FarKeys::Chunked(last) => last.saturating_add(1).min(2 * self.near),
            _ => self.near,
        };
        (unchanged >= context)
            .then(|| format!("in a context of {context}, which is within its window,"))
    }

    /// Returns a different text for each visibility. Saved prompt caches store a hash of it, so its
    /// words must not change when types are renamed.
    pub(super) fn identity(&self) -> String {
        let far = match self.far {
            FarKeys::AtDistance(distance) => format!("At({distance})"),
            FarKeys::Divided(k) => format!("Slower({k})"),
            FarKeys::Grouped(group) => format!("Grouped({group})"),
            FarKeys::Capped(last) => format!("Stopped({last})"),
            FarKeys::Shifted(by) => format!("Shifted({by})"),
            FarKeys::Chunked(last) => format!("Chunked({last})"),
        };
        format!("Sight {{ near: {}, first: {}, far: {far} }}", self.near, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::{FarKeys, Visibility};

    #[test]
    fn distances_of_a_window_beyond_the_trained_length_do_not_count() {
        let reach = |near, far| Visibility { near, first: usize::MAX, far }.reach(4096.0);
        assert_eq!(reach(1024, FarKeys::Divided(4)), 1024.0 + 3072.0 * 4.0);
        assert_eq!(reach(8192, FarKeys::Divided(4)), 4096.0);
        assert_eq!(reach(8192, FarKeys::Grouped(8)), 4096.0);
        assert_eq!(reach(1024, FarKeys::Shifted(896)), 4096.0 + 896.0);
        assert_eq!(reach(8192, FarKeys::Shifted(896)), 4096.0);
        assert_eq!(reach(4000, FarKeys::Chunked(4096)), f64::INFINITY);
        assert_eq!(reach(4000, FarKeys::Chunked(4097)), 4096.0);
    }

    /// Existing prompt caches store a hash of these words.
    #[test]
    fn identities_stay_as_they_were_saved() {
        let all = format!("Sight {{ near: {}, first: 0, far: At(0) }}", usize::MAX);
        assert_eq!(Visibility::ALL.identity(), all);
        for (far, saved) in [
            (FarKeys::Divided(4), "Slower(4)"),
            (FarKeys::Grouped(8), "Grouped(8)"),
            (FarKeys::Capped(99), "Stopped(99)"),
            (FarKeys::Shifted(32), "Shifted(32)"),
            (FarKeys::Chunked(99), "Chunked(99)"),
        ] {
            let found = Visibility { near: 96, first: 4, far }.identity();
            assert_eq!(found, format!("Sight {{ near: 96, first: 4, far: {saved} }}"));
        }
    }
}
