//! What RoPE does in this run, and where each of its values came from.

use std::{fmt, ops::RangeInclusive};

use super::{
    Divisors, FarKeys, Layers, Method, Origin, Policy, Rule, Scaling, Sourced, Table, Visibility,
    keys::is_without_factor, ntk, sourced::short, table,
};

/// RoPE as resolved for one model and one run, by [`Plan::resolve`].
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Dimensions of a head that rotate, in pairs.
    pub n_rot: usize,
    /// The scaling by name, as chosen.
    pub scaling: Sourced<Scaling>,
    /// How the factor acts.
    pub rule: Rule,
    /// The factor by which the context is extended: positions are divided by it.
    pub factor: Sourced<f64>,
    /// The base of the frequencies in global layers.
    pub base: Sourced<f64>,
    /// The base that the model was trained with: the same, unless a flag raised it.
    pub base_train: Sourced<f64>,
    /// The base in sliding-window layers, if the model has any.
    pub window_base: Option<Sourced<f64>>,
    /// What the file divides the frequencies by.
    pub divisors: Divisors,
    /// Whose length decides the frequencies; `None` if no length does.
    pub policy: Option<Sourced<Policy>>,
    /// What acts on attention, if anything does.
    pub method: Option<Method>,
    /// What queries in global layers see.
    pub visibility: Visibility,
    /// Whether a context that is full loses its oldest tokens, and later ones move down.
    pub shifts: bool,
    /// Where queries grow with their position: the context L from which on they do.
    pub log_n: Option<Sourced<usize>>,
    /// Multiplies cosine and sine, for queries and keys alike; a rule that follows the length of
    /// the sequence may multiply it further.
    pub attention_scale: Sourced<f64>,
    /// Tokens that the model was trained for before any extension.
    pub original_context: Sourced<usize>,
    /// Tokens that the model was trained for.
    pub context_train: Sourced<usize>,
    /// Tokens that were asked for, which is what one gets.
    pub context: Sourced<usize>,
    /// What is allowed but probably not meant, one sentence each.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The scaling in force: that of the plan, or none where it is linear by a factor of 1.
    pub fn effective_scaling(&self) -> Scaling {
        self.scaling.value.with_factor(self.factor.value)
    }

    /// The frequencies that the model was trained with before any extension: no scaling, and of
    /// the flags none.
    pub fn trained_inv_freq(&self) -> Vec<f64> {
        let divisors = self.divisors.at(self.original_context.value);
        table::unscaled(self.n_rot, self.base_train.value, divisors)
    }

    /// By how much factor and base together extend the context.
    pub(super) fn extension(&self) -> f64 {
        let alpha = ntk::alpha(self.n_rot, self.base_train.value, self.base.value);
        self.factor.value * alpha
    }

    /// The tokens that the model can read before the factor extends them.
    pub(super) fn unscaled(&self) -> &Sourced<usize> {
        let original = &self.original_context;
        match (&self.rule, &self.divisors, &original.origin) {
            _ if is_without_factor(original) => original,
            // The flag is for log n.
            (Rule::Linear, _, Origin::Flag(_)) => &self.context_train,
            (Rule::Linear | Rule::Ntk | Rule::NtkMixed(_), Divisors::None, _) => original,
            _ => &self.context_train,
        }
    }

    /// The tokens that the model can read with these settings.
    pub(super) fn reach(&self) -> f64 {
        let reach = self.rule.reach(self.unscaled().value as f64, self.extension());
        self.method.as_ref().map_or(reach, |method| method.reach(reach))
    }

    /// The positions that distances in a sequence of `tokens` span: all of them, unless a method
    /// takes far tokens to be nearer.
    pub fn span(&self, tokens: usize) -> usize {
        self.method.as_ref().map_or(tokens, |method| method.span(tokens))
    }

    /// Whether that is the context that was asked for.
    pub(super) fn reaches(&self) -> bool {
        self.context.value as f64 <= self.reach().ceil()
    }

    /// Whether the frequencies for each token are those of the sequence up to it.
    pub fn by_position(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.value == Policy::Position)
    }

    /// Whether keys are to be kept before rotation, in global layers: where queries at different
    /// positions rotate them differently, or where keys move.
    pub fn raw_keys(&self) -> bool {
        self.by_position() || self.method.is_some() || self.shifts
    }

    /// What multiplies the query at `position` in global layers: max(1, ln(position + 1) / ln L), so
    /// that attention over a longer context is no less peaked. Su, "Transformer upgrade road 7"
    /// (kexue.fm/archives/8823), as ReRoPE has it.
    pub fn query_scale(&self, position: usize) -> f32 {
        let position = position.min(self.last_position());
        self.log_n.as_ref().map_or(1.0, |trained| {
            let scale = (position as f64 + 1.0).ln() / (trained.value.max(2) as f64).ln();
            scale.max(1.0) as f32
        })
    }

    /// Whether old tokens are forgotten, so that a sequence never fills the context.
    pub fn rolls(&self) -> bool {
        matches!(self.method, Some(Method::Sinks { .. }))
    }

    /// The last position that a token is ever taken to be at.
    fn last_position(&self) -> usize {
        match self.visibility.far {
            FarKeys::Capped(last) => last,
            _ => usize::MAX,
        }
    }

    /// The length that decides the frequencies for a sequence of `tokens`: of all lengths that
    /// rotate alike, always the same one.
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
    /// What decides the keys and values of a sequence of `tokens`, as bytes: two plans with equal
    /// ones can read each other's cache.
    pub fn identity(&self, tokens: usize) -> Vec<u8> {
        self.decides(if self.by_position() { 1..=tokens } else { tokens..=tokens })
    }

    /// The same of all sequences up to `tokens`: two plans with equal ones give the same logits.
    pub fn identity_up_to(&self, tokens: usize) -> Vec<u8> {
        let mut bytes = self.decides(1..=tokens);
        bytes.push(self.by_position().into());
        bytes
    }

    fn decides(&self, lengths: RangeInclusive<usize>) -> Vec<u8> {
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

/// One line: the rule, then every value with its origin.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ntk = self.base.value != self.base_train.value;
        let scaled = self.factor.value != 1.0;
        match self.effective_scaling() {
            Scaling::None if ntk => write!(f, "RoPE: NTK by base")?,
            Scaling::None => write!(f, "RoPE: no scaling")?,
            scaling => write!(f, "RoPE: {scaling}")?,
        }
        if self.scaling.origin != Origin::Default {
            write!(f, " ({})", self.scaling.origin)?;
        }
        if let Some(method) = &self.method {
            write!(f, "{method}")?;
        }
        if self.shifts {
            write!(f, ", --context-shift")?;
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
