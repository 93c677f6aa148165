//! The options of a scheduler.

use std::time::Duration;

use super::{Disk, Turns};
use crate::generate::speculation::{Speculation, SpeculativePrefill};

/// The default of [`Options::step_max`].
const STEP_MAX: Duration = Duration::from_millis(200);

/// The options of a scheduler.
///
/// ```
/// use std::time::Duration;
/// use rope_cpu::{batch::Options, generate::speculation::{Count, Lookup, Speculation}};
///
/// // Four slots, each with prompt lookup; at most 50 ms between two tokens of an answer.
/// let lookup = || Speculation::new(vec![Box::new(Lookup::default())], Count::UpTo(8));
/// let speculations = (0..4).map(|_| lookup()).collect();
/// let step_max = Duration::from_millis(50);
/// let options = Options { speculations, step_max, ..Options::new(4) };
/// ```
pub struct Options {
    /// The draft source of each slot. If empty, there is one slot without drafts.
    pub speculations: Vec<Speculation>,
    /// Maximum time of a step while answers are generated. A step processes at least 16 prompt
    /// tokens, even if they take longer.
    pub step_max: Duration,
    /// The cache on disk; `None` keeps sequences in memory only.
    pub disk: Option<Disk>,
    /// Minimum tokens of a part of a prompt that is reused from another position; at least
    /// [`MOVED_LEAST`](super::MOVED_LEAST). `None` disables moved parts: only common prefixes are
    /// reused.
    ///
    /// The engine must pass [`Engine::check_place`](crate::model::Engine::check_place). With moved
    /// parts, an answer depends on what was computed before it.
    pub moved_min: Option<usize>,
    /// Speculative prefill of long prompts: the draft model of the slot chooses which tokens are
    /// computed. `None` computes all.
    ///
    /// The engine must pass [`Engine::check_omit`](crate::model::Engine::check_omit). A sequence with
    /// such a prompt is not reused from its first omitted token on.
    pub prefill: Option<SpeculativePrefill>,
    /// Whether [`Scheduler::run`](super::Scheduler::run) computes the tokens that were left out once
    /// it has nothing else to do, so that later prompts can reuse them.
    pub prefill_later: bool,
    /// Whether the log may quote prompts.
    pub quotes: bool,
    /// The turns of schedulers that share the processors; `None` for a scheduler with processors to
    /// itself.
    pub turns: Option<Turns>,
}

impl Options {
    /// Returns the options for `slots` slots, without drafts and with steps of at most 200 ms.
    pub fn new(slots: usize) -> Self {
        let speculations = (0..slots).map(|_| Speculation::none()).collect();
        Options {
            speculations,
            step_max: STEP_MAX,
            disk: None,
            moved_min: None,
            prefill: None,
            prefill_later: false,
            quotes: false,
            turns: None,
        }
    }
}
