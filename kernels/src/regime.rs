//! The two ways to compute a batch of tokens, which differ in the order of their sums.

/// How rows of weights, or of the cache, are read for a batch of tokens.
///
/// The two regimes sum in different orders, so their results differ by rounding. Within a regime,
/// the result for a token does not depend on the number of tokens in the batch. So choose the
/// regime by the kind of token (prompt or answer), not by the batch size. Then every way to split
/// tokens into batches gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// A row is read once, as it is stored. Faster for a few tokens: memory limits their speed.
    Few,
    /// Rows are unpacked once for all tokens. Faster for many tokens: arithmetic limits their
    /// speed.
    Many,
}
