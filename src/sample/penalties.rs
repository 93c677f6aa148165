//! Penalties for tokens that occurred recently.

use std::collections::{HashMap, VecDeque};

use super::{
    SamplerSetting, StageKind,
    candidates::Candidates,
    clamp_finite,
    setting::Range,
    stage::{AdjustLogits, Stage},
};
use crate::{Token, settings::Values};

/// The number of last tokens that are penalized; 0 for none, -1 for all.
pub static LAST_N: SamplerSetting =
    SamplerSetting::new("repeat_last_n", 64.0, Range::LAST, "Penalize last N tokens; -1: all")
        .key("penalty_last_n")
        .no_effect(|values| {
            (LAST_N.whole(values) != 0 && !penalizes(values)).then_some("without a penalty")
        });

/// Divides positive logits of the last tokens, and multiplies negative ones.
pub static REPEAT: SamplerSetting = SamplerSetting::new(
    "repeat_penalty",
    1.0,
    Range::Real {
        permitted: |x| x > 0.0 && x.is_finite() && x.recip().is_finite(),
        expected: "a finite number above 0",
    },
    "Repetition penalty; 1: off",
)
.details("Divides positive logits, and multiplies negative ones, of tokens that occurred.")
.llama_cpp(&["LLAMA_ARG_REPEAT_PENALTY"])
.key("penalty_repeat")
.no_effect(|values| without_tokens(values, REPEAT.real(values) != 1.0));

/// The value that is subtracted from the logits of the last tokens.
pub static PRESENCE: SamplerSetting =
    SamplerSetting::new("presence_penalty", 0.0, Range::FINITE, "Presence penalty; 0: off")
        .details("Subtracted once from the logit of each token that occurred.")
        .llama_cpp(&["LLAMA_ARG_PRESENCE_PENALTY"])
        .no_effect(|values| without_tokens(values, PRESENCE.real(values) != 0.0));

/// The value that is subtracted once for each occurrence among the last tokens.
pub static FREQUENCY: SamplerSetting =
    SamplerSetting::new("frequency_penalty", 0.0, Range::FINITE, "Frequency penalty; 0: off")
        .details("Subtracted from a token's logit for each time that it occurred.")
        .llama_cpp(&["LLAMA_ARG_FREQUENCY_PENALTY"])
        .no_effect(|values| without_tokens(values, FREQUENCY.real(values) != 0.0));

fn penalizes(values: &Values) -> bool {
    REPEAT.real(values) != 1.0 || PRESENCE.real(values) != 0.0 || FREQUENCY.real(values) != 0.0
}

fn without_tokens(values: &Values, penalizes: bool) -> Option<&'static str> {
    (penalizes && LAST_N.whole(values) == 0).then_some("with `repeat_last_n` 0")
}

pub(super) static SAMPLER: StageKind = StageKind {
    name: "penalties",
    other_names: &[],
    letter: 'e',
    settings: &[&LAST_N, &REPEAT, &PRESENCE, &FREQUENCY],
    stage: |settings| {
        let values = &settings.values;
        let last_n = LAST_N.last(values);
        if last_n == 0 || !penalizes(values) {
            return None;
        }
        Some(Box::new(Penalties {
            last_n,
            repeat: REPEAT.real(values),
            presence: PRESENCE.real(values),
            frequency: FREQUENCY.real(values),
            recent: VecDeque::new(),
            counts: HashMap::new(),
        }))
    },
};

/// The last tokens with their numbers of occurrences.
#[derive(Debug)]
struct Penalties {
    last_n: usize,
    repeat: f32,
    presence: f32,
    frequency: f32,
    recent: VecDeque<Token>,
    counts: HashMap<Token, u32>,
}

impl Stage for Penalties {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        candidates.adjust(self);
    }

    fn accept(&mut self, token: Token) {
        if self.recent.len() == self.last_n
            && let Some(oldest) = self.recent.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.recent.push_back(token);
        *self.counts.entry(token).or_default() += 1;
    }

    fn only_adjusts_logits(&self) -> bool {
        true
    }

    fn adjust(&mut self, logits: &mut [f32]) {
        self.adjust_all(logits);
    }
}

impl AdjustLogits for Penalties {
    fn tokens(&self) -> impl Iterator<Item = Token> {
        self.counts.keys().copied()
    }

    fn adjusted(&self, token: Token, logit: f32) -> f32 {
        let Some(&count) = self.counts.get(&token) else { return logit };
        // Dividing a negative logit would make it likelier.
        let repeated = if logit <= 0.0 { logit * self.repeat } else { logit / self.repeat };
        // Huge penalties of opposite signs could both be infinite, and their sum would be NaN.
        let subtracted = (count as f32 * self.frequency).clamp(f32::MIN, f32::MAX) + self.presence;
        clamp_finite(logit, repeated - subtracted.clamp(f32::MIN, f32::MAX))
    }
}
