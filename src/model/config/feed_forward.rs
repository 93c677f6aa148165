//! The configuration of feed-forward networks.

use rope_cpu_kernels::vector::{Activation, Ungated};

use super::{
    DIMENSION_MAX, EXPERTS_MAX, LAYERS_MAX, Routing,
    keys::Keys,
    recurrence::Recurrent,
    routing::{self, RoutingKeys},
};
use crate::model::{Architecture, Error};

/// The feed-forward networks of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkFamily {
    /// The shape of a network.
    pub inner: Inner,
    /// The use of mixtures of experts in place of the network.
    pub experts: Experts,
    /// The keys that describe the choice of experts.
    pub routing: RoutingKeys,
    /// The factor of the outputs of experts and of the network beside them, in layers with both.
    pub mixture_scale: f32,
}

/// The inner part of a feed-forward network, between its input and its down-projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inner {
    /// `activation(gate) * up`.
    Gated(Activation),
    /// `activation(gate) * up`, with gate and up in one tensor.
    GatedInOne(Activation),
    /// A function of `up`.
    Ungated(Ungated),
    /// `activation(up)`.
    Alone(Activation),
    /// xIELU of `up`, with parameters for each layer in the file.
    Xielu,
}

/// A family's use of mixtures of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experts {
    /// No model of the family has experts.
    Never,
    /// A model has experts if its file sets their number.
    Sometimes,
    /// All models of the family have experts.
    Always,
    /// All models have experts, in the layers that the file sets.
    SomeLayers,
    /// A model has experts if its file sets their number. They compute a token beside the network, and
    /// both have norms of their own.
    Beside,
}

impl NetworkFamily {
    /// Networks with gates, or the mixtures that a file has, weighted by the softmax of scores.
    pub const PLAIN: Self = NetworkFamily {
        inner: Inner::Gated(Activation::Silu),
        experts: Experts::Sometimes,
        routing: RoutingKeys::None,
        mixture_scale: 1.0,
    };
}

/// The feed-forward network of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedForward {
    /// None.
    None,
    /// One network, with the elements of its inner activations.
    Dense(usize),
    /// A mixture of experts.
    Experts(Mixture),
}

/// The dimensions of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// The number of experts.
    pub count: usize,
    /// The number of experts that compute a token.
    pub used: usize,
    /// The elements of the inner activations of an expert.
    pub feed_forward: usize,
    /// The elements of the inner activations of the shared network, which computes every token in
    /// addition to the experts; 0 if there is none.
    pub shared: usize,
    /// The choice of experts and their weights.
    pub routing: Routing,
}

impl FeedForward {
    /// Returns the elements of the inner activations of a network.
    pub fn width(self) -> usize {
        match self {
            FeedForward::None => 0,
            FeedForward::Dense(width) => width,
            FeedForward::Experts(mixture) => mixture.feed_forward.max(mixture.shared),
        }
    }

    /// Returns the dimensions of the mixture of experts, if the layer has one.
    pub fn mixture(self) -> Option<Mixture> {
        match self {
            FeedForward::None | FeedForward::Dense(_) => None,
            FeedForward::Experts(mixture) => Some(mixture),
        }
    }
}

/// The function of a feed-forward network's inner activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// `activation(gate) * up`.
    Gated(Activation),
    /// A function of `up` alone.
    Ungated(Ungated),
    /// `activation(up)`.
    Alone(Activation),
}

pub(super) const NETWORK: &str = "feed_forward_length";
/// The width of an expert; 0 if it has the network's.
const EXPERT: &str = "expert_feed_forward_length";
/// The number of shared networks, each as wide as an expert; 0 for none.
const SHARED: &str = "expert_shared_count";
/// The period of layers with experts; 0 if all after the first ones have them.
const STEP: &str = "interleave_moe_layer_step";
/// The number of first layers without experts.
pub(super) const DENSE: &str = "leading_dense_block_count";

/// Reads the function of each layer's feed-forward network.
pub fn functions(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
) -> Result<Vec<Function>, Error> {
    Ok(match architecture.network.inner {
        Inner::Gated(activation) | Inner::GatedInOne(activation) => {
            vec![Function::Gated(activation); layers]
        }
        Inner::Ungated(function) => vec![Function::Ungated(function); layers],
        Inner::Alone(activation) => vec![Function::Alone(activation); layers],
        Inner::Xielu => {
            let [negative, positive, linear, limit] = ["alpha_n", "alpha_p", "beta", "eps"]
                .map(|name| keys.floats(&format!("xielu.{name}"), layers));
            let (negative, positive, linear, limit) = (negative?, positive?, linear?, limit?);
            let one = |layer: usize| {
                Function::Ungated(Ungated::Xielu {
                    positive: softplus(positive[layer]),
                    negative: linear[layer] + softplus(negative[layer]),
                    linear: linear[layer],
                    limit: limit[layer],
                })
            };
            (0..layers).map(one).collect()
        }
    })
}

/// Computes `ln(1 + e^x)`.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Reads the dimensions of each layer's feed-forward network.
pub fn read(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
) -> Result<Vec<FeedForward>, Error> {
    let alone = architecture.recurrent == Recurrent::Mamba2Alone;
    let least = |_| usize::from(!alone);
    let widths = || keys.by_layer_from(&least, NETWORK, layers, DIMENSION_MAX, None);
    let of_width = |width, own| if width > 0 { own } else { FeedForward::None };
    Ok(match (mixture(keys, architecture, layers)?, architecture.network.experts) {
        (None, _) => {
            widths()?.into_iter().map(|width| of_width(width, FeedForward::Dense(width))).collect()
        }
        (Some(mixture), _) if alone => {
            let own = FeedForward::Experts(mixture);
            widths()?.into_iter().map(|width| of_width(width, own)).collect()
        }
        (Some(mixture), Experts::SomeLayers) => {
            let first = keys.number(DENSE)?.unwrap_or(0);
            let step = match keys.number(STEP)? {
                None | Some(0) => 1,
                Some(_) => keys.size(STEP, LAYERS_MAX)?,
            };
            let has_experts = |layer: usize| layer >= first && (layer + 1).is_multiple_of(step);
            let one = |(layer, width): (usize, usize)| match has_experts(layer) {
                true => FeedForward::Experts(mixture),
                false => FeedForward::Dense(width),
            };
            widths()?.into_iter().enumerate().map(one).collect()
        }
        (Some(mixture), Experts::Beside) => {
            let beside = |shared| FeedForward::Experts(Mixture { shared, ..mixture });
            widths()?.into_iter().map(beside).collect()
        }
        // If all feed-forward networks are experts, the file need not contain feed_forward_length.
        (Some(mixture), _) => vec![FeedForward::Experts(mixture); layers],
    })
}

/// Reads the dimensions of a mixture of experts, if the model has one.
fn mixture(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
) -> Result<Option<Mixture>, Error> {
    let count = keys.number("expert_count")?.unwrap_or(0);
    match (architecture.network.experts, count) {
        // Files of dense Hunyuan models have one.
        (Experts::Never, 1) => Ok(None),
        (Experts::SomeLayers, 0) if architecture.latent => Ok(None),
        (Experts::Always | Experts::SomeLayers, _)
        | (Experts::Sometimes | Experts::Beside, 1..) => {
            let count = keys.size("expert_count", EXPERTS_MAX)?;
            let used = keys.size("expert_used_count", count)?;
            let feed_forward = match keys.number(EXPERT)? {
                None | Some(0) => keys.uniform(NETWORK, layers, DIMENSION_MAX, None)?,
                Some(_) => keys.size(EXPERT, DIMENSION_MAX)?,
            };
            let shared = match keys.number("expert_shared_feed_forward_length")? {
                None | Some(0) if architecture.network.routing.sets_all() => {
                    match keys.number(SHARED)? {
                        None | Some(0) => 0,
                        Some(_) => {
                            feed_forward * keys.size(SHARED, DIMENSION_MAX / feed_forward)?
                        }
                    }
                }
                None | Some(0) => 0,
                Some(_) => keys.size("expert_shared_feed_forward_length", DIMENSION_MAX)?,
            };
            let mut routing = routing::read(keys, architecture, count, used)?;
            if shared > 0 {
                routing.scale *= architecture.network.mixture_scale;
            }
            Ok(Some(Mixture { count, used, feed_forward, shared, routing }))
        }
        (Experts::Never, 1..) => Err(Error::Experts { count, name: architecture.name }),
        (_, 0) => Ok(None),
    }
}
