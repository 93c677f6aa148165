//! The weights of recurrent layers.

use rope_cpu_kernels::recurrence::Rule;

use super::{Linear, Mixer, reader::TensorReader};
use crate::model::{
    Config, Error,
    config::{self, Recurrence},
};

/// A convolution of gated inputs.
pub struct ShortConvolution<'a> {
    pub config: config::Convolution,
    pub layer: usize,
    /// Gates of inputs, gates of outputs, and inputs.
    pub input: Linear<'a>, // embedding -> channels, channels, channels
    pub convolution: &'a [f32], // (channels, taps)
    pub output: Linear<'a>,     // channels -> embedding
}

/// A scan of tokens into a state.
pub struct Scan<'a> {
    pub config: config::Scan,
    pub layer: usize,
    /// The projections that [`ScanInput`] lists.
    pub input: Linear<'a>, // embedding -> channels, value_width, and for each head of values its step and rate
    pub convolution: &'a [f32],              // (channels, taps)
    pub convolution_bias: Option<&'a [f32]>, // (channels)
    /// The logarithms of the decays for a step of 1; they are negative.
    pub decay: &'a [f32], // (value_heads)
    pub decay_bias: &'a [f32],               // (value_heads)
    /// The factor of the values that are added to the outputs.
    pub skip: Option<&'a [f32]>, // (value_heads)
    /// The weights of the norm of some consecutive outputs, or of each such part.
    pub norm: Option<&'a [f32]>, // (parts, norm_len), or (norm_len)
    pub norm_len: usize,
    pub output: Linear<'a>, // value_width -> embedding
}

/// A segment of [`Scan::input`].
#[derive(Clone, Copy)]
pub enum ScanInput {
    /// Queries, keys and values.
    Convolved,
    /// Gates of outputs.
    Gate,
}

impl Scan<'_> {
    /// Returns the first column of a segment.
    pub fn column(&self, input: ScanInput) -> usize {
        let order = match self.config.rule {
            Rule::Delta => [0, 1],
            Rule::Mamba2 => [1, 0],
        };
        self.input.segments[order[input as usize]].column
    }

    /// Returns the columns of the step of a head of values, which its decay follows from, and of its rate.
    pub fn step_and_rate(&self, head: usize) -> [usize; 2] {
        let config::Scan { rule, key_heads, value_heads, side_by_side, .. } = self.config;
        let first = |segment: usize| self.input.segments[segment].column;
        match rule {
            Rule::Mamba2 => [first(2) + head; 2],
            Rule::Delta if side_by_side => {
                // Each head of keys has the rates of its heads of values, then their steps.
                let each = value_heads / key_heads;
                let rate = first(2) + head / each * 2 * each + head % each;
                [rate + each, rate]
            }
            Rule::Delta => [first(2) + head, first(3) + head],
        }
    }
}

impl<'a> ShortConvolution<'a> {
    fn load(
        reader: &TensorReader<'_, 'a>,
        Config { embedding, .. }: &Config,
        config: config::Convolution,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let config::Convolution { channels, taps } = config;
        let output = reader.linear(&name("shortconv.out_proj"), *embedding, channels)?;
        Ok(ShortConvolution {
            config,
            layer,
            input: Linear::new(reader.fused(
                &name("shortconv.in_proj"),
                &[channels; 3],
                *embedding,
            )?),
            convolution: reader.table(&name("shortconv.conv.weight"), channels, taps)?,
            output: Linear::new([output]),
        })
    }
}

impl<'a> Scan<'a> {
    fn load_delta(
        reader: &TensorReader<'_, 'a>,
        Config { embedding, .. }: &Config,
        config: config::Scan,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let config::Convolution { channels, taps } = config.convolution();
        let (heads, values) = (config.value_heads, config.value_width());
        let input = |tensor: &str, rows| reader.linear(&name(tensor), rows, *embedding);
        let mut inputs = vec![input("attn_qkv", channels)?, input("attn_gate", values)?];
        if config.side_by_side {
            inputs.push(input("ssm_ba", 2 * heads)?);
        } else {
            inputs.extend([input("ssm_alpha", heads)?, input("ssm_beta", heads)?]);
        }
        Ok(Scan {
            config,
            layer,
            input: Linear::new(inputs),
            convolution: reader.table(&name("ssm_conv1d.weight"), channels, taps)?,
            convolution_bias: None,
            decay: reader.vector(&name("ssm_a"), heads)?,
            decay_bias: reader.vector(&name("ssm_dt.bias"), heads)?,
            skip: None,
            norm: Some(reader.vector(&name("ssm_norm.weight"), config.value_dim)?),
            norm_len: config.value_dim,
            output: Linear::new([reader.linear(&name("ssm_out"), *embedding, values)?]),
        })
    }

    fn load_mamba2(
        reader: &TensorReader<'_, 'a>,
        Config { embedding, .. }: &Config,
        config: config::Scan,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let config::Convolution { channels, taps } = config.convolution();
        let (heads, values) = (config.value_heads, config.value_width());
        let (groups, norm_len) = (config.key_heads, values / config.key_heads);
        let norm = reader.has(&name("ssm_norm"));
        let norm = norm.then(|| reader.table(&name("ssm_norm.weight"), groups, norm_len));
        Ok(Scan {
            config,
            layer,
            input: Linear::new(reader.fused(
                &name("ssm_in"),
                &[values, channels, heads],
                *embedding,
            )?),
            convolution: reader.table(&name("ssm_conv1d.weight"), channels, taps)?,
            convolution_bias: reader.vector_if(&name("ssm_conv1d.bias"), channels)?,
            decay: reader.table(&name("ssm_a"), heads, 1)?,
            decay_bias: reader.vector(&name("ssm_dt.bias"), heads)?,
            skip: Some(reader.table(&name("ssm_d"), heads, 1)?),
            norm: norm.transpose()?,
            norm_len,
            output: Linear::new([reader.linear(&name("ssm_out"), *embedding, values)?]),
        })
    }
}

/// Reads the mixer of a recurrent layer.
pub(super) fn load<'a>(
    reader: &TensorReader<'_, 'a>,
    config: &Config,
    recurrence: Recurrence,
    layer: usize,
    name: &dyn Fn(&str) -> String,
) -> Result<Mixer<'a>, Error> {
    match recurrence {
        Recurrence::ShortConvolution(own) => {
            ShortConvolution::load(reader, config, own, layer, name).map(Mixer::ShortConvolution)
        }
        Recurrence::Scan(own) => {
            let load = match own.rule {
                Rule::Delta => Scan::load_delta,
                Rule::Mamba2 => Scan::load_mamba2,
            };
            load(reader, config, own, layer, name).map(Mixer::Scan)
        }
    }
}
