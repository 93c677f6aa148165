//! Sparse attention: tokens of a long sequence attend to the blocks of keys that matter.
//!
//! ```text
//! for each answer token, or group of prompt tokens, each layer and KV head:
//!   for each whole block of 32 keys, each query:
//!     estimate the sum of e^score from the summary of the block         (see `estimate`)
//!   share(block) = sum over queries of sum(block) / (sum over blocks of sum)
//!   choose the first block and the last ones, then blocks in order of their shares,
//!     until they have `mass` of all shares, within the limits
//!   attend to the chosen blocks, exactly
//! ```
//! The budget follows Twilight (Lin and others 2025, arXiv 2502.02770): a share of the attention
//! instead of a number of keys. Shares, not queries, are added up, so that the block that a single
//! query looks for is not averaged away.
//!
//! Prompt tokens choose together, for the positions between two multiples of [`group_rows`]. So the
//! choice does not depend on other sequences, or on the size of micro-batches: the engine cuts
//! prompts at these multiples. A group is cut only where a prompt starts or ends within it, or a step
//! has room for less than a group. Each piece then chooses for itself. Some rows of a group speak
//! for all ([`speaks`]), and blocks are chosen in pairs, since the kernel weights values in strips of
//! 64 positions.

use std::ops::RangeInclusive;

use rope_cpu_kernels::attention::BLOCK;

use super::{
    Attention, Config, Error,
    attention::TILE_QUERIES,
    batch::{Role, Row},
};
use crate::{
    rope::{Plan, Visibility},
    settings::Setting,
};

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
/// Maximum prompt tokens that choose together.
const GROUP_ROWS: usize = 128;
/// The number of prompt tokens of which one takes part in the choice.
const SPEAKER: usize = 8;

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

    /// Returns the settings for a share of the attention of prompts: from 16,384 tokens on, 1,024 keys
    /// to a quarter of all.
    pub fn for_prompts(mass: f32) -> Self {
        SparseAttention { length_min: 16_384, ..Self::new(mass) }
    }

    /// Describes the settings for tokens of a role in one line: `Sparse attention: from 8192 tokens
    /// on, generated tokens attend to ..`.
    pub fn line(&self, role: Role) -> String {
        let SparseAttention { mass, length_min, keys_min, share_max, drafts_only } = *self;
        let (title, tokens) = match role {
            Role::Answer if drafts_only => ("Sparse drafts", "drafts"),
            Role::Answer => ("Sparse attention", "generated tokens"),
            Role::Prompt => ("Sparse prompt", "prompt tokens"),
        };
        let (mass, most) = (100.0 * mass, 100.0 * share_max);
        format!(
            "{title}: from {length_min} tokens on, {tokens} attend to keys with {mass} % of the estimated \
             attention, {keys_min} keys to {most} % of all"
        )
    }

    /// Checks that a model with this RoPE plan can use the settings for tokens of a role.
    ///
    /// # Errors
    /// If they are out of range, no layer can be sparse, or the RoPE method moves keys.
    pub(super) fn check(&self, role: Role, config: &Config, plan: &Plan) -> Result<(), Error> {
        let setting = match role {
            Role::Answer => Setting::SPARSE_ATTENTION,
            Role::Prompt => Setting::SPARSE_PROMPT,
        };
        let SparseAttention { mass, share_max, .. } = *self;
        if !(mass > 0.5 && mass < 1.0) {
            return Err(Error::SparseMass { setting, mass });
        }
        if !(share_max > 0.0 && share_max <= 1.0) {
            return Err(Error::SparseShare { setting, share: share_max });
        }
        // A summary holds keys rotated by frequencies that do not change.
        if plan.visibility != Visibility::ALL || plan.by_position() {
            return Err(Error::SparseMethod { setting });
        }
        match (0..config.layers.len()).any(|layer| serves(config, layer)) {
            true => Ok(()),
            false => Err(Error::SparseLayers { setting, architecture: config.architecture.name }),
        }
    }

    /// Returns whether tokens from `position` on attend to chosen keys only.
    pub(super) fn applies(&self, position: usize) -> bool {
        position >= self.length_min
    }

    /// Returns the maximum blocks that are chosen for a group of tokens.
    pub(super) fn blocks_max(&self, group: &Group) -> usize {
        let (first, last) = (*group.positions.start(), *group.positions.end());
        let share = (last as f64 * f64::from(self.share_max)) as usize / BLOCK;
        // The first unit; the last blocks, from the start of a unit on; and all blocks of the group.
        let always = 2 * group.together - 1 + LAST_BLOCKS + last / BLOCK - first / BLOCK;
        share.max(self.blocks_min()).max(always).min(last / BLOCK + 1)
    }

    fn blocks_min(&self) -> usize {
        self.keys_min.div_ceil(BLOCK)
    }

    /// Chooses blocks of keys for a group of tokens, from the shares in `estimates`. Writes their
    /// number to `out`, then their indices in ascending order.
    pub(super) fn choose(&self, group: &Group, estimates: &mut Estimates, out: &mut [u32]) {
        let Estimates { queries, shares, order, .. } = estimates;
        let (together, blocks) = (group.together, group.positions.end() / BLOCK + 1);
        // Blocks from the first token's own one on have no estimate, and are always chosen.
        shares.resize(blocks, 0.0);
        let units = 0..blocks.div_ceil(together) as u32;
        let of = |unit: u32| {
            let start = unit as usize * together;
            start..(start + together).min(blocks)
        };
        let share = |unit: u32| shares[of(unit)].iter().sum::<f32>();
        let always = |unit: &u32| *unit == 0 || *unit as usize >= group.recent();
        order.clear();
        order.extend(units.clone().filter(|unit| !always(unit)));
        order.sort_unstable_by(|a, b| share(*b).total_cmp(&share(*a)).then(a.cmp(b)));
        let mut count = blocks - order.len() * together;
        let mut covered: f32 = units.clone().filter(always).map(share).sum();
        let (wanted, most) = (self.mass * *queries as f32, self.blocks_max(group));
        let more = order.iter().take_while(|unit| {
            let taken = count + together <= most && (count < self.blocks_min() || covered < wanted);
            count += together;
            covered += share(**unit);
            taken
        });
        let more = more.count();
        order.truncate(more);
        order.extend(units.filter(always));
        order.sort_unstable();
        let chosen = order.iter().flat_map(|unit| of(*unit));
        let mut len = 0;
        for (block, to) in chosen.zip(&mut out[1..]) {
            *to = block as u32;
            len += 1;
        }
        out[0] = len;
    }
}

/// Tokens that choose together.
pub struct Group {
    /// Their positions.
    pub positions: RangeInclusive<usize>,
    /// The number of neighbouring blocks that are chosen together.
    pub together: usize,
}

impl Group {
    /// Returns the group of a tile's rows.
    pub fn of(rows: &[Row], role: Role) -> Self {
        let together = match role {
            Role::Answer => 1,
            Role::Prompt => 2,
        };
        Group { positions: rows[0].position..=rows[rows.len() - 1].position, together }
    }

    /// Returns the index of the first of the last units of blocks, which are always chosen.
    fn recent(&self) -> usize {
        (self.positions.start() / BLOCK).saturating_sub(LAST_BLOCKS - 1) / self.together
    }
}

/// Returns the number of positions that choose together, in layers with `group` query heads for each
/// KV head: a power of two. Prompt tokens have as many as share a task of attention.
pub fn group_rows(role: Role, group: usize) -> usize {
    match role {
        Role::Answer => 1,
        Role::Prompt => 1 << (TILE_QUERIES / group).clamp(1, GROUP_ROWS).ilog2(),
    }
}

/// Returns whether the queries of a row take part in the choice of its group: those at the end of
/// each 8 positions, and the last one.
pub fn speaks(rows: &[Row], index: usize) -> bool {
    (rows[index].position + 1).is_multiple_of(SPEAKER) || index + 1 == rows.len()
}

/// A worker's buffers for the choice of blocks.
#[derive(Default)]
pub struct Estimates {
    /// The logarithm of each sum of `e^score`, of one row: (blocks, query heads).
    pub logs: Vec<f32>,
    /// The number of queries of all rows so far.
    queries: usize,
    /// The sum of the shares that each block has of each query's attention.
    shares: Vec<f32>,
    order: Vec<u32>,
}

impl Estimates {
    /// Prepares for the choice among `blocks` blocks.
    pub fn reset(&mut self, blocks: usize) {
        self.queries = 0;
        self.shares.clear();
        self.shares.resize(blocks, 0.0);
    }

    /// Prepares for the estimates of a row with `heads` query heads.
    pub fn start_row(&mut self, heads: usize) {
        self.logs.clear();
        self.logs.resize(self.shares.len() * heads, f32::NEG_INFINITY);
    }

    /// Adds the shares of the row's `heads` query heads. The mean score of each block is capped like
    /// scores. Overwrites the row's estimates.
    pub fn end_row(&mut self, heads: usize, cap: Option<f32>) {
        let Estimates { logs, queries, shares, .. } = self;
        if let Some(cap) = cap {
            let ln_block = (BLOCK as f32).ln();
            for log in &mut *logs {
                *log = cap * ((*log - ln_block) / cap).tanh() + ln_block;
            }
        }
        *queries += heads;
        for query in 0..heads {
            let of_query = || logs.iter().skip(query).step_by(heads);
            let maximum = of_query().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for log in logs.iter_mut().skip(query).step_by(heads) {
                *log = (*log - maximum).exp();
                sum += *log;
            }
            for (share, e) in shares.iter_mut().zip(logs.iter().skip(query).step_by(heads)) {
                *share += e / sum;
            }
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

    /// Returns estimates of one row, with the logarithms `logs` (blocks, heads).
    fn estimates(logs: Vec<f32>, heads: usize) -> Estimates {
        let mut estimates = Estimates::default();
        estimates.reset(logs.len() / heads);
        estimates.logs = logs;
        estimates.end_row(heads, None);
        estimates
    }

    /// Returns the blocks that are chosen for a group.
    fn choose(sparse: SparseAttention, group: &Group, mut estimates: Estimates) -> Vec<u32> {
        let mut out = vec![0; 1 + sparse.blocks_max(group)];
        sparse.choose(group, &mut estimates, &mut out);
        out[1..=out[0] as usize].to_vec()
    }

    /// Returns the blocks that are chosen for one query with these logarithms.
    fn chosen(sparse: SparseAttention, position: usize, logs: &[f32]) -> Vec<u32> {
        let group = Group { positions: position..=position, together: 1 };
        choose(sparse, &group, estimates(logs.to_vec(), 1))
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
    fn each_query_has_an_equal_say() {
        // One query gives nearly everything to block 7, three others to block 9, with larger scores.
        let heads = 4;
        let mut logs = vec![0.0; 40 * heads];
        logs[7 * heads] = 12.0;
        logs[9 * heads + 1..][..3].fill(50.0);
        let group = Group { positions: 40 * 32..=40 * 32, together: 1 };
        let found = choose(SPARSE, &group, estimates(logs.clone(), heads));
        assert_eq!(found, [0, 7, 9, 37, 38, 39, 40]);
        // The same queries, as rows of a prompt with one head.
        let mut rows = Estimates::default();
        rows.reset(40);
        for query in 0..heads {
            rows.start_row(1);
            rows.logs.copy_from_slice(
                &logs.iter().skip(query).step_by(heads).copied().collect::<Vec<_>>(),
            );
            rows.end_row(1, None);
        }
        assert_eq!(choose(SPARSE, &group, rows), found);
    }

    #[test]
    fn prompts_choose_pairs_beside_all_blocks_of_their_own() {
        let mut logs = vec![0.0; 40];
        logs[13] = 20.0;
        // From the middle of block 40 to the start of block 43.
        let group = Group { positions: 40 * 32 + 16..=43 * 32, together: 2 };
        let few = SparseAttention { share_max: 0.01, ..SPARSE };
        for sparse in [SPARSE, few] {
            let found = choose(sparse, &group, estimates(logs.clone(), 1));
            let pair = if sparse == few { 0..0 } else { 12..14 };
            assert_eq!(found, (0..2).chain(pair).chain(36..44).collect::<Vec<_>>());
        }
        let all = SparseAttention { keys_min: usize::MAX, ..SPARSE };
        for last in 40 * 32..44 * 32 {
            let group = Group { positions: 40 * 32..=last, together: 2 };
            let found = choose(all, &group, estimates(logs.clone(), 1));
            assert_eq!(found, (0..=last as u32 / 32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn groups_fill_a_tile_of_queries() {
        let rows = |group| group_rows(Role::Prompt, group);
        assert_eq!([1, 2, 3, 4, 6, 7, 8, 71, 1000].map(rows), [128, 128, 64, 64, 32, 32, 32, 2, 1]);
        assert_eq!(group_rows(Role::Answer, 4), 1);
    }
}
