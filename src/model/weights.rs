//! A model's weights: tensors borrowed from the file, with their shapes checked.

mod assistant;
mod attention;
mod embedding;
mod feed_forward;
mod latent;
mod layer_input;
mod linear;
mod norms;
mod predictor;
mod reader;
mod recurrence;
mod terms;

use rope_cpu_kernels::Matrix;

use self::reader::TensorReader;
pub use self::{
    assistant::Assistant,
    attention::{
        Attention, AttentionFamily, AttentionGates, GateFunction, Gates, HeadNorms, Projection,
    },
    embedding::{Classifier, EmbeddingHead},
    feed_forward::{Mixture, Network},
    latent::{Latent, SplitKeys},
    layer_input::{LayerInput, LayerInputs},
    linear::{Addition, Linear, Segment, SegmentTensors},
    norms::{BranchNorms, Norm, NormFamily, NormKind, NormWeights},
    predictor::Predictor,
    reader::is_media,
    recurrence::{Scan, ScanInput, ShortConvolution},
    terms::{EmbeddingTerms, Terms},
};
use super::{
    Config, EMBEDDINGS, Error,
    adapter::{Adapter, LowRank},
    config::{Experts, FeedForward, Layer},
};
use crate::gguf::Gguf;

/// All weights of a model.
pub struct Weights<'a> {
    pub tokens: Matrix<'a>, // (vocabulary, embedding)
    /// The adapters' terms that are added to embeddings.
    pub token_additions: Vec<LowRank<'a>>,
    /// The norm of embeddings, without weights.
    pub embedding_norm: Option<Norm>,
    pub terms: Option<Terms<'a>>,
    /// The branches of each layer, in the order of their computation.
    pub layers: Vec<Vec<Branch<'a>>>,
    /// The additional inputs of each layer, if the model has any.
    pub layer_inputs: Option<LayerInputs<'a>>,
    pub output_norm: Option<NormWeights<'a>>,
    /// `None` in an encoder, which has no logits.
    pub output: Option<Linear<'a>>, // embedding -> vocabulary
    pub predictor: Option<Predictor<'a>>,
    pub head: EmbeddingHead<'a>,
    /// The largest width of [`Linear::adapter_down`], or rank of an adapter of the embeddings; 0
    /// without adapters.
    pub low_rank_width: usize,
}

/// A branch of a layer. It adds its output to the activations `x` between layers:
/// `x = sum_norm(x + scales.residual * post_norm(sum of mixer(norm(x)))) * output_scale`.
pub struct Branch<'a> {
    pub norm: Option<NormWeights<'a>>,
    /// At least one, at most [`Branch::MIXERS_MAX`].
    pub mixers: Vec<Mixer<'a>>,
    /// The norm of each mixer's output, if the outputs are normalized before they are added.
    pub mixer_norms: Vec<NormWeights<'a>>,
    pub post_norm: Option<NormWeights<'a>>,
    pub sum_norm: Option<NormWeights<'a>>,
    pub output_scale: f32,
}

impl Branch<'_> {
    /// The largest number of mixers of a branch.
    pub const MIXERS_MAX: usize = 3;
}

/// The computation of a branch, from embedding to embedding.
pub enum Mixer<'a> {
    Attention(Attention<'a>),
    ShortConvolution(ShortConvolution<'a>),
    Scan(Scan<'a>),
    Dense(Network<'a>),
    Experts(Mixture<'a>),
    LayerInput(LayerInput<'a>),
}

impl Mixer<'_> {
    /// Returns whether the mixer stores keys and values, or a state, for later tokens.
    pub fn stores(&self) -> bool {
        match self {
            Mixer::Attention(attention) => attention.config.shared_with.is_none(),
            Mixer::ShortConvolution(_) | Mixer::Scan(_) => true,
            Mixer::Dense(_) | Mixer::Experts(_) | Mixer::LayerInput(_) => false,
        }
    }
}

impl<'a> Weights<'a> {
    /// Reads every tensor that a model of this configuration has.
    ///
    /// # Errors
    /// If a tensor is missing, has the wrong shape or an unsupported type, or is not part of such a
    /// model.
    pub fn load(
        gguf: &Gguf<'a>,
        config: &Config,
        adapters: &[Adapter<'a>],
        split: &'a SplitKeys,
    ) -> Result<Self, Error> {
        let reader = TensorReader::new(gguf, adapters, split);
        let weights = Self::read(&reader, gguf, config)?;
        reader.finish(config)?;
        Ok(weights)
    }

    /// Reads the tensors that a model of this configuration has.
    fn read(
        reader: &TensorReader<'_, 'a>,
        gguf: &Gguf<'a>,
        config: &Config,
    ) -> Result<Self, Error> {
        let (embedding, vocabulary) = (config.embedding, config.vocabulary);
        let tokens = reader.matrix(EMBEDDINGS, vocabulary, embedding)?;
        let output = match reader.has("output") {
            true => reader.linear("output", vocabulary, embedding)?,
            false => SegmentTensors::plain(tokens),
        };
        let output = config.causal.then(|| Linear::new([output]));
        let layers = config.layers.iter().enumerate();
        let layers = layers.map(|(index, one)| layer(reader, config, index, one));
        let (norms, norm) = (config.architecture.norms, Norm::of(config));
        let mut weights = Weights {
            tokens,
            token_additions: reader.low_rank(EMBEDDINGS),
            layer_inputs: LayerInputs::load(reader, config)?,
            embedding_norm: norms.of_embeddings.then_some(norm),
            terms: Terms::load(reader, gguf, config)?,
            layers: layers.collect::<Result<_, _>>()?,
            output_norm: NormWeights::load(reader, config, norm, norms.output)?,
            output,
            predictor: Predictor::load(reader, config, tokens)?,
            head: EmbeddingHead::load(reader, embedding)?,
            low_rank_width: 0,
        };
        let projections = weights.layer_inputs.iter().map(|inputs| &inputs.projection);
        let predictor = weights.predictor.iter().flat_map(Predictor::linears);
        let linears = weights.mixers().flat_map(Mixer::linears).chain(&weights.output);
        let linears = linears.chain(projections).chain(predictor);
        let ranks = weights.token_additions.iter().map(|addition| addition.up.columns());
        weights.low_rank_width =
            linears.map(Linear::low_rank_width).chain(ranks).max().unwrap_or(0);
        Ok(weights)
    }

    /// Returns the attention of a layer that stored the keys and values of `attention`: itself, or
    /// an earlier layer.
    pub fn stored<'w>(&'w self, attention: &'w Attention<'a>) -> &'w Attention<'a> {
        let source = attention.config.shared_with.and_then(|layer| self.layers.get(layer));
        let mut found = source.into_iter().flatten().flat_map(|branch| &branch.mixers);
        let found = found.find_map(|mixer| match mixer {
            Mixer::Attention(attention) => Some(attention),
            _ => None,
        });
        found.unwrap_or(attention)
    }

    /// Returns the branches of all layers, each with its layer.
    pub fn branches(&self) -> impl DoubleEndedIterator<Item = (usize, &Branch<'a>)> {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(layer, all)| all.iter().map(move |one| (layer, one)))
    }

    /// Returns the number of branches at the end that have only feed-forward networks. No later token
    /// depends on their outputs, so they are computed only for tokens with an output.
    pub fn tail(&self) -> usize {
        self.last(|mixer| matches!(mixer, Mixer::Dense(_) | Mixer::Experts(_)))
    }

    /// Returns the number of branches at the end that store nothing for later tokens.
    pub fn storeless(&self) -> usize {
        self.last(|mixer| !mixer.stores())
    }

    /// Returns the number of branches at the end with such mixers only.
    fn last(&self, such: impl Fn(&Mixer<'a>) -> bool) -> usize {
        let all = |(_, branch): &(usize, &Branch<'a>)| branch.mixers.iter().all(&such);
        self.branches().rev().take_while(all).count()
    }

    /// Returns the branches of all layers, the predictor included.
    pub fn all_branches(&self) -> impl Iterator<Item = &Branch<'a>> {
        let predictor = self.predictor.iter().flat_map(|predictor| &predictor.branches);
        self.layers.iter().flatten().chain(predictor)
    }

    /// Returns the mixers of all layers, the predictor included.
    pub fn mixers(&self) -> impl Iterator<Item = &Mixer<'a>> {
        self.all_branches().flat_map(|branch| &branch.mixers)
    }
}

/// Reads the branches of a layer: attention and the feed-forward network, one after the other or
/// together.
fn layer<'a>(
    reader: &TensorReader<'_, 'a>,
    config: &Config,
    index: usize,
    layer: &Layer,
) -> Result<Vec<Branch<'a>>, Error> {
    let name = |tensor: &str| format!("blk.{index}.{tensor}");
    let (norms, plain) = (&config.architecture.norms, Norm::of(config));
    let norm = |norm, tensor: Option<&str>| {
        NormWeights::load(reader, config, norm, tensor.map(name).as_deref())
    };
    let branch = |BranchNorms { before, after }, mixers, mixer_norms| {
        let [of_output, of_sum] = if norms.of_sums { [None, after] } else { [after, None] };
        Ok::<_, Error>(Branch {
            norm: norm(plain, before)?,
            mixers,
            mixer_norms,
            post_norm: norm(Norm::after_branch(config), of_output)?,
            sum_norm: norm(plain, of_sum)?,
            output_scale: 1.0,
        })
    };
    let attention = layer.attention.map(|attention| {
        Attention::load(reader, config, attention, index, &name).map(Mixer::Attention)
    });
    let recurrence =
        layer.recurrence.map(|own| recurrence::load(reader, config, own, index, &name));
    let mixers = attention.into_iter().chain(recurrence);
    let mut mixers: Vec<_> = mixers.collect::<Result<_, _>>()?;
    let network = |width, part: &str| {
        let name = |tensor: &str| name(&format!("ffn_{tensor}{part}"));
        Network::load(reader, config, layer, width, &name).map(Mixer::Dense)
    };
    let mut network_norms = Vec::new();
    let networks = match layer.feed_forward {
        FeedForward::None => vec![],
        FeedForward::Dense(width) => vec![network(width, "")?],
        FeedForward::Experts(mixture) if config.architecture.network.experts == Experts::Beside => {
            for tensor in ["post_ffw_norm_1", "post_ffw_norm_2"] {
                network_norms.extend(norm(plain, Some(tensor))?);
            }
            let experts = Mixture::load(reader, config, layer, mixture, &name)?;
            vec![network(mixture.shared, "")?, Mixer::Experts(experts)]
        }
        FeedForward::Experts(mixture) => {
            let experts = Mixture::load(reader, config, layer, mixture, &name)?;
            let shared = (mixture.shared > 0).then(|| network(mixture.shared, "_shexp"));
            [Mixer::Experts(experts)].into_iter().chain(shared.transpose()?).collect()
        }
    };
    let mut branches = match norms.network {
        Some(of_network) => vec![
            branch(norms.attention, mixers, vec![])?,
            branch(of_network, networks, network_norms)?,
        ],
        None => {
            mixers.extend(networks);
            vec![branch(norms.attention, mixers, vec![])?]
        }
    };
    if config.layer_input > 0 {
        let input = LayerInput::load(reader, config, index, &name)?;
        let norms = BranchNorms { before: None, after: Some("post_norm") };
        branches.push(branch(norms, vec![Mixer::LayerInput(input)], vec![])?);
    }
    if let Some(scale) = reader.vector_if(&name("layer_output_scale.weight"), 1)?
        && let Some(last) = branches.last_mut()
    {
        last.output_scale = scale[0];
    }
    Ok(branches)
}

impl<'a> Mixer<'a> {
    /// Returns one linear of each shape: all experts have the same.
    fn linears(&self) -> Vec<&Linear<'a>> {
        match self {
            Mixer::Attention(attention) => {
                let latent = attention.latent.iter().flat_map(|latent| latent.linears());
                latent.chain([&attention.query_key_value, &attention.output]).collect()
            }
            Mixer::ShortConvolution(convolution) => vec![&convolution.input, &convolution.output],
            Mixer::Scan(scan) => vec![&scan.input, &scan.output],
            Mixer::Dense(network) => vec![&network.gate_up, &network.down],
            Mixer::Experts(Mixture { router, experts, .. }) => {
                vec![router, &experts[0].gate_up, &experts[0].down]
            }
            Mixer::LayerInput(LayerInput { gate, down, .. }) => vec![gate, down],
        }
    }
}
