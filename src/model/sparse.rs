//! Sparse attention: answer tokens of a long sequence attend to the blocks of keys that matter.
//!
//! ```text
//! for each answer token, layer and KV head:
//!   for each whole block of 32 keys, each query of the head's group:
//!     estimate the sum of e^score from the summary of the block         (see `estimate`)
//!   share(block) = sum over queries of sum(block) / (sum over blocks of sum)
//!   choose the first block and the last ones, then blocks in order of their shares,
//!     until they have `mass` of all shares, within the limits
//!   attend to the chosen blocks, exactly
//! ```
//! The budget follows Twilight (Lin and others 2025, arXiv 2502.02770): a share of the attention
//! instead of a number of keys. Shares, not queries, are added up within a group, so that the block
//! that a single query looks for is not averaged away.

use std::fmt;

use rope_cpu_kernels::attention::BLOCK;

use super::{Attention, Config, Error};
use crate::rope::{Plan, Visibility};

/// The settings of sparse attention.
///
/// ```
/// use rope_cpu::model::{Options, SparseAttention};
///
/// let sparse_attention = Some(SparseAttention::new(0.98));
/// let options = Options { sparse_attention, ..Options::new(32_768) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseAttention {
    /// The share of the estimated attention that the chosen keys have, above 0.5 and below 1.
    pub mass: f32,
    /// Minimum length of a sequence, in tokens. Attention is dense in shorter ones.
    pub length_min: usize,
    /// Minimum keys that are chosen.
    pub keys_min: usize,
    /// Maximum share of the keys that is chosen, up to 1. [`SparseAttention::keys_min`] exceeds it.
    pub share_max: f32,
    /// Whether answers are dense, and only drafts of them are sparse
    /// ([`Engine::draft`](super::Engine::draft)).
    pub drafts_only: bool,
}

/// The number of first layers that stay dense: their attention is spread over most of a text.
const DENSE_LAYERS: usize = 2;
/// The number of last blocks that are always chosen, with the block of the token itself.
const LAST_BLOCKS: usize = 4;

impl SparseAttention {
    /// Returns the settings for a share of the attention: from 8,192 tokens on, 1,024 keys to a
    /// quarter of all.
    pub fn new(mass: f32) -> Self {
        SparseAttention {
            mass,
            length_min: 8192,
            keys_min: 1024,
            share_max: 0.25,
            drafts_only: false,
        }
    }

    /// Returns the settings for drafts of answers, which are dense: from 4,096 tokens on, 90 % of the
    /// attention, 512 keys to an eighth of all.
    ///
    /// ```
    /// use rope_cpu::model::{Options, SparseAttention};
    ///
    /// let sparse_attention = Some(SparseAttention::for_drafts());
    /// let options = Options { sparse_attention, ..Options::new(32_768) };
    /// ```
    pub fn for_drafts() -> Self {
        SparseAttention {
            mass: 0.9,
            length_min: 4096,
            keys_min: 512,
            share_max: 0.125,
            drafts_only: true,
        }
    }

    /// Checks that a model with this RoPE plan can use the settings, as [`Engine::new`] does.
    ///
    /// ```no_run
    /// use rope_cpu::{model::{Model, SparseAttention}, rope::Flags};
    ///
    /// let model = Model::open("model.gguf")?;
    /// let plan = model.rope_plan(&Flags::default(), 32_768)?;
    /// SparseAttention::new(0.98).check(model.config(), &plan)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Engine::new`]: super::Engine::new
    ///
    /// # Errors
    /// If they are out of range, no layer can be sparse, or the RoPE method moves keys.
    pub fn check(&self, config: &Config, plan: &Plan) -> Result<(), Error> {
        let SparseAttention { mass, share_max, .. } = *self;
        if !(mass > 0.5 && mass < 1.0) {
            return Err(Error::SparseMass(mass));
        }
        if !(share_max > 0.0 && share_max <= 1.0) {
            return Err(Error::SparseShare(share_max));
        }
        // A summary holds keys rotated by frequencies that do not change.
        if plan.visibility != Visibility::ALL || plan.by_position() {
            return Err(Error::SparseMethod);
        }
        match (0..config.layers.len()).any(|layer| serves(config, layer)) {
            true => Ok(()),
            false => Err(Error::SparseLayers { architecture: config.architecture.name }),
        }
    }

    /// Returns whether the token at `position` attends to chosen keys only.
    pub(super) fn applies(&self, position: usize) -> bool {
        position >= self.length_min
    }

    /// Returns the maximum blocks that are chosen for the token at `position`.
    pub(super) fn blocks_max(&self, position: usize) -> usize {
        let share = (position as f64 * f64::from(self.share_max)) as usize / BLOCK;
        share.max(self.blocks_min()).max(1 + LAST_BLOCKS).min(position / BLOCK + 1)
    }

    fn blocks_min(&self) -> usize {
        self.keys_min.div_ceil(BLOCK)
    }

    /// Chooses blocks of keys for the token at `position`, from `estimates.logs`. Writes their number
    /// to `out`, then their indices in ascending order.
    pub(super) fn choose(&self, position: usize, estimates: &mut Estimates, out: &mut [u32]) {
        let Estimates { group, logs, shares, order } = estimates;
        let own = position / BLOCK;
        add_shares(logs, *group, shares);
        // The token's own block has no summary, and is always chosen.
        shares.push(0.0);
        let always = |block: usize| block == 0 || block + LAST_BLOCKS > own;
        order.clear();
        order.extend((0..=own as u32).filter(|block| !always(*block as usize)));
        let share = |block: u32| shares[block as usize];
        order.sort_unstable_by(|a, b| share(*b).total_cmp(&share(*a)).then(a.cmp(b)));
        let mut count = shares.len() - order.len();
        let mut covered: f32 =
            (0..=own).filter(|block| always(*block)).map(|block| shares[block]).sum();
        let (wanted, most) = (self.mass * *group as f32, self.blocks_max(position));
        let more = order.iter().take_while(|block| {
            let taken = count < most && (count < self.blocks_min() || covered < wanted);
            count += 1;
            covered += share(**block);
            taken
        });
        let more = more.count();
        order.truncate(more);
        order.extend((0..=own as u32).filter(|block| always(*block as usize)));
        order.sort_unstable();
        out[0] = order.len() as u32;
        out[1..=order.len()].copy_from_slice(order);
    }
}

/// Formats one line: `Sparse attention: 98 % of the estimate, ..`.
impl fmt::Display for SparseAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SparseAttention { mass, length_min, keys_min, share_max, drafts_only } = *self;
        let (title, tokens) = match drafts_only {
            false => ("Sparse attention", "generated tokens"),
            true => ("Sparse drafts", "drafts"),
        };
        write!(
            f,
            "{title}: from {length_min} tokens on, {tokens} attend to keys with {} % of the estimated \
             attention, {keys_min} keys to {} % of all",
            100.0 * mass,
            100.0 * share_max
        )
    }
}

/// A worker's buffers for the choice of blocks.
#[derive(Default)]
pub struct Estimates {
    /// The number of queries.
    pub group: usize,
    /// The logarithm of each sum of `e^score`: (blocks, queries).
    pub logs: Vec<f32>,
    /// The sum of the queries' shares of each block.
    shares: Vec<f32>,
    order: Vec<u32>,
}

impl Estimates {
    /// Prepares for the estimates of `blocks` blocks for each of `group` queries.
    pub fn reset(&mut self, group: usize, blocks: usize) {
        self.group = group;
        self.logs.clear();
        self.logs.resize(blocks * group, f32::NEG_INFINITY);
    }

    /// Caps the mean score of each block, like scores.
    pub fn cap(&mut self, cap: f32) {
        let ln_block = (BLOCK as f32).ln();
        for log in &mut self.logs {
            *log = cap * ((*log - ln_block) / cap).tanh() + ln_block;
        }
    }
}

/// Computes for each block the sum of the shares that it has of each query's attention. Overwrites
/// `logs`: (blocks, queries).
fn add_shares(logs: &mut [f32], group: usize, shares: &mut Vec<f32>) {
    shares.clear();
    shares.resize(logs.len() / group, 0.0);
    for query in 0..group {
        let of_query = || logs.iter().skip(query).step_by(group);
        let maximum = of_query().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for log in logs.iter_mut().skip(query).step_by(group) {
            *log = (*log - maximum).exp();
            sum += *log;
        }
        for (share, e) in shares.iter_mut().zip(logs.iter().skip(query).step_by(group)) {
            *share += e / sum;
        }
    }
}

/// Returns whether sparse attention serves a layer, and the pages of the layer have summaries.
pub(super) fn serves(config: &Config, layer: usize) -> bool {
    let Some(attention) = &config.layers[layer].attention else { return false };
    let Attention { window, ref latent, shared_with, .. } = *attention;
    config.causal
        && window.is_none()
        && latent.is_none()
        && match shared_with {
            Some(stored) => serves(config, stored),
            None => layer >= DENSE_LAYERS,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the blocks that are chosen for one query with these logarithms.
    fn chosen(sparse: SparseAttention, position: usize, logs: &[f32]) -> Vec<u32> {
        let mut estimates = Estimates { group: 1, logs: logs.to_vec(), ..Default::default() };
        let mut out = vec![0; 1 + sparse.blocks_max(position)];
        sparse.choose(position, &mut estimates, &mut out);
        out[1..=out[0] as usize].to_vec()
    }

    const SPARSE: SparseAttention = SparseAttention {
        mass: 0.9,
        length_min: 0,
        keys_min: 0,
        share_max: 1.0,
        drafts_only: false,
    };

    #[test]
    fn a_block_with_the_mass_is_chosen_beside_the_first_and_last_ones() {
        let mut logs = [0.0; 99];
        logs[41] = 20.0;
        assert_eq!(chosen(SPARSE, 99 * 32 + 5, &logs), [0, 41, 96, 97, 98, 99]);
        // All are alike: 90 % of them are needed, and the first ones are taken.
        let all = chosen(SPARSE, 99 * 32 + 5, &[0.0; 99]);
        assert_eq!(all, (0..87).chain(96..100).collect::<Vec<_>>());
        // The mass is in the last blocks.
        logs[98] = 40.0;
        assert_eq!(chosen(SPARSE, 99 * 32 + 5, &logs), [0, 96, 97, 98, 99]);
    }

    #[test]
    fn limits_hold_for_every_mass() {
        let mut logs = [0.0; 99];
        logs[41] = 20.0;
        let least = SparseAttention { keys_min: 10 * 32, ..SPARSE };
        assert_eq!(chosen(least, 99 * 32, &logs), [0, 1, 2, 3, 4, 41, 96, 97, 98, 99]);
        let most = SparseAttention { share_max: 0.1, ..SPARSE };
        assert_eq!(chosen(most, 99 * 32, &[0.0; 99]), [0, 1, 2, 3, 4, 96, 97, 98, 99]);
        // A short sequence has fewer blocks than are always chosen.
        assert_eq!(chosen(most, 70, &[0.0; 2]), [0, 1, 2]);
        assert_eq!(chosen(most, 3, &[]), [0]);
    }

    #[test]
    fn each_query_of_a_group_has_an_equal_say() {
        // One query gives nearly everything to block 7, three others to block 9, with larger scores.
        let group = 4;
        let mut logs = vec![0.0; 40 * group];
        logs[7 * group] = 12.0;
        logs[9 * group + 1..][..3].fill(50.0);
        let mut estimates = Estimates { group, logs, ..Default::default() };
        let mut out = [0; 42];
        SPARSE.choose(40 * 32, &mut estimates, &mut out);
        assert_eq!(out[..8], [7, 0, 7, 9, 37, 38, 39, 40]);
    }
}
