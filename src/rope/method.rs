//! Methods that act on attention and leave the frequencies unchanged: they change the distances
//! between queries and keys, so that none exceeds the distances in training.

use std::fmt;

use super::{Error, FarKeys, Origin, Scaling, Sourced, Visibility, rule_inputs::RuleInputs};

/// A method that acts on attention, and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// ReRoPE: distance min(d, w). Su, "Transformer upgrade road 12" (kexue.fm/archives/9708), and
    /// github.com/bojone/rerope.
    ReRope {
        /// w
        window: Sourced<usize>,
    },
    /// Leaky ReRoPE: distance d up to w, and w + (d - w) / k beyond. Same sources as ReRoPE.
    LeakyReRope {
        /// w
        window: Sourced<usize>,
        /// k
        divisor: Sourced<usize>,
    },
    /// Self-Extend: distance d below W, and ⌊i/G⌋ - ⌊j/G⌋ + W - W/G from W on. Jin et al., "LLM Maybe
    /// LongLM" (arXiv:2401.01325), section 3.2 and equation 3, and their code, which rounds positions
    /// before subtracting them. llama.cpp's options with these names follow another rule.
    SelfExtend {
        /// G
        group: Sourced<usize>,
        /// W
        window: Sourced<usize>,
    },
    /// LM-Infinite: only the last tokens, at their distance, and the first tokens, at the largest
    /// distance of these, are visible. Han et al., "LM-Infinite" (arXiv:2308.16137), section 4.
    LmInfinite {
        /// The number of first tokens that are always visible.
        global: Sourced<usize>,
        /// The number of last tokens that are visible.
        local: Sourced<usize>,
    },
    /// Attention sinks: only the first few tokens and the last tokens are visible, at positions as if
    /// no others had existed, so that a sequence can grow without end. Xiao et al., "Efficient
    /// Streaming Language Models with Attention Sinks" (arXiv:2309.17453), section 3.2.
    Sinks {
        /// The number of first tokens that are kept.
        sinks: Sourced<usize>,
        /// The number of visible tokens in all: the context.
        context: Sourced<usize>,
    },
}

/// The largest divisor of distances, larger than any useful ratio of lengths.
const DIVISOR_MAX: usize = 1 << 20;

impl Method {
    /// Resolves the method that `scaling` or the flag for attention sinks names, if any.
    pub(super) fn resolve(inputs: &RuleInputs, scaling: Scaling) -> Result<Option<Method>, Error> {
        let flags = inputs.flags;
        if let Some(sinks) = flags.attention_sinks {
            let sinks = Sourced::whole("--attention-sinks", sinks);
            if !scaling.acts_on_frequencies() {
                let (one, other) = (sinks.origin.to_string(), format!("--rope-scaling {scaling}"));
                return Err(Error::Both { one, other, setting: "the distances in attention" });
            }
            if flags.context_shift {
                let (one, other) = (sinks.origin.to_string(), "--context-shift".into());
                return Err(Error::Both {
                    one,
                    other,
                    setting: "the tokens that a full context drops",
                });
            }
            let context = inputs.context.clone();
            if context.value < 2 {
                return Err(Error::NoRoomForSinks { sinks: sinks.origin, context });
            }
            let sinks = sinks.between(1, context.value.saturating_sub(1))?;
            return Ok(Some(Method::Sinks { sinks, context }));
        }
        let (trained, context) = (inputs.trained_context(), inputs.context.value.max(1));
        let half = || Sourced {
            value: (trained.value / 2).max(1),
            origin: Origin::Computed("half the trained context"),
        };
        let whole = |flag, value: Option<usize>, from, to, default: Sourced<usize>| match value {
            Some(value) => Sourced::whole(flag, value).between(from, to),
            None => Ok(default),
        };
        // The divisor of distances beyond `window` that makes all distances trained ones.
        let times = |window: usize| {
            let (room, beyond) =
                (trained.value.saturating_sub(window), context.saturating_sub(window));
            beyond.div_ceil(room.max(1)).clamp(1, DIVISOR_MAX)
        };
        let needed = |window: usize| match window < trained.value {
            true => Origin::Computed("reaches the context"),
            false => Origin::Computed("no value reaches the context with this window"),
        };
        Ok(Some(match scaling {
            Scaling::ReRope | Scaling::LeakyReRope => {
                let window = whole("--rerope-window", flags.rerope_window, 1, context, half())?;
                if scaling == Scaling::ReRope {
                    return Ok(Some(Method::ReRope { window }));
                }
                let needed = Sourced { value: times(window.value), origin: needed(window.value) };
                let divisor = whole("--rerope-k", flags.rerope_k, 1, DIVISOR_MAX, needed)?;
                Method::LeakyReRope { window, divisor }
            }
            Scaling::SelfExtend => {
                let quarter = (trained.value / 4).max(1);
                let typed = flags.grp_attn_w;
                let near = typed.unwrap_or(quarter);
                let needed =
                    Sourced { value: times(near).next_power_of_two(), origin: needed(near) };
                let group = whole("--grp-attn-n", flags.grp_attn_n, 1, context, needed)?;
                let default = Sourced {
                    value: (quarter / group.value).max(1) * group.value,
                    origin: match group.value <= quarter {
                        true => Origin::Computed("a quarter of the trained context"),
                        false => Origin::Computed("one group"),
                    },
                };
                let window = whole("--grp-attn-w", typed, 1, context, default)?;
                if !window.value.is_multiple_of(group.value) {
                    return Err(Error::WindowNotMultiple { group, window });
                }
                Method::SelfExtend { group, window }
            }
            Scaling::LmInfinite => {
                let (global, local) = (flags.lm_infinite_global, flags.lm_infinite_local);
                let ten = Sourced::default(10);
                Method::LmInfinite {
                    global: whole("--lm-infinite-global", global, 1, context, ten)?,
                    local: whole("--lm-infinite-local", local, 1, context, trained)?,
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Returns the keys that queries attend to, and their positions, for the forward pass.
    pub(super) fn visibility(&self) -> Visibility {
        let visibility =
            |window: &Sourced<usize>, first, far| Visibility { near: window.value, first, far };
        match self {
            Method::ReRope { window } => {
                visibility(window, usize::MAX, FarKeys::AtDistance(window.value))
            }
            Method::LeakyReRope { window, divisor } => {
                visibility(window, usize::MAX, FarKeys::Divided(divisor.value))
            }
            Method::SelfExtend { group, window } => {
                visibility(window, usize::MAX, FarKeys::Grouped(group.value))
            }
            Method::LmInfinite { global, local } => {
                visibility(local, global.value, FarKeys::AtDistance(local.value))
            }
            Method::Sinks { sinks, context } => Visibility {
                near: context.value - sinks.value,
                first: sinks.value,
                far: FarKeys::Capped(context.value - 1),
            },
        }
    }

    /// Returns whether the method scales queries by the logarithm of their position by default.
    pub(super) fn scales_queries(&self) -> bool {
        matches!(self, Method::ReRope { .. } | Method::LeakyReRope { .. })
    }

    /// Returns the number of tokens that can be read with all distances below `trained`.
    pub(super) fn reach(&self, trained: f64) -> f64 {
        let extended = |window: &Sourced<usize>, times: &Sourced<usize>| {
            let window = window.value as f64;
            window + (trained - window).max(0.0) * times.value as f64
        };
        match self {
            Method::Sinks { .. } => trained,
            Method::LeakyReRope { window, divisor } => extended(window, divisor),
            Method::SelfExtend { group, window } => extended(window, group),
            Method::ReRope { window } | Method::LmInfinite { local: window, .. } => {
                if window.value as f64 <= trained { f64::INFINITY } else { trained }
            }
        }
    }

    /// Returns the number of positions that the distances in a sequence of `tokens` span. This is the
    /// inverse of `reach`.
    pub(super) fn span(&self, tokens: usize) -> usize {
        let divided = |window: &Sourced<usize>, times: &Sourced<usize>| {
            let beyond = tokens.saturating_sub(window.value);
            tokens.min(window.value) + beyond.div_ceil(times.value)
        };
        match self {
            Method::LeakyReRope { window, divisor } => divided(window, divisor),
            Method::SelfExtend { group, window } => divided(window, group),
            Method::ReRope { window } | Method::LmInfinite { local: window, .. } => {
                tokens.min(window.value)
            }
            Method::Sinks { context, .. } => tokens.min(context.value),
        }
    }

    /// Returns the reason why the method changes nothing in a context of `context` tokens, or `None` if
    /// it has an effect.
    pub(super) fn no_effect_reason(&self, context: usize) -> Option<String> {
        match self {
            Method::LeakyReRope { divisor, .. } if divisor.value == 1 => {
                Some(format!("with k {divisor}"))
            }
            Method::SelfExtend { group, .. } if group.value == 1 => {
                Some(format!("with groups of {group}"))
            }
            Method::Sinks { .. } => None,
            _ if self.visibility().near >= context => {
                Some(format!("in a context of {context}, which is within its window,"))
            }
            _ => None,
        }
    }

    /// Returns the formula for the distance that replaces a distance d = i - j.
    pub fn distance_formula(&self) -> String {
        match self {
            Method::ReRope { window } => format!("min(d, {})", window.value),
            Method::LeakyReRope { window, divisor } => {
                let (w, k) = (window.value, divisor.value);
                format!("d up to {w}, then {w} + (d - {w}) / {k}")
            }
            Method::SelfExtend { group, window } => {
                let (g, w) = (group.value, window.value);
                format!("d below {w}, then ⌊i/{g}⌋ - ⌊j/{g}⌋ + {}", w - w / g)
            }
            Method::LmInfinite { global, local } => {
                let (first, w) = (global.value, local.value);
                format!(
                    "d below {w}; {w} for the first {first} tokens beyond it; no others are visible"
                )
            }
            Method::Sinks { sinks, context } => format!(
                "d for the last {} tokens; at most {} - j for the first {}; no others are visible",
                context.value - sinks.value,
                context.value - 1,
                sinks.value
            ),
        }
    }
}

/// Formats the parameters for the RoPE line, each with its origin and after a comma.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::ReRope { window } => write!(f, ", window {window}"),
            Method::LeakyReRope { window, divisor } => write!(f, ", window {window}, k {divisor}"),
            Method::SelfExtend { group, window } => {
                write!(f, ", groups of {group}, window {window}")
            }
            Method::LmInfinite { global, local } => {
                write!(f, ", first tokens {global}, last tokens {local}")
            }
            Method::Sinks { sinks, .. } => {
                write!(f, ", attention sinks {sinks} in a rolling context")
            }
        }
    }
}
