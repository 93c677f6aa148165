//! The choice of experts.

use super::keys::Keys;
use crate::{
    gguf::Value,
    model::{Architecture, Error},
};

/// The keys of a file that describe the choice of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingKeys {
    /// Nothing: weights are the softmax of scores, and sum to 1.
    None,
    /// How scores become weights, which sum to 1.
    Gating,
    /// How scores become weights, whether these sum to 1, their factor, and groups of experts.
    All,
    /// [`RoutingKeys::All`], with sigmoids of scores by default.
    AllOfSigmoids,
}

impl RoutingKeys {
    /// Returns whether keys set the sum of weights, their factor, and groups.
    pub fn sets_all(self) -> bool {
        matches!(self, RoutingKeys::All | RoutingKeys::AllOfSigmoids)
    }
}

/// The choice of experts and the weights of their outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// How scores become probabilities.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are their probabilities scaled to sum to 1; otherwise
    /// they are the probabilities.
    pub sums_to_one: bool,
    /// The factor of all weights.
    pub scale: f32,
    /// The number of groups of experts, and the number of groups that the experts of a token are chosen
    /// from; `None` if there are no groups.
    pub groups: Option<[usize; 2]>,
}

impl Routing {
    /// Returns the routing without groups, with weights that sum to 1.
    pub(crate) fn plain(gating: Gating) -> Self {
        Routing { gating, sums_to_one: true, scale: 1.0, groups: None }
    }
}

/// How the scores of experts become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// The softmax of all scores.
    Softmax,
    /// The sigmoid of each score.
    Sigmoid,
}

/// Reads the choice of `used` of `count` experts.
pub fn read(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    count: usize,
    used: usize,
) -> Result<Routing, Error> {
    const SCALE: &str = "expert_weights_scale";
    let scale = keys.positive(SCALE)?.unwrap_or(1.0);
    let gating = gating(keys, architecture)?;
    if architecture.network.routing.sets_all() {
        let sums_to_one = keys.metadata.bool(&keys.name("expert_weights_norm"))?.unwrap_or(false);
        return Ok(Routing { gating, sums_to_one, scale, groups: groups(keys, count, used)? });
    }
    if scale != 1.0 {
        let reason = "only 1 is supported: the weights of experts sum to 1".into();
        return Err(Error::Value { key: keys.name(SCALE), value: scale.to_string(), reason });
    }
    Ok(Routing::plain(gating))
}

/// Reads the number of groups of experts, and of groups that `used` experts are chosen from.
fn groups(keys: &Keys<'_, '_>, count: usize, used: usize) -> Result<Option<[usize; 2]>, Error> {
    const GROUPS: &str = "expert_group_count";
    const USED: &str = "expert_group_used_count";
    let groups = match keys.number(GROUPS)? {
        None | Some(0 | 1) => return Ok(None),
        Some(_) => keys.size(GROUPS, count)?,
    };
    if !count.is_multiple_of(groups) {
        let reason = format!("must divide the number of experts, which is {count}");
        return Err(Error::Value { key: keys.name(GROUPS), value: groups.to_string(), reason });
    }
    let used_groups = keys.size(USED, groups)?;
    if used_groups * (count / groups) < used {
        let reason = format!("so many groups have fewer than the {used} experts of a token");
        return Err(Error::Value { key: keys.name(USED), value: used_groups.to_string(), reason });
    }
    Ok(Some([groups, used_groups]).filter(|_| used_groups < groups))
}

/// Reads how the scores of experts become probabilities.
fn gating(keys: &Keys<'_, '_>, architecture: &Architecture) -> Result<Gating, Error> {
    const GATING: &str = "expert_gating_func";
    if architecture.network.routing == RoutingKeys::None {
        // The key stays unread, so that another value is refused.
        return Ok(Gating::Softmax);
    }
    let unset = matches!(keys.number(GATING)?, None | Some(0));
    match architecture.network.routing {
        RoutingKeys::All if unset => return default_gating(keys),
        RoutingKeys::AllOfSigmoids if unset => return Ok(Gating::Sigmoid),
        RoutingKeys::None | RoutingKeys::Gating | RoutingKeys::All | RoutingKeys::AllOfSigmoids => {
        }
    }
    match keys.size(GATING, usize::MAX)? {
        1 => Ok(Gating::Softmax),
        2 => Ok(Gating::Sigmoid),
        other => {
            let reason = "must be 1 (softmax) or 2 (sigmoid)".into();
            Err(Error::Value { key: keys.name(GATING), value: other.to_string(), reason })
        }
    }
}

/// Returns the gating of files without the key. The first files of GLM-4.7-Flash lack it; llama.cpp
/// knows them by their layers and their vocabulary, or its list.
fn default_gating(keys: &Keys<'_, '_>) -> Result<Gating, Error> {
    let layers = keys.number("block_count")?.unwrap_or(0);
    let listed = match keys.metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => Some(tokens.len),
        _ => None,
    };
    let vocabulary = keys.number("vocab_size")?.or(listed);
    match (layers, vocabulary) {
        (47 | 48, Some(154_880)) => Ok(Gating::Sigmoid),
        _ => Ok(Gating::Softmax),
    }
}
