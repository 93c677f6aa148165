//! The weights of feed-forward networks, and of mixtures of them.

use super::{Linear, Norm, NormWeights, TensorReader};
use crate::model::{
    Config, Error,
    config::{self, Experts, Function, Inner, Layer, Routing},
};

/// A feed-forward network.
pub struct Network<'a> {
    /// Gate and up, or only up if the network has no gate; then the gate of the whole output, if it
    /// has one.
    pub gate_up: Linear<'a>, // embedding -> feed_forward, feed_forward, 1
    /// Whether the whole output has a gate.
    pub gated: bool,
    /// The factor of the whole output.
    pub factor: f32,
    pub down: Linear<'a>, // feed_forward -> embedding
    pub feed_forward: usize,
    pub function: Function,
}

/// A mixture of experts, each a feed-forward network.
pub struct Mixture<'a> {
    /// The norms of the inputs of router and experts, if these differ from the branch's input.
    pub norms: Option<MixtureNorms<'a>>,
    pub router: Linear<'a>, // embedding -> experts
    /// The bias of each expert's probability in the choice of experts. It does not change weights.
    pub selection_bias: Option<&'a [f32]>, // (experts)
    pub experts: Vec<Network<'a>>,
    /// The number of experts that compute a token.
    pub used: usize,
    pub routing: Routing,
}

/// The norms of the inputs of a mixture of experts.
pub struct MixtureNorms<'a> {
    /// The result is divided by the square root of its length.
    pub router: NormWeights<'a>,
    pub experts: NormWeights<'a>,
}

impl<'a> Network<'a> {
    /// Reads a network from the tensors `name("gate")`, `name("up")` and `name("down")`.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        layer: &Layer,
        feed_forward: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let embedding = config.embedding;
        let one = |part: &str| reader.linear(&name(part), feed_forward, embedding);
        let mut gate_up = match (config.architecture.network.inner, layer.function) {
            (Inner::GatedInOne(_), _) => {
                reader.fused(&name("up"), &[feed_forward, feed_forward], embedding)?
            }
            (_, Function::Gated(_)) => vec![one("gate")?, one("up")?],
            (_, Function::Ungated(_) | Function::Alone(_)) => vec![one("up")?],
        };
        let down = reader.linear(&name("down"), embedding, feed_forward)?;
        let gate = name("gate_inp");
        // The gate of a shared network; `ffn_gate_inp` without a suffix is the router of the experts.
        let shared = gate.ends_with("_shexp");
        let gated = shared && reader.has(&gate);
        if gated {
            gate_up.push(reader.linear(&gate, 1, embedding)?);
        }
        Ok(Network {
            gate_up: Linear::new(gate_up),
            gated,
            factor: if shared { config.architecture.network.mixture_scale } else { 1.0 },
            down: Linear::new([down]),
            feed_forward,
            function: layer.function,
        })
    }
}

impl<'a> Mixture<'a> {
    /// Reads the router and the experts of a layer, from the tensors that `name` returns the names of.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        layer: &Layer,
        config::Mixture { count, used, feed_forward, routing, .. }: config::Mixture,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let embedding = config.embedding;
        let all = |tensor: &str, rows, columns| reader.experts(&name(tensor), count, rows, columns);
        let gate_ups: Vec<_> = match reader.has(&name("ffn_gate_up_exps")) {
            true => {
                let both = all("ffn_gate_up", 2 * feed_forward, embedding)?.into_iter();
                let halves = [0..feed_forward, feed_forward..2 * feed_forward];
                both.map(|both| Vec::from(halves.clone().map(|half| both.rows(half)))).collect()
            }
            false => {
                let ups = all("ffn_up", feed_forward, embedding)?.into_iter();
                match layer.function {
                    Function::Ungated(_) | Function::Alone(_) => ups.map(|up| vec![up]).collect(),
                    Function::Gated(_) => {
                        let gates = all("ffn_gate", feed_forward, embedding)?.into_iter();
                        gates.zip(ups).map(|(gate, up)| vec![gate, up]).collect()
                    }
                }
            }
        };
        let downs = all("ffn_down", embedding, feed_forward)?;
        let experts = gate_ups.into_iter().zip(downs).map(|(gate_up, down)| Network {
            gate_up: Linear::new(gate_up),
            gated: false,
            factor: 1.0,
            down: Linear::new([down]),
            feed_forward,
            function: layer.function,
        });
        let router = name("ffn_gate_inp");
        let (router, norms) = match config.architecture.network.experts {
            Experts::Beside => {
                let norm = |tensor: &str| {
                    let weight = reader.vector(tensor, embedding)?;
                    Ok::<_, Error>(NormWeights::new(Norm::of(config), weight))
                };
                let norms = MixtureNorms {
                    router: norm(&format!("{router}.scale"))?,
                    experts: norm(&name("pre_ffw_norm_2.weight"))?,
                };
                (reader.unscaled(&router, count, embedding)?, Some(norms))
            }
            _ => (reader.linear(&router, count, embedding)?, None),
        };
        Ok(Mixture {
            norms,
            router: Linear::new([router]),
            selection_bias: reader.vector_if(&name("exp_probs_b.bias"), count)?,
            experts: experts.collect(),
            used,
            routing,
        })
    }
}
