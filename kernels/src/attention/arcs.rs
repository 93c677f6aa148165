//! The cosines and sines that rotate a bias to all positions of a page, in arcs of 32 positions
//! (see [`super::bias`]).

use super::PAGE;
use crate::isa::LANES;

/// The number of positions of an arc. Each lane is a distance from the center, on both sides.
pub(super) const ARC: usize = 2 * LANES;

/// The cosines and sines that rotate a bias to all positions of a page.
#[derive(Clone, Debug)]
pub struct Arcs {
    /// (arcs, `n_rot`): for each arc the row that rotates from the page's start to its center.
    pub(super) centers: Vec<f32>,
    /// (`n_rot`): the cosines of all pairs, then their sines, where lanes are distances.
    pub(super) distances: Vec<[f32; LANES]>,
}

impl Arcs {
    /// Computes the cosines and sines of pairs that rotate by `inv_freq` radians per position,
    /// times `scale`.
    pub fn new(inv_freq: &[f64], scale: f64) -> Self {
        let angles = |distance: f64| inv_freq.iter().map(move |theta| distance * theta);
        let centers = (0..PAGE / ARC).map(|arc| (arc * ARC + LANES) as f64 - 0.5);
        let row = |c| angles(c).map(f64::cos).chain(angles(c).map(f64::sin));
        let lanes = |function: fn(f64) -> f64| {
            let lane = move |theta, lane| function((lane as f64 + 0.5) * theta) * scale;
            inv_freq.iter().map(move |theta| std::array::from_fn(|i| lane(theta, i) as f32))
        };
        Arcs {
            centers: centers.flat_map(row).map(|x| x as f32).collect(),
            distances: lanes(f64::cos).chain(lanes(f64::sin)).collect(),
        }
    }
}
