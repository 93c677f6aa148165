//! The two ways to compute a batch of tokens, which differ in the order of their sums.

/// The way in which rows of weights, or of the cache, are read for a batch of tokens.
///
/// The two regimes sum in different orders, so their results differ by rounding. Within one regime
/// the result for a token does not depend on the number of tokens in its batch. So choose the
/// regime by the kind of token (prompt or answer), and not by the size of the batch. Then every way
/// of splitting tokens into batches gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// A row is read once, as it is stored. Faster for a few tokens: memory limits their speed.
    Few,
    /// Rows are unpacked once for all tokens. Faster for many tokens: arithmetic limits their
    /// speed.
    Many,
}
