//! Speculative decoding: computes several tokens of an answer in one pass, with the same bits as
//! one at a time.
//!
//! A [`Drafter`] proposes tokens that may follow. One pass computes the last token and the drafts,
//! so it reads the weights once. The sampler chooses from the logits of the last token. While its
//! choice matches the next draft, it continues with that draft's logits. The first wrong draft and
//! all later ones are removed from the sequence.
//!
//! A token's logits do not depend on the other tokens in its pass. So the sampler sees the same
//! logits in the same order, and the answer is the same as without drafts.
//!
//! ```text
//! loop {
//!     propose(..) -> drafts
//!     compute the last token and the drafts          Engine::step, Role::Answer, all wanted
//!     for each logits, in order {
//!         Answer::push -> token; stop if accept(token) is false
//!     }
//!     Sequence::truncate, to the tokens whose logits were used
//!     passed(..)
//! }
//! ```

mod acceptance;
mod automaton;
mod costs;
mod draft_model;
mod lookup;
mod predictor;
pub mod prefill;
mod self_draft;

use std::{
    fmt,
    ops::ControlFlow,
    sync::LazyLock,
    time::{Duration, Instant},
};

pub use self::{
    costs::Costs,
    draft_model::{DraftModel, Error as DraftModelError},
    lookup::Lookup,
    predictor::Predictor,
    prefill::{Scores, SpeculativePrefill},
    self_draft::SelfDraft,
};
use crate::{
    Token,
    model::{self, Engine, Sequence},
};

/// Maximum drafts in a pass.
pub const DRAFTS_MAX: usize = model::ANSWER_ROWS_MAX - 1;

/// Minimum gain for drafts: 1 is none.
const GAIN_MIN: f64 = 1.03;
/// Maximum share of the time for wrong drafts.
const LOSS_MAX: f64 = 0.02;
/// Passes of one token that drafts may lose before they have gained any.
const CREDIT: f64 = 1.0;
/// Upper bound on the credit: passes that drafts may lose after they have gained them.
const CREDIT_MAX: f64 = 8.0;
/// Lower bound on the credit, so that one slow pass cannot disable drafting for long.
const CREDIT_MIN: f64 = -10.0;
/// The weight of the newest measurement of a draft's time.
const NEW: f64 = 1.0 / 8.0;
/// The share of a draft's measured time that each pass without drafts forgets. First drafts are
/// slow, since their weights are not in memory yet; they must not disable drafting for good.
const FORGOTTEN: f64 = 1.0 / 64.0;

/// The engine and the sequence that drafts are for. The sequence lacks the last token of the text.
pub struct Target<'t> {
    /// The engine.
    pub engine: &'t mut Engine,
    /// The sequence.
    pub sequence: &'t mut Sequence,
}

/// A source of drafts for one sequence.
///
/// For example, this drafter expects the last token again:
///
/// ```
/// use rope_cpu::{Token, generate::speculation::{Drafter, Target}, model};
///
/// struct Repeat;
///
/// impl Drafter for Repeat {
///     fn follow(&mut self, _text: &[Token]) {}
///
///     fn chance(&self, _depth: usize) -> f64 {
///         0.5
///     }
///
///     fn draft(
///         &mut self,
///         text: &[Token],
///         count: usize,
///         _target: Option<&mut Target<'_>>,
///         drafts: &mut Vec<Token>,
///     ) -> Result<(), model::Error> {
///         drafts.extend(text.last().into_iter().cycle().take(count));
///         Ok(())
///     }
/// }
///
/// let mut drafts = Vec::new();
/// Repeat.draft(&[1, 2], 3, None, &mut drafts)?;
/// assert_eq!(drafts, [2, 2, 2]);
/// # Ok::<(), model::Error>(())
/// ```
pub trait Drafter: Send {
    /// Processes a prompt until it is complete or `progress` breaks. Does nothing by default.
    ///
    /// # Errors
    /// If the pass of a draft model fails.
    fn begin(
        &mut self,
        _prompt: &[Token],
        _progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), model::Error> {
        Ok(())
    }

    /// Processes a prompt like [`begin`](Self::begin), and scores its tokens for speculative
    /// [`prefill`]. Only draft models do.
    ///
    /// # Errors
    /// If the pass of a draft model fails.
    fn score(
        &mut self,
        _prompt: &[Token],
        _progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Scores, model::Error> {
        Ok(Scores::None)
    }

    /// Updates the drafter to `text`: the prompt and the answer so far. The text may differ from
    /// the last one in any token.
    fn follow(&mut self, text: &[Token]);

    /// Returns the probability that a draft is right if the drafts before it are. The first draft
    /// has depth 0.
    fn chance(&self, depth: usize) -> f64;

    /// Adds at most `count` drafts of the tokens after `text` to the empty `drafts`. `text` is the
    /// last text passed to [`follow`](Self::follow).
    ///
    /// # Errors
    /// If the pass of a draft model or of the predictor fails.
    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        target: Option<&mut Target<'_>>,
        drafts: &mut Vec<Token>,
    ) -> Result<(), model::Error>;
}

/// How many drafts a pass has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The number with the most tokens per second, by the chances of drafts and the measured times
    /// of passes, but at most this number. If drafts do not pay, none.
    UpTo(usize),
    /// Exactly this number, or fewer if the drafter has fewer.
    Always(usize),
}

/// Proposes the drafts for one sequence, and measures whether they pay.
///
/// ```
/// use rope_cpu::generate::speculation::{Count, Lookup, Speculation};
///
/// // Proposes tokens that followed the same text before, eight at most.
/// let speculation = Speculation::new(vec![Box::new(Lookup::default())], Count::UpTo(8));
/// ```
pub struct Speculation {
    sources: Vec<Source>,
    count: Count,
    costs: Costs,
    text: Vec<Token>,
    drafts: Vec<Token>,
    accepted: usize,
    /// The seconds for the drafts of this pass.
    drafting: f64,
    clock: fn() -> Duration,
    /// The number of passes of one token that drafts may still lose.
    credit: f64,
}

/// A drafter, with the seconds per draft once they are measured.
struct Source {
    drafter: Box<dyn Drafter>,
    seconds: Option<f64>,
}

impl Speculation {
    /// Creates a speculation from these drafters. Each pass takes its drafts from the first drafter
    /// that pays.
    pub fn new(drafters: Vec<Box<dyn Drafter>>, count: Count) -> Self {
        let sources = drafters.into_iter().map(|drafter| Source { drafter, seconds: None });
        Speculation {
            sources: sources.collect(),
            count,
            costs: Costs::default(),
            text: Vec::new(),
            drafts: Vec::new(),
            accepted: 0,
            drafting: 0.0,
            clock: since_start,
            credit: CREDIT,
        }
    }

    /// Creates a speculation without drafts.
    pub fn none() -> Self {
        Speculation::new(Vec::new(), Count::UpTo(0))
    }

    /// Returns the measured times of passes.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Sets the times of passes, as measured for other sequences of the engine.
    pub fn set_costs(&mut self, costs: Costs) {
        self.costs = costs;
    }

    /// Starts an answer to `prompt`. If `progress` breaks, a draft model stops processing the
    /// prompt.
    ///
    /// # Errors
    /// If the pass of a draft model fails.
    pub fn begin(
        &mut self,
        prompt: &[Token],
        progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), model::Error> {
        self.text.clear();
        self.drafts.clear();
        if self.sources.is_empty() {
            return Ok(());
        }
        self.text.extend_from_slice(prompt);
        self.sources.iter_mut().try_for_each(|source| source.drafter.begin(prompt, progress))
    }

    /// Scores the tokens of a prompt with the first source that can. If `progress` breaks, they are
    /// [`Scores::Incomplete`].
    ///
    /// # Errors
    /// If the pass of a draft model fails.
    pub fn score(
        &mut self,
        prompt: &[Token],
        progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Scores, model::Error> {
        for source in &mut self.sources {
            match source.drafter.score(prompt, progress)? {
                Scores::None => {}
                scores => return Ok(scores),
            }
        }
        Ok(Scores::None)
    }

    /// Returns at most `room` drafts for the next pass. `rows` is the number of rows in the pass
    /// without drafts: 1 for a single sequence. [`Predictor`] and [`SelfDraft`] draft only if they
    /// have the `target`.
    ///
    /// # Errors
    /// If the pass of a draft model, of the predictor or of sparse attention fails.
    pub fn propose(
        &mut self,
        rows: usize,
        room: usize,
        mut target: Option<Target<'_>>,
    ) -> Result<&[Token], model::Error> {
        self.drafts.clear();
        (self.accepted, self.drafting) = (0, 0.0);
        for source in &mut self.sources {
            source.drafter.follow(&self.text);
            let count = match self.count {
                Count::Always(count) => count.min(room),
                Count::UpTo(_) if self.credit <= 0.0 || self.costs.is_empty() => 0,
                Count::UpTo(most) => {
                    let loss_max = self.credit + CREDIT;
                    source.best(most.min(room), rows, loss_max, &self.costs)
                }
            };
            if count > 0 {
                let started = (self.clock)();
                source.drafter.draft(&self.text, count, target.as_mut(), &mut self.drafts)?;
                self.drafting += ((self.clock)() - started).as_secs_f64();
            }
            if !self.drafts.is_empty() {
                source.took(self.drafting / self.drafts.len() as f64);
                break;
            }
            source.seconds = source.seconds.map(|seconds| seconds * (1.0 - FORGOTTEN));
        }
        Ok(&self.drafts)
    }

    /// Adds a token that the sampler chose. Returns whether it matches the next draft. If it does,
    /// you can use that draft's logits.
    pub fn accept(&mut self, token: Token) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        self.text.push(token);
        let right = self.drafts.get(self.accepted) == Some(&token);
        self.accepted += usize::from(right);
        right
    }

    /// Records the time of a pass of `rows` rows, including drafts. Call it after you accepted the
    /// tokens.
    pub fn passed(&mut self, rows: usize, time: Duration) {
        let all = self.costs.record(rows, time);
        let without = rows.saturating_sub(self.drafts.len()).max(1);
        let single = self.costs.seconds(without);
        if self.drafts.is_empty() {
            self.credit = (self.credit + LOSS_MAX).min(self.credit.max(CREDIT));
        } else {
            let lost = (all + self.drafting) / single - 1.0;
            let gained = self.accepted as f64 / without as f64;
            self.credit = (self.credit + gained - lost).clamp(CREDIT_MIN, CREDIT_MAX);
        }
    }
}

impl Source {
    /// Returns the number of drafts with the highest expected tokens per second; 0 if the gain is
    /// small. If all drafts are wrong, they cost at most `loss_max` passes without drafts. The
    /// first draft comes alone, to measure its time.
    fn best(&self, most: usize, rows: usize, loss_max: f64, costs: &Costs) -> usize {
        let single = costs.seconds(rows);
        let most = if self.seconds.is_none() { most.min(1) } else { most };
        let seconds = self.seconds.unwrap_or(0.0);
        let mut best = (0, GAIN_MIN * rows as f64 / single);
        let (mut tokens, mut chance) = (rows as f64, 1.0);
        for count in 1..=most {
            chance *= self.drafter.chance(count - 1);
            tokens += chance;
            let time = costs.seconds(rows + count) + count as f64 * seconds;
            if time > (1.0 + loss_max) * single {
                break;
            }
            if tokens / time > best.1 {
                best = (count, tokens / time);
            }
        }
        best.0
    }

    /// Records the seconds that a draft took.
    fn took(&mut self, seconds: f64) {
        let known = self.seconds.unwrap_or(seconds);
        self.seconds = Some(known + (seconds - known) * NEW);
    }
}

/// Returns the time since the first call.
fn since_start() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// A function of the engine that drafts the tokens after a token, as [`Engine::predict`] does.
type Predict = fn(
    &mut Engine,
    &mut Sequence,
    Token,
    usize,
    &mut dyn FnMut(&[f32]) -> Option<Token>,
) -> Result<(), model::Error>;

/// Adds at most `count` of the most likely tokens after a text to `drafts`. Adds none if the target
/// lacks more than the last token.
fn draft_likeliest(
    predict: Predict,
    text: &[Token],
    count: usize,
    target: Option<&mut Target<'_>>,
    drafts: &mut Vec<Token>,
) -> Result<(), model::Error> {
    let (Some(Target { engine, sequence }), Some((&last, before))) = (target, text.split_last())
    else {
        return Ok(());
    };
    if sequence.tokens().len() != before.len() {
        return Ok(());
    }
    predict(engine, sequence, last, count, &mut |logits| {
        drafts.push(likeliest(logits));
        drafts.last().copied()
    })
}

/// Returns the token with the largest logit.
fn likeliest(logits: &[f32]) -> Token {
    let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (0..logits.len()).fold(0, better) as Token
}

impl fmt::Debug for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speculation").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Drafts zeros. Each is right with the same chance. Drafting takes these seconds.
    struct Zeros {
        chance: f64,
        /// For the first draft.
        first: f64,
        /// For each later one.
        later: f64,
    }

    impl Drafter for Zeros {
        fn follow(&mut self, _: &[Token]) {}

        fn chance(&self, _: usize) -> f64 {
            self.chance
        }

        fn draft(
            &mut self,
            _: &[Token],
            count: usize,
            _: Option<&mut Target<'_>>,
            drafts: &mut Vec<Token>,
        ) -> Result<(), model::Error> {
            let seconds = std::mem::replace(&mut self.first, self.later);
            let time = Duration::from_secs_f64(seconds + (count - 1) as f64 * self.later);
            NOW.set(NOW.get() + time);
            drafts.resize(count, 0);
            Ok(())
        }
    }

    /// Creates a speculation that takes the time from `NOW`.
    fn timed(drafter: Zeros, count: Count) -> Speculation {
        let new = Speculation::new(vec![Box::new(drafter)], count);
        Speculation { clock: || NOW.get(), ..new }
    }

    fn speculation(chance: f64, count: Count) -> Speculation {
        timed(Zeros { chance, first: 0.0, later: 0.0 }, count)
    }

    /// Generates tokens, where `right(i)` drafts are right, with passes of `milliseconds(rows)`.
    /// Returns the tokens, and the milliseconds.
    fn run(
        speculation: &mut Speculation,
        passes: usize,
        right: impl Fn(usize) -> usize,
        milliseconds: impl Fn(usize) -> f64,
    ) -> (usize, f64) {
        let (mut tokens, mut time) = (0, 0.0);
        for pass in 0..passes {
            let drafts = speculation.propose(1, 15, None).unwrap().len();
            let mut accepted = 0;
            while speculation.accept(Token::from(accepted >= right(pass))) {
                accepted += 1;
            }
            assert_eq!(accepted, drafts.min(right(pass)));
            let taken = milliseconds(1 + drafts);
            speculation.passed(1 + drafts, Duration::from_secs_f64(taken / 1000.0));
            (tokens, time) = (tokens + 1 + accepted, time + taken);
        }
        (tokens, time)
    }

    /// Returns the speed relative to passes of one token.
    fn gain((tokens, time): (usize, f64), single: f64) -> f64 {
        tokens as f64 * single / time
    }

    #[test]
    fn right_drafts_gain_what_the_passes_permit() {
        let memory_bound = |rows: usize| 20.0 + rows as f64;
        let mut always = speculation(0.98, Count::UpTo(15));
        let found = gain(run(&mut always, 200, |_| 15, memory_bound), memory_bound(1));
        assert!(found > 0.9 * 16.0 * 21.0 / 36.0, "{found}");
    }

    #[test]
    fn where_drafts_do_not_pay_hardly_anything_is_lost() {
        // Drafts that are right less often than assumed, and passes that gain nothing from more
        // rows.
        for (right, row) in [(0, 0.02), (0, 0.3), (0, 1.0), (1, 1.0), (15, 1.0), (15, 1.2)] {
            for chance in [0.3, 0.7, 0.99] {
                let mut lossy = speculation(chance, Count::UpTo(15));
                let cost = |rows: usize| 1.0 + row * (rows as f64 - 1.0);
                let short = gain(run(&mut lossy, 150, |_| right, cost), 1.0);
                let long = gain(run(&mut lossy, 5000, |_| right, cost), 1.0);
                assert!(short > 0.93 && long > 0.97, "{right}, {row}, {chance}: {short}, {long}");
            }
        }
    }

    #[test]
    fn where_slow_drafts_do_not_pay_hardly_anything_is_lost() {
        for seconds in [0.001, 0.004] {
            let mut slow =
                timed(Zeros { chance: 0.9, first: seconds, later: seconds }, Count::UpTo(15));
            let (single, mut time, mut drafting) = (0.01, 0.0, 0.0);
            for _ in 0..1000 {
                let drafts = slow.propose(1, 15, None).unwrap().len();
                drafting += drafts as f64 * seconds;
                assert!(!slow.accept(1));
                let pass = single * (1.0 + 0.1 * drafts as f64);
                slow.passed(1 + drafts, Duration::from_secs_f64(pass));
                time += pass;
            }
            let found = 1000.0 * single / (time + drafting);
            assert!(drafting > 0.0 && found > 0.97, "{seconds}: {found}");
        }
    }

    #[test]
    fn drafts_are_tried_again() {
        let cost = |rows: usize| 1.0 + 0.1 * (rows as f64 - 1.0);
        let mut late = speculation(0.9, Count::UpTo(15));
        run(&mut late, 2000, |_| 0, cost);
        let found = gain(run(&mut late, 2000, |_| 15, cost), 1.0);
        assert!(found > 4.0, "{found}");
    }

    #[test]
    fn an_interruption_does_not_switch_drafts_off() {
        let cost = |rows: usize| 1.0 + 0.1 * (rows as f64 - 1.0);
        let mut interrupted = speculation(0.9, Count::UpTo(15));
        run(&mut interrupted, 50, |_| 15, cost);
        let rows = 1 + interrupted.propose(1, 15, None).unwrap().len();
        interrupted.passed(rows, Duration::from_secs(100));
        let found = gain(run(&mut interrupted, 1000, |_| 15, cost), 1.0);
        assert!(found > 4.0, "{found}");
    }

    #[test]
    fn slow_first_drafts_are_single_and_forgotten() {
        for slow in [false, true] {
            let first = if slow { 0.03 } else { 0.0 };
            let mut speculation = timed(Zeros { chance: 0.99, first, later: 0.0 }, Count::UpTo(15));
            let counts = (0..200).map(|_| {
                let drafts = speculation.propose(1, 15, None).unwrap().len();
                for _ in 0..=drafts {
                    speculation.accept(0);
                }
                speculation.passed(1 + drafts, Duration::from_millis(10));
                drafts
            });
            let counts: Vec<_> = counts.collect();
            assert_eq!(counts[..2], [0, 1]);
            assert_eq!(counts[2] == 0, slow, "{counts:?}");
            assert!(counts[199] > 1, "{counts:?}");
        }
    }

    #[test]
    fn a_fixed_number_is_limited_by_the_room_only() {
        let mut fixed = speculation(0.0, Count::Always(4));
        assert_eq!(fixed.propose(1, 15, None).unwrap(), [0; 4]);
        assert_eq!(fixed.propose(1, 2, None).unwrap(), [0; 2]);
        assert_eq!(fixed.propose(1, 0, None).unwrap().len(), 0);
        assert_eq!(Speculation::none().propose(1, 15, None).unwrap().len(), 0);
    }
}
