//! The RoPE settings in force in a run, each with its origin.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use super::{
    Divisors, FarKeys, Layers, Method, Origin, Policy, Rule, Scaling, Sourced, Table, Visibility,
    keys::is_without_factor,
    linear::{Linear, NONE},
    ntk,
    sourced::short,
    table,
};
use crate::settings::Setting;

/// The RoPE settings of one model in one run, resolved by [`Plan::resolve`].
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of dimensions of a head that rotate. It is even.
    pub n_rot: usize,
    /// The name of the chosen scaling.
    pub scaling: Sourced<&'static Scaling>,
    /// The rule by which the factor acts on the frequencies.
    pub rule: Arc<dyn Rule>,
    /// The factor by which the context is extended.
    pub factor: Sourced<f64>,
    /// The base of the frequencies in global layers.
    pub base: Sourced<f64>,
    /// The base that the model was trained with. It equals `base` unless a setting changed that.
    pub base_train: Sourced<f64>,
    /// The base in sliding-window layers, if the model has any.
    pub window_base: Option<Sourced<f64>>,
    /// The divisors of the frequencies in the file.
    pub divisors: Divisors,
    /// The policy for the effective length; `None` if the frequencies do not depend on a length.
    pub policy: Option<Sourced<Policy>>,
    /// The method that acts on attention, if there is one.
    pub method: Option<Arc<dyn Method>>,
    /// The keys that queries in global layers attend to, and the positions assigned to them.
    pub visibility: Visibility,
    /// Whether the oldest tokens are removed when the context is full, and later ones move to smaller
    /// positions.
    pub shifts: bool,
    /// If queries are scaled by the logarithm of their position: the length L in tokens beyond which
    /// they are.
    pub log_n: Option<Sourced<usize>>,
    /// The attention scale, which multiplies cosines and sines of queries and keys. A rule that depends
    /// on the length of the sequence may multiply it further.
    pub attention_scale: Sourced<f64>,
    /// The context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// The trained length, in tokens.
    pub context_train: Sourced<usize>,
    /// The requested context, in tokens. It is never changed.
    pub context: Sourced<usize>,
    /// Warnings about settings that are valid but probably mistakes, one sentence each.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Returns the scaling in effect: that of the plan, but none for linear scaling by a factor of 1.
    pub fn effective_scaling(&self) -> &'static Scaling {
        self.scaling.value.with_factor(self.factor.value)
    }

    /// Returns the inverse frequencies that the model was trained with before any extension: without
    /// scaling, and without the effect of any setting.
    pub fn trained_inv_freq(&self) -> Vec<f64> {
        let divisors = self.divisors.at(self.original_context.value);
        table::unscaled(self.n_rot, self.base_train.value, divisors)
    }

    /// Returns the factor by which factor and base together extend the context.
    pub(super) fn extension(&self) -> f64 {
        let alpha = ntk::alpha(self.n_rot, self.base_train.value, self.base.value);
        self.factor.value * alpha
    }

    /// Returns the context in tokens that the factor extends.
    pub(super) fn unscaled_context(&self) -> &Sourced<usize> {
        let original = &self.original_context;
        // With linear scaling, the setting is the length for log n.
        let for_log_n =
            self.rule_as::<Linear>().is_some() && matches!(original.origin, Origin::Setting(..));
        let uniform = self.rule.original_context().is_none() && self.divisors == Divisors::None;
        match is_without_factor(original) || uniform && !for_log_n {
            true => original,
            false => &self.context_train,
        }
    }

    /// Returns the number of tokens that the model can read with these settings.
    pub(super) fn reach(&self) -> f64 {
        let reach = self.rule.reach(self.unscaled_context().value as f64, self.extension());
        match self.method {
            Some(_) => self.visibility.reach(reach),
            None => reach,
        }
    }

    /// Returns the number of positions that the distances in a sequence of `tokens` span: `tokens`,
    /// unless a method reduces the distances of far keys.
    pub fn span(&self, tokens: usize) -> usize {
        self.visibility.span(tokens)
    }

    /// Returns whether the model can read the whole requested context with these settings.
    pub(super) fn reaches(&self) -> bool {
        self.context.value as f64 <= self.reach().ceil()
    }

    /// Returns whether each token has the frequencies of the sequence up to it.
    pub fn by_position(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.value == Policy::Position)
    }

    /// Returns whether the KV cache of global layers must hold raw keys (before rotation): if queries at
    /// different positions need differently rotated keys, or if keys move to other positions.
    pub fn raw_keys(&self) -> bool {
        self.by_position() || self.method.is_some() || self.shifts
    }

    /// Returns the scale of the query at `position` in global layers: max(1, ln(position + 1) / ln L) if
    /// log n scaling is on, otherwise 1. It keeps attention over a longer context as peaked as over a
    /// shorter one. Su, "Transformer upgrade road 7" (kexue.fm/archives/8823), as used by ReRoPE.
    pub fn query_scale(&self, position: usize) -> f32 {
        let position = position.min(self.last_position());
        self.log_n.as_ref().map_or(1.0, |trained| {
            let scale = (position as f64 + 1.0).ln() / (trained.value.max(2) as f64).ln();
            scale.max(1.0) as f32
        })
    }

    /// Returns whether the context rolls: old tokens are dropped, so that it never fills.
    pub fn rolls(&self) -> bool {
        matches!(self.visibility.far, FarKeys::Capped(_))
    }

    /// Returns the largest position that is ever assigned to a query.
    fn last_position(&self) -> usize {
        match self.visibility.far {
            FarKeys::Capped(last) => last,
            _ => usize::MAX,
        }
    }

    /// Returns the effective length of a sequence of `tokens`: the length that its frequencies are
    /// computed for. Sequences with equal frequencies have equal effective lengths.
    pub fn effective_length(&self, tokens: usize) -> usize {
        let tokens = tokens.min(self.last_position().saturating_add(1));
        match &self.divisors {
            Divisors::LongRope(sets) if tokens <= sets.original_context => sets.original_context,
            Divisors::LongRope(sets) => self.context.value.max(sets.original_context + 1),
            _ => self.rule.effective_length(tokens).unwrap_or(self.context.value),
        }
    }
}

impl Plan {
    /// Returns bytes that determine the keys and values of a sequence of `tokens`: two plans with equal
    /// bytes can use each other's KV cache.
    pub fn identity(&self, tokens: usize) -> Vec<u8> {
        self.identity_of(if self.by_position() { 1..=tokens } else { tokens..=tokens })
    }

    /// Returns bytes that determine the logits of all sequences up to `tokens`: two plans with equal
    /// bytes give equal logits.
    pub fn identity_up_to(&self, tokens: usize) -> Vec<u8> {
        let mut bytes = self.identity_of(1..=tokens);
        bytes.push(self.by_position().into());
        bytes
    }

    /// Returns the frequencies, scales and attention settings for sequences of these `lengths`.
    fn identity_of(&self, lengths: RangeInclusive<usize>) -> Vec<u8> {
        let mut last = None;
        let lengths = lengths.map(|tokens| self.effective_length(tokens));
        let lengths = lengths.filter(|length| last.replace(*length) != Some(*length));
        let log_n = self.log_n.as_ref().map(|trained| trained.value);
        let (raw_keys, shifts) = (self.raw_keys(), self.shifts);
        let visibility = self.visibility.identity();
        let attention = format!("{raw_keys:?} {shifts:?} {visibility} {log_n:?}");
        let tables = lengths.flat_map(|length| {
            [Layers::Global, Layers::Window].map(|layers| Table::new(self, layers, length))
        });
        tables
            .flat_map(|table| table.inv_freq.into_iter().chain([table.scale]))
            .flat_map(f64::to_le_bytes)
            .chain(attention.into_bytes())
            .collect()
    }
}

/// Formats the RoPE line: the scaling, then every value with its origin.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ntk = self.base.value != self.base_train.value;
        let scaled = self.factor.value != 1.0;
        match self.effective_scaling() {
            scaling if scaling != &NONE => write!(f, "RoPE: {scaling}")?,
            _ if ntk => write!(f, "RoPE: NTK by base")?,
            _ => write!(f, "RoPE: no scaling")?,
        }
        if self.scaling.origin != Origin::Default {
            write!(f, " ({})", self.scaling.origin)?;
        }
        if let Some(method) = &self.method {
            write!(f, "{method}")?;
        }
        if self.shifts {
            write!(f, ", {}", Setting::CONTEXT_SHIFT)?;
        }
        if let Some(trained) = &self.log_n {
            write!(f, ", queries scaled by log n from {trained}")?;
        }
        if scaled {
            write!(f, ", factor {}", self.factor)?;
        }
        write!(f, "{}", self.rule)?;
        match &self.divisors {
            Divisors::None => {}
            Divisors::Fixed(_) => write!(f, ", frequencies divided (rope_freqs.weight)")?,
            Divisors::LongRope(sets) => write!(
                f,
                ", frequencies divided (rope_factors_short.weight up to {} tokens, \
                 rope_factors_long.weight beyond)",
                sets.original_context
            )?,
        }
        if let Some(policy) = &self.policy {
            write!(f, ", policy {} ({})", policy.value.name(), policy.origin)?;
        }
        if self.attention_scale.value != 1.0 {
            write!(f, ", attention scale {}", self.attention_scale)?;
        }
        write!(f, ", base {}", self.base)?;
        if ntk {
            let alpha = short(ntk::alpha(self.n_rot, self.base_train.value, self.base.value));
            write!(f, " for {}: alpha {alpha}", self.base_train)?;
        }
        if let Some(base) = &self.window_base {
            write!(f, ", window layers base {base}")?;
        }
        write!(f, ", trained context {}", self.context_train)?;
        write!(f, ", context {}", self.context)
    }
}
