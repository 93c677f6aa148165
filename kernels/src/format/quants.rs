/// What the integers of a format are. Formats that agree in it share the code of their tiles.
pub trait Quants: 'static {
    /// Whether the two halves of a group have scales of their own.
    const SPLIT: bool = false;
    /// Whether there is an offset.
    const OFFSET: bool = false;
    /// Whether quants are signed bytes, rather than unsigned.
    const SIGNED: bool = false;
    /// Bits of a quant at most: 4 to 7 of unsigned ones.
    const BITS: u32;
}

/// Integers from 0 on, of 4 to 7 bits; fewer make no difference.
pub struct Unsigned<const BITS: u32>;
/// Signed bytes.
pub struct Signed;
/// The two halves of a group have scales of their own.
pub struct Split<Q>(Q);
/// There is an offset.
pub struct Offset<Q>(Q);

impl<const BITS: u32> Quants for Unsigned<BITS> {
    const BITS: u32 = BITS;
}

impl Quants for Signed {
    const SIGNED: bool = true;
    const BITS: u32 = 8;
}

impl<Q: Quants> Quants for Split<Q> {
    const SPLIT: bool = true;
    const OFFSET: bool = Q::OFFSET;
    const SIGNED: bool = Q::SIGNED;
    const BITS: u32 = Q::BITS;
}

impl<Q: Quants> Quants for Offset<Q> {
    const SPLIT: bool = Q::SPLIT;
    const OFFSET: bool = true;
    const SIGNED: bool = Q::SIGNED;
    const BITS: u32 = Q::BITS;
}
