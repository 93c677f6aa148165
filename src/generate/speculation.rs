//! Speculative decoding: several tokens of an answer in one pass, with the bits of one at a time.
//!
//! A [`Drafter`] proposes what follows. The last token and the drafts are computed in one pass,
//! which reads the weights once. The sampler chooses by the logits of the last token and, as long as
//! its choice is the next draft, by those of that draft. The first wrong draft and all after it are
//! removed from the sequence. A token's logits have the same bits with any others in its pass, and
//! the sampler has the same logits in the same order, so the answer is that without drafts.
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

mod automaton;
mod costs;
mod draft_model;
mod lookup;

use std::{
    fmt,
    ops::ControlFlow,
    time::{Duration, Instant},
};

pub use self::{
    costs::Costs,
    draft_model::{DraftModel, Error as DraftModelError},
    lookup::Lookup,
};
use crate::{Token, model};

/// The most drafts of a pass.
pub const DRAFTS_MAX: usize = model::ANSWER_ROWS_MAX - 1;

/// The least gain for which drafts are computed: 1 is none.
const GAIN_MIN: f64 = 1.03;
/// The share of the time that wrong drafts may cost.
const LOSS_MAX: f64 = 0.02;
/// The most passes of one token that may be lost before drafts have gained anything.
const CREDIT: f64 = 1.0;
/// The most passes that may be lost again of those that drafts have gained.
const CREDIT_MAX: f64 = 8.0;
/// The most passes that are ever to be gained again, after something else took long.
const CREDIT_MIN: f64 = -10.0;
/// The weight of the last time that a draft took.
const NEW: f64 = 1.0 / 8.0;

/// A source of drafts.
pub trait Drafter: Send {
    /// Reads a prompt, as far as `progress` does not stop it. By default nothing is done.
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

    /// Follows a text: the prompt and the answer so far. It may be another text than the last one.
    fn follow(&mut self, text: &[Token]);

    /// Returns the probability that a draft is right if those before it are: the next token has
    /// depth 0.
    fn chance(&self, depth: usize) -> f64;

    /// Adds at most `count` drafts of what follows `text`, which was followed, to the empty
    /// `drafts`.
    ///
    /// # Errors
    /// If the pass of a draft model fails.
    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        drafts: &mut Vec<Token>,
    ) -> Result<(), model::Error>;
}

/// The number of drafts in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The number that gains most by the chances of drafts and by the measured times of passes, at
    /// most this one: none where drafts do not pay.
    UpTo(usize),
    /// This number, whenever there are so many.
    Always(usize),
}

/// The drafts of one sequence, and their success.
pub struct Speculation {
    sources: Vec<Source>,
    count: Count,
    costs: Costs,
    text: Vec<Token>,
    drafts: Vec<Token>,
    accepted: usize,
    /// The seconds that the drafts of this pass took.
    drafting: f64,
    /// The passes of one token that may be lost.
    credit: f64,
}

/// A drafter, and the seconds that a draft takes.
struct Source {
    drafter: Box<dyn Drafter>,
    seconds: f64,
}

impl Speculation {
    /// Creates drafts of a drafter; if there are several, of the first one whose drafts pay.
    pub fn new(drafters: Vec<Box<dyn Drafter>>, count: Count) -> Self {
        let sources = drafters.into_iter().map(|drafter| Source { drafter, seconds: 0.0 });
        Speculation {
            sources: sources.collect(),
            count,
            costs: Costs::default(),
            text: Vec::new(),
            drafts: Vec::new(),
            accepted: 0,
            drafting: 0.0,
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

    /// Replaces the times of passes, by those that other sequences of the engine have measured.
    pub fn set_costs(&mut self, costs: Costs) {
        self.costs = costs;
    }

    /// Begins an answer to `prompt`. If `progress` breaks, a draft model stops reading it.
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

    /// Returns the drafts for the next pass, at most `room`. `rows` is the number of rows of the
    /// pass without drafts: 1 if the sequence is alone.
    ///
    /// # Errors
    /// If the pass of a draft model fails.
    pub fn propose(&mut self, rows: usize, room: usize) -> Result<&[Token], model::Error> {
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
                let started = Instant::now();
                source.drafter.draft(&self.text, count, &mut self.drafts)?;
                self.drafting += started.elapsed().as_secs_f64();
            }
            if !self.drafts.is_empty() {
                source.took(self.drafting / self.drafts.len() as f64);
                break;
            }
        }
        Ok(&self.drafts)
    }

    /// Adds a token that the sampler chose. Returns whether it is the next draft, whose logits are
    /// those of the next token.
    pub fn accept(&mut self, token: Token) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        self.text.push(token);
        let right = self.drafts.get(self.accepted) == Some(&token);
        self.accepted += usize::from(right);
        right
    }

    /// Records the time of a pass with `rows` rows, drafts included, after its tokens were
    /// accepted.
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
    /// Returns the number of drafts that is expected to give the most tokens in a time, 0 if it is
    /// hardly more than without drafts. If all drafts are wrong, at most `loss_max` passes without
    /// drafts are lost.
    fn best(&self, most: usize, rows: usize, loss_max: f64, costs: &Costs) -> usize {
        let single = costs.seconds(rows);
        let mut best = (0, GAIN_MIN * rows as f64 / single);
        let (mut tokens, mut chance) = (rows as f64, 1.0);
        for count in 1..=most {
            chance *= self.drafter.chance(count - 1);
            tokens += chance;
            let time = costs.seconds(rows + count) + count as f64 * self.seconds;
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
        let weight = if self.seconds > 0.0 { NEW } else { 1.0 };
        self.seconds += (seconds - self.seconds) * weight;
    }
}

impl fmt::Debug for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speculation").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drafts zeros, each of which is right with the same chance.
    struct Zeros(f64);

    impl Drafter for Zeros {
        fn follow(&mut self, _: &[Token]) {}

        fn chance(&self, _: usize) -> f64 {
            self.0
        }

        fn draft(
            &mut self,
            _: &[Token],
            count: usize,
            drafts: &mut Vec<Token>,
        ) -> Result<(), model::Error> {
            drafts.resize(count, 0);
            Ok(())
        }
    }

    fn speculation(chance: f64, count: Count) -> Speculation {
        Speculation::new(vec![Box::new(Zeros(chance))], count)
    }

    /// Generates tokens of which `right(i)` drafts are right, with passes of `milliseconds(rows)`.
    /// Returns the tokens, and the milliseconds.
    fn run(
        speculation: &mut Speculation,
        passes: usize,
        right: impl Fn(usize) -> usize,
        milliseconds: impl Fn(usize) -> f64,
    ) -> (usize, f64) {
        let (mut tokens, mut time) = (0, 0.0);
        for pass in 0..passes {
            let drafts = speculation.propose(1, 15).unwrap().len();
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
        // Drafts that are less often right than assumed, and passes that gain nothing by more rows.
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
        let rows = 1 + interrupted.propose(1, 15).unwrap().len();
        interrupted.passed(rows, Duration::from_secs(100));
        let found = gain(run(&mut interrupted, 1000, |_| 15, cost), 1.0);
        assert!(found > 4.0, "{found}");
    }

    #[test]
    fn a_fixed_number_is_limited_by_the_room_only() {
        let mut fixed = speculation(0.0, Count::Always(4));
        assert_eq!(fixed.propose(1, 15).unwrap(), [0; 4]);
        assert_eq!(fixed.propose(1, 2).unwrap(), [0; 2]);
        assert_eq!(fixed.propose(1, 0).unwrap().len(), 0);
        assert_eq!(Speculation::none().propose(1, 15).unwrap().len(), 0);
    }
}
