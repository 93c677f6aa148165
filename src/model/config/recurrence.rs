//! The configuration of recurrent layers.

use rope_cpu_kernels::{
    isa::LANES,
    recurrence::{Rule, TAPS_MAX},
};

use super::{
    DIMENSION_MAX, HEAD_DIM_MAX, LAYERS_MAX, attention::KV_HEADS, feed_forward::NETWORK, keys::Keys,
};
use crate::model::{Architecture, Error};

/// The recurrent layers of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrent {
    /// None.
    Never,
    /// Layers without KV heads have a short convolution (LFM2).
    ShortConvolution,
    /// Layers that the file lists have the gated delta rule; without a list, all but the last layer of
    /// each period (Qwen 3.5).
    Delta,
    /// [`Recurrent::Delta`] with the heads of values of each head of keys side by side (Qwen3-Next).
    DeltaSideBySide,
    /// Layers without KV heads have a scan by the rule of Mamba 2 (Granite 4).
    Mamba2,
    /// All layers have a scan by the rule of Mamba 2 beside attention (Falcon-H1).
    Mamba2Beside,
    /// Each layer has one branch: a feed-forward network, else attention if it has KV heads, else a
    /// scan by the rule of Mamba 2 (Nemotron-H).
    Mamba2Alone,
}

/// The computation of a layer from earlier tokens that a state of constant size sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// A convolution of gated inputs (LFM2).
    ShortConvolution(Convolution),
    /// A scan of tokens into a state that maps keys to values (Qwen 3.5, Granite 4).
    Scan(Scan),
}

/// The dimensions of a causal convolution with weights for each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// The number of channels.
    pub channels: usize,
    /// The tokens that an output depends on, itself included.
    pub taps: usize,
}

/// The dimensions of a scan. Each head of values has a state, and the queries and keys of one of the
/// heads of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// How a token changes a state.
    pub rule: Rule,
    /// The number of heads of queries and of keys.
    pub key_heads: usize,
    /// The number of heads of values.
    pub value_heads: usize,
    /// The elements of a query or key.
    pub key_dim: usize,
    /// The elements of a value.
    pub value_dim: usize,
    /// The tokens that the convolution of queries, keys and values depends on.
    pub taps: usize,
    /// Whether the heads of values that share a head of keys follow each other. Else heads of keys
    /// take turns.
    pub side_by_side: bool,
}

impl Convolution {
    /// Returns the number of tasks: each computes [`LANES`] channels.
    pub(in crate::model) fn tasks(self) -> usize {
        self.channels.div_ceil(LANES)
    }

    /// Returns the floats of a task's part of the state: the last inputs.
    pub(in crate::model) fn unit(self) -> usize {
        (self.taps - 1) * LANES
    }
}

impl Scan {
    /// Returns the elements of all heads of keys.
    pub fn key_width(self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Returns the elements of all heads of values.
    pub fn value_width(self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Returns the convolution of queries, keys and values.
    pub fn convolution(self) -> Convolution {
        Convolution { channels: 2 * self.key_width() + self.value_width(), taps: self.taps }
    }

    /// Returns the head of queries and keys that a head of values uses.
    pub(in crate::model) fn key_head(self, value_head: usize) -> usize {
        if self.side_by_side {
            value_head / (self.value_heads / self.key_heads)
        } else {
            value_head % self.key_heads
        }
    }

    /// Returns the first channels of queries, of keys and of values.
    pub(in crate::model) fn channels(self) -> [usize; 3] {
        let (keys, values) = (self.key_width(), self.value_width());
        match self.rule {
            Rule::Delta => [0, keys, 2 * keys],
            Rule::Mamba2 => [values + keys, values, 0],
        }
    }

    /// Returns the number of tasks: each computes [`LANES`] elements of the value of a head.
    pub(in crate::model) fn tasks(self) -> usize {
        self.value_width() / LANES
    }

    /// Returns the columns of a token's mixed inputs: the channels of the convolution, and from there
    /// the decays and the rates of all heads.
    pub(in crate::model) fn mixed_width(self) -> usize {
        self.decays() + 2 * self.value_heads
    }

    /// Returns the column of the first decay.
    pub(in crate::model) fn decays(self) -> usize {
        self.convolution().tasks() * LANES
    }

    /// Returns the floats of a task's part of the state: [`LANES`] elements of a value for each element
    /// of a key.
    pub(in crate::model) fn unit(self) -> usize {
        self.key_dim * LANES
    }
}

impl Recurrence {
    /// Returns the elements of the output, before its projection.
    pub(in crate::model) fn width(self) -> usize {
        match self {
            Recurrence::ShortConvolution(convolution) => convolution.channels,
            Recurrence::Scan(scan) => scan.value_width(),
        }
    }

    /// Returns the elements of a value of a head; 0 if the layer has none.
    pub(in crate::model) fn value_dim(self) -> usize {
        match self {
            Recurrence::ShortConvolution(_) => 0,
            Recurrence::Scan(scan) => scan.value_dim,
        }
    }

    /// Returns the floats of the buffers of the state: of the convolution, and of the scan.
    pub(in crate::model) fn state_floats(self) -> [usize; 2] {
        match self {
            Recurrence::ShortConvolution(own) => [own.tasks() * own.unit(), 0],
            Recurrence::Scan(own) => {
                let convolution = own.convolution();
                [convolution.tasks() * convolution.unit(), own.tasks() * own.unit()]
            }
        }
    }

    /// Returns the floats of a task's part of each buffer.
    pub(in crate::model) fn units(self) -> [usize; 2] {
        match self {
            Recurrence::ShortConvolution(own) => [own.unit(), 0],
            Recurrence::Scan(own) => [own.convolution().unit(), own.unit()],
        }
    }
}

/// The floats of the state of a layer: more than in any model.
const STATE_MAX: usize = 1 << 24;

const CONVOLUTION: &str = "shortconv.l_cache";
const TAPS: &str = "ssm.conv_kernel";
const KEY_HEADS: &str = "ssm.group_count";
const VALUE_HEADS: &str = "ssm.time_step_rank";
const KEY_DIM: &str = "ssm.state_size";
const INNER: &str = "ssm.inner_size";

/// Reads the recurrence of each of `layers` layers, if it has one.
pub fn read(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
    embedding: usize,
) -> Result<Vec<Option<Recurrence>>, Error> {
    let without = |key| {
        Ok::<_, Error>(match keys.array(key, layers)? {
            Some(all) => all.into_iter().map(|value| value == 0).collect(),
            None => vec![false; layers],
        })
    };
    let (recurrence, recurrent) = match architecture.recurrent {
        Recurrent::Never => return Ok(vec![None; layers]),
        Recurrent::ShortConvolution => {
            let convolution = Convolution { channels: embedding, taps: taps(keys, CONVOLUTION)? };
            (Recurrence::ShortConvolution(convolution), without(KV_HEADS)?)
        }
        Recurrent::Mamba2 => (Recurrence::Scan(mamba2(keys)?), without(KV_HEADS)?),
        Recurrent::Mamba2Beside => (Recurrence::Scan(mamba2(keys)?), vec![true; layers]),
        Recurrent::Mamba2Alone => {
            let both = without(KV_HEADS)?.into_iter().zip(without(NETWORK)?);
            (
                Recurrence::Scan(mamba2(keys)?),
                both.map(|(heads, network)| heads && network).collect(),
            )
        }
        Recurrent::Delta | Recurrent::DeltaSideBySide => {
            let listed = keys.flags("attention.recurrent_layers", layers)?;
            let interval = keys.size_or("full_attention_interval", LAYERS_MAX, 4)?;
            let periods = (0..layers).map(|layer| !(layer + 1).is_multiple_of(interval));
            let side_by_side = architecture.recurrent == Recurrent::DeltaSideBySide;
            let scan = Scan { side_by_side, ..delta(keys)? };
            (Recurrence::Scan(scan), listed.unwrap_or(periods.collect()))
        }
    };
    Ok(recurrent.into_iter().map(|is| is.then_some(recurrence)).collect())
}

/// Reads the number of tokens that a convolution depends on.
fn taps(keys: &Keys<'_, '_>, key: &str) -> Result<usize, Error> {
    let taps = keys.size(key, TAPS_MAX)?;
    if taps > 1 {
        return Ok(taps);
    }
    invalid(keys, key, taps, format!("must be from 2 to {TAPS_MAX}"))
}

/// Reads the dimensions of the gated delta rule. Keys and values have the same length.
fn delta(keys: &Keys<'_, '_>) -> Result<Scan, Error> {
    let key_dim = keys.size(KEY_DIM, HEAD_DIM_MAX)?;
    let scan = scan(keys, Rule::Delta, key_dim)?;
    let Scan { value_heads, .. } = scan;
    if !key_dim.is_multiple_of(LANES) {
        return invalid(keys, KEY_DIM, key_dim, format!("must be a multiple of {LANES}"));
    }
    let inner = keys.size(INNER, DIMENSION_MAX)?;
    if value_heads * key_dim != inner {
        let reason = format!("must be {VALUE_HEADS} times {KEY_DIM}, {value_heads} x {key_dim}");
        return invalid(keys, INNER, inner, reason);
    }
    Ok(scan)
}

/// Reads the dimensions of a scan by the rule of Mamba 2.
fn mamba2(keys: &Keys<'_, '_>) -> Result<Scan, Error> {
    let heads = keys.size(VALUE_HEADS, DIMENSION_MAX)?;
    let inner = keys.size(INNER, DIMENSION_MAX)?;
    if !inner.is_multiple_of(heads * LANES) {
        let reason = format!("must be a multiple of {LANES} x {VALUE_HEADS}, {LANES} x {heads}");
        return invalid(keys, INNER, inner, reason);
    }
    scan(keys, Rule::Mamba2, inner / heads)
}

/// Reads the dimensions of a scan with values of `value_dim` elements.
fn scan(keys: &Keys<'_, '_>, rule: Rule, value_dim: usize) -> Result<Scan, Error> {
    let scan = Scan {
        rule,
        key_heads: keys.size(KEY_HEADS, DIMENSION_MAX)?,
        value_heads: keys.size(VALUE_HEADS, DIMENSION_MAX)?,
        key_dim: keys.size(KEY_DIM, HEAD_DIM_MAX)?,
        value_dim,
        taps: taps(keys, TAPS)?,
        side_by_side: rule == Rule::Mamba2,
    };
    let Scan { key_heads, value_heads, key_dim, .. } = scan;
    if value_heads * key_dim * value_dim >= STATE_MAX {
        let reason = format!("times {key_dim} x {value_dim} must be less than {STATE_MAX}");
        return invalid(keys, VALUE_HEADS, value_heads, reason);
    }
    if !value_heads.is_multiple_of(key_heads) {
        let reason = format!("must divide {VALUE_HEADS}, which is {value_heads}");
        return invalid(keys, KEY_HEADS, key_heads, reason);
    }
    Ok(scan)
}

fn invalid<T>(keys: &Keys<'_, '_>, key: &str, value: usize, reason: String) -> Result<T, Error> {
    Err(Error::Value { key: keys.name(key), value: value.to_string(), reason })
}
