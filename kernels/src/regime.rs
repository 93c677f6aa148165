//! The two ways to compute a batch, which differ in the order of their sums.

/// How rows of weights, or of the cache, are read for a batch.
///
/// The two sum in different orders, so their results differ by rounding. Within one of them the
/// result for a token does not depend on how many other tokens are in its batch: a caller that
/// chooses by what a token is, and not by how many come together, gets the same bits however it
/// cuts its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// A row is read once, as it is stored: the faster way for a few tokens, which memory bounds.
    Few,
    /// Rows are unpacked once for all tokens: the faster way for many, which arithmetic bounds.
    Many,
}
