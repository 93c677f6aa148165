//! What a query sees, and where attention takes it and the keys to be.

use std::ops::Range;

use super::Layers;

/// The keys that queries of a layer see: near ones at their distance, and of the others the first
/// ones in some other way. In numbers alone, for the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Keys at distances below this are near.
    pub near: usize,
    /// Of keys that are not near, those of the first so many positions are seen.
    pub first: usize,
    /// Where attention takes these to be.
    pub far: Far,
}

/// Where attention takes far keys, and the queries that see them, to be. The score depends on the
/// difference of the two alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// All keys at one distance.
    At(usize),
    /// The distance d at w + (d - w) / k, w being that up to which keys are near.
    Slower(usize),
    /// Keys and queries at their position over the size of a group, rounded down; queries as much
    /// further as makes distances go on from the near ones.
    Grouped(usize),
    /// Keys where they are, queries never beyond this position.
    Stopped(usize),
}

/// Keys that are seen alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those that are near.
    Near,
    /// Those that are not.
    Far,
}

impl Part {
    /// Both.
    pub const ALL: [Part; 2] = [Part::Near, Part::Far];
}

impl Sight {
    /// Everything, at its distance.
    pub const ALL: Sight = Sight::window(usize::MAX);

    /// The last `tokens`.
    pub const fn window(tokens: usize) -> Sight {
        Sight { near: tokens, first: 0, far: Far::At(0) }
    }

    /// The keys of a part that the query at `position` sees.
    pub fn visible(&self, part: Part, position: usize) -> Range<usize> {
        let near = (position + 1).saturating_sub(self.near);
        match part {
            Part::Near => near..position + 1,
            Part::Far => 0..near.min(self.first),
        }
    }

    /// The first key that the query at `position` sees.
    pub fn start(&self, position: usize) -> usize {
        let far = self.visible(Part::Far, position);
        if far.is_empty() { self.visible(Part::Near, position).start } else { far.start }
    }

    /// Where the query at `position` is taken to be.
    pub fn query(&self, part: Part, position: usize) -> usize {
        match (part, self.far) {
            (Part::Near, _) => position,
            (Part::Far, Far::At(distance)) => distance,
            // In steps of 1 / k, as are its keys: (i - j + w (k - 1)) / k = w + (d - w) / k.
            (Part::Far, Far::Slower(k)) => position + self.near * (k - 1),
            (Part::Far, Far::Grouped(group)) => position / group + self.near - self.near / group,
            (Part::Far, Far::Stopped(last)) => position.min(last),
        }
    }

    /// How many neighbouring keys are taken to be at one place: key j is at j over this, rounded
    /// down. `None` if all are at 0.
    pub fn group(&self, part: Part) -> Option<usize> {
        match (part, self.far) {
            (Part::Far, Far::At(_)) => None,
            (Part::Far, Far::Grouped(group)) => Some(group),
            _ => Some(1),
        }
    }

    /// The rows of cosines and sines by which a part of a global layer rotates.
    pub fn layers(&self, part: Part) -> Layers {
        match (part, self.far) {
            (Part::Far, Far::Slower(_)) => Layers::Far,
            _ => Layers::Global,
        }
    }
}
