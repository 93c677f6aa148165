//! The default thread counts.
//!
//! The work is vector arithmetic and streaming from memory. The second hardware thread of a core
//! shares both with the first, so it only waits. So the default is one thread for each physical
//! core that this process may use, but no more than its CPU quota.
//!
//! Generating an answer is limited by memory bandwidth, which performance cores alone can use up.
//! Prompt processing is arithmetic, and efficiency cores help, unless they are so slow that each
//! step waits for them at its end.

use super::{
    system,
    topology::{Machine, cores},
};

/// The number of workers for each kind of step.
///
/// ```
/// use rope_cpu::threads::Workers;
///
/// // Four performance cores for answers, and the efficiency cores as well for prompts.
/// let workers = Workers { answers: 4, prompts: 8 };
/// assert_eq!(workers.most(), 8);
/// assert_eq!(Workers::from(4), Workers { answers: 4, prompts: 4 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// For a step that only generates answers. It is limited by memory bandwidth, so slow cores do
    /// not help.
    pub answers: usize,
    /// For a step with prompt tokens. It is limited by arithmetic.
    pub prompts: usize,
}

impl Workers {
    /// Returns the number of workers of a team that runs both kinds of steps.
    pub fn most(self) -> usize {
        self.answers.max(self.prompts)
    }
}

/// Uses the same number for all steps.
impl From<usize> for Workers {
    fn from(count: usize) -> Self {
        Workers { answers: count, prompts: count }
    }
}

/// The numbers of threads, and the reason for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The numbers of threads.
    pub workers: Workers,
    /// The reason, as a phrase: `8 performance cores; prompts: 16 cores`.
    pub reason: String,
}

/// Returns the thread counts to use if the user does not set them.
pub fn default_threads() -> Threads {
    system::machine().and_then(|machine| threads(&machine)).unwrap_or_else(|| {
        let count = usable().unwrap_or(1);
        Threads { workers: count.into(), reason: plural(count, "logical processor") }
    })
}

/// Returns the thread counts for a machine; `None` if this process may use none of its processors.
pub(super) fn threads(machine: &Machine) -> Option<Threads> {
    let all = &machine.processors;
    let (allowed, hybrid) = (|| all.iter().filter(|p| p.allowed), all.iter().any(|p| !p.fast));
    // A process that is pinned to efficiency cores uses them.
    let on_fast = allowed().any(|p| p.fast);
    let chosen = cores(allowed().filter(|p| p.fast == on_fast));
    let others = cores(allowed().filter(|p| p.fast != on_fast));
    if chosen == 0 {
        return None;
    }

    let kind = match (hybrid, on_fast) {
        (false, _) => "physical core",
        (true, true) => "performance core",
        (true, false) => "efficiency core",
    };
    let mut workers = Workers::from(chosen);
    let mut reason = plural(chosen, kind);
    match others {
        0 => {}
        _ if machine.slow_cores_help => {
            workers.prompts += others;
            reason += &format!("; prompts: {}", plural(workers.prompts, "core"));
        }
        _ => reason += &format!("; {} left out", plural(others, "efficiency core")),
    }
    if allowed().count() < all.len() {
        reason += &format!("; {} of {} processors allowed", allowed().count(), all.len());
    }
    if let Some(quota) = machine.quota
        && quota < workers.most() as f64
    {
        let most = (quota as usize).max(1);
        let Workers { answers, prompts } = workers;
        workers = Workers { answers: answers.min(most), prompts: prompts.min(most) };
        reason += &format!("; a CPU quota of {quota:.1}");
    }
    Some(Threads { workers, reason })
}

/// Returns the number of logical processors that this process may use, by its affinity and CPU
/// quota; `None` if the system does not report it.
pub fn usable() -> Option<usize> {
    std::thread::available_parallelism().ok().map(usize::from)
}

/// Formats a count with its noun: `1 core`, `2 cores`.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
