//! The RoPE settings of a run, each with its origin.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use super::{
    Divisors, FarKeys, Layers, Method, Origin, Policy, ROPE_FREQS, Rule, Scaling, Sourced, Table,
    Visibility,
    keys::is_without_factor,
    linear::{Linear, NONE},
    ntk,
    sourced::short,
    table,
    temperature::Temperature,
    yarn,
};
use crate::settings::Setting;

/// The RoPE settings of one model in one run, resolved by [`Plan::resolve`].
///
/// ```no_run
/// use rope_cpu::{model::Model, rope::Flags};
///
/// let model = Model::open("model.gguf")?;
/// let plan = model.rope_plan(&Flags::method("yarn"), 16384)?;
/// println!("factor {}, base {}", plan.factor, plan.base);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of dimensions of a head that rotate. It is even. Pair i has the frequency
    /// base^(-2i/n_rot).
    pub n_rot: usize,
    /// The number of these dimensions that turn. A file may keep the last pairs still, with a
    /// frequency of 0 (proportional RoPE). These do not count as pairs in any rule.
    pub turning: usize,
    /// The name of the chosen scaling.
    pub scaling: Sourced<&'static Scaling>,
    /// The rule that applies the factor to the frequencies.
    pub rule: Arc<dyn Rule>,
    /// The factor that extends the context.
    pub factor: Sourced<f64>,
    /// The base of the frequencies in global layers.
    pub base: Sourced<f64>,
    /// The base that the model was trained with. It differs from `base` only if a setting changed
    /// that.
    pub base_train: Sourced<f64>,
    /// The rotation of sliding-window layers; `None` if they rotate like the others.
    pub window: Option<WindowRope>,
    /// The divisors of the frequencies in the file; `None` if the plan uses none.
    pub divisors: Option<Arc<dyn Divisors>>,
    /// The policy for the effective length; `None` if the frequencies do not depend on a length.
    pub policy: Option<Sourced<Policy>>,
    /// The method that acts on attention; `None` if the plan has none.
    pub method: Option<Arc<dyn Method>>,
    /// The keys that queries in global layers attend to, and their assigned positions.
    pub visibility: Visibility,
    /// Whether a full context removes its oldest tokens and moves later ones to smaller positions.
    pub shifts: bool,
    /// The length L in tokens beyond which queries are scaled by the logarithm of their position;
    /// `None` if they are not.
    pub log_n: Option<Sourced<usize>>,
    /// The temperature of queries, for models that have one.
    pub temperature: Option<Temperature>,
    /// The attention scale, a factor of the cosines and sines of queries and keys. A rule that
    /// depends on the length of the sequence may multiply it further.
    pub attention_scale: Sourced<f64>,
    /// The context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// The trained length, in tokens.
    pub context_train: Sourced<usize>,
    /// The requested context, in tokens.
    pub context: Sourced<usize>,
    /// Warnings about valid settings that are probably mistakes, one sentence each.
    pub warnings: Vec<String>,
}

/// The rotation of sliding-window layers. No method changes it.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowRope {
    /// The number of dimensions of a head that rotate. It is even.
    pub n_rot: usize,
    /// The base of the frequencies.
    pub base: Sourced<f64>,
}

impl Plan {
    /// Returns the effective scaling: the plan's, except that linear scaling by 1 is none.
    pub fn effective_scaling(&self) -> &'static Scaling {
        self.scaling.value.with_factor(self.factor.value)
    }

    /// Returns the inverse frequencies that the model was trained with: before any extension, and
    /// without any setting.
    pub fn trained_inv_freq(&self) -> Vec<f64> {
        let divisors = self.divisors_at(self.original_context.value);
        table::unscaled(self.n_rot, self.turning, self.base_train.value, divisors)
    }

    /// Returns the number of dimensions of a head that rotate in these layers.
    pub(super) fn n_rot_of(&self, layers: Layers) -> usize {
        let window = self.window.as_ref().filter(|_| layers == Layers::Window);
        window.map_or(self.n_rot, |window| window.n_rot)
    }

    /// Returns the divisors of the frequencies for a sequence of `length` tokens, one for each pair.
    pub(super) fn divisors_at(&self, length: usize) -> Option<&[f32]> {
        self.divisors.as_ref().map(|divisors| divisors.at(length))
    }

    /// Returns by how much factor and base together extend the context.
    pub(super) fn extension(&self) -> f64 {
        self.factor.value * self.alpha()
    }

    /// Returns by how much the base extends the context.
    fn alpha(&self) -> f64 {
        ntk::alpha(self.n_rot, self.turning, self.base_train.value, self.base.value)
    }

    /// Returns the context that the factor extends, in tokens.
    pub(super) fn unscaled_context(&self) -> &Sourced<usize> {
        let original = &self.original_context;
        // With linear scaling, the setting is the length of log n.
        let for_log_n =
            self.rule_as::<Linear>().is_some() && matches!(original.origin, Origin::Setting(..));
        let uniform = self.rule.original_context().is_none() && self.divisors.is_none();
        match is_without_factor(original) || uniform && !for_log_n {
            true => original,
            false => &self.context_train,
        }
    }

    /// Returns the number of tokens that the model can handle with these settings.
    pub(super) fn reach(&self) -> f64 {
        let reach = self.rule.reach(self.unscaled_context().value as f64, self.extension());
        match self.method {
            Some(_) => self.visibility.reach(reach),
            None => reach,
        }
    }

    /// Returns the number of positions that distances in a sequence of `tokens` span. This is
    /// `tokens`, unless a method reduces the distances of far keys.
    pub fn span(&self, tokens: usize) -> usize {
        self.visibility.span(tokens)
    }

    /// Returns whether the model can handle the whole requested context with these settings.
    pub fn reaches(&self) -> bool {
        self.context.value as f64 <= self.reach().ceil()
    }

    /// Returns whether each token has the frequencies of the sequence up to that token.
    pub fn by_position(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.value == Policy::Position)
    }

    /// Returns whether the KV cache of global layers must hold raw keys, before rotation. It must
    /// if queries at different positions need differently rotated keys, or if keys move to other
    /// positions.
    pub fn raw_keys(&self) -> bool {
        let turns = self.method.is_some() && !self.visibility.is_chunked();
        self.by_position() || turns || self.shifts
    }

    /// Returns the scale of the query at `position` in global layers: the temperature of the model,
    /// times max(1, ln(position + 1) / ln L) if log n scaling is on, and the growth of scores of the method.
    ///
    /// The second factor keeps attention over a longer context as peaked as over a shorter one. It is from
    /// Su, "Transformer upgrade road 7" (kexue.fm/archives/8823), as used by ReRoPE.
    pub fn query_scale(&self, position: usize) -> f32 {
        let position = position.min(self.last_position());
        let log_n = self.log_n.as_ref().map_or(1.0, |trained| {
            let scale = (position as f64 + 1.0).ln() / (trained.value.max(2) as f64).ln();
            scale.max(1.0) as f32
        });
        let grows_from = self.method.as_ref().and_then(|method| method.scores_grow_from());
        let growth = grows_from.map_or(1.0, |trained| {
            let times = (position as f64 + 1.0) / trained.max(1) as f64;
            yarn::magnitude(times, 1.0).powi(2) as f32
        });
        let temperature = self.temperature.as_ref();
        log_n * growth * temperature.map_or(1.0, |temperature| temperature.scale(position))
    }

    /// Returns the factor of attention scores in global layers at this effective length. This is
    /// m(s)^2 of YaRN in DeepSeek's models. It multiplies the whole score, not only the rotated
    /// part.
    pub fn score_scale(&self, effective_length: usize) -> f32 {
        self.rule.score_scale(effective_length) as f32
    }

    /// Returns whether the context rolls: old tokens are dropped, so it never fills up.
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
        let context = self.context.value;
        let of_divisors =
            self.divisors.as_ref().and_then(|sets| sets.effective_length(tokens, context));
        of_divisors.or_else(|| self.rule.effective_length(tokens)).unwrap_or(context)
    }
}

impl Plan {
    /// Returns bytes that determine the keys and values of a sequence of `tokens`. Plans with equal
    /// bytes can share a KV cache.
    pub fn identity(&self, tokens: usize) -> Vec<u8> {
        self.identity_of(if self.by_position() { 1..=tokens } else { tokens..=tokens })
    }

    /// Returns bytes that determine the logits of all sequences up to `tokens`. Plans with equal
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
        let mut attention = format!("{raw_keys:?} {shifts:?} {visibility} {log_n:?}");
        if let Some(length) = self.method.as_ref().and_then(|method| method.scores_grow_from()) {
            attention += &format!(" grows from {length}");
        }
        let tables = lengths.flat_map(|length| {
            let tables = [Layers::Global, Layers::Window];
            let tables = tables.map(|layers| Table::new(self, layers, length)).into_iter();
            let numbers = tables.flat_map(|table| table.inv_freq.into_iter().chain([table.scale]));
            let scores = self.rule.score_scale(length);
            numbers.chain(Some(scores).filter(|scale| *scale != 1.0))
        });
        tables.flat_map(f64::to_le_bytes).chain(attention.into_bytes()).collect()
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
        if let Some(temperature) = &self.temperature {
            write!(f, "{temperature}")?;
        }
        if scaled {
            write!(f, ", factor {}", self.factor)?;
        }
        write!(f, "{}", self.rule)?;
        if let Some(divisors) = &self.divisors {
            write!(f, "{divisors}")?;
        }
        if let Some(policy) = &self.policy {
            write!(f, ", policy {} ({})", policy.value.name(), policy.origin)?;
        }
        if self.attention_scale.value != 1.0 {
            write!(f, ", attention scale {}", self.attention_scale)?;
        }
        let scores = self.rule.score_scale(self.effective_length(self.context.value));
        if scores != 1.0 {
            write!(f, ", score scale {}", short(scores))?;
        }
        write!(f, ", base {}", self.base)?;
        if ntk {
            write!(f, " for {}: alpha {}", self.base_train, short(self.alpha()))?;
        }
        if self.turning != self.n_rot {
            write!(f, ", {} of {} dimensions turn ({ROPE_FREQS})", self.turning, self.n_rot)?;
        }
        if let Some(WindowRope { n_rot, base }) = &self.window {
            write!(f, ", window layers base {base}")?;
            if *n_rot != self.n_rot {
                write!(f, ", rotating {n_rot} dimensions")?;
            }
        }
        write!(f, ", trained context {}", self.context_train)?;
        write!(f, ", context {}", self.context)
    }
}
