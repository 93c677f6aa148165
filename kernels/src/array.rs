//! Arrays of vectors.
//!
//! The closures of `std::array::from_fn` and `<[T; N]>::map` are not always inlined. Code that is
//! not inlined into a kernel is compiled without its instruction set, so each vector operation
//! becomes a call. For arrays of plain numbers, the functions of `std` are as good, and often
//! better.

/// Returns `[f(0), f(1), ...]`.
#[inline(always)]
pub(crate) fn from_fn<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    const { assert!(N > 0) };
    let mut out = [f(0); N];
    for i in 1..N {
        out[i] = f(i);
    }
    out
}

/// Returns `[f(a[0]), f(a[1]), ...]`.
#[inline(always)]
pub(crate) fn map<A: Copy, T: Copy, const N: usize>(
    a: [A; N],
    mut f: impl FnMut(A) -> T,
) -> [T; N] {
    from_fn(
        #[inline(always)]
        |i| f(a[i]),
    )
}
