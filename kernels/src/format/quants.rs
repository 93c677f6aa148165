/// A kind of quants. Formats with the same kind share the code of their tiles.
pub trait Quants: 'static {
    /// Whether the two halves of a group have their own scales.
    const SPLIT: bool = false;
    /// Whether the format has offsets.
    const OFFSET: bool = false;
    /// Whether quants are signed bytes, not unsigned ones.
    const SIGNED: bool = false;
    /// The largest number of bits of a quant: 4 to 7 if unsigned, otherwise 8.
    const BITS: u32;
}

/// Unsigned integers of at most `BITS` bits, 4 to 7. Narrower quants use 4.
pub struct Unsigned<const BITS: u32>;
/// Signed bytes.
pub struct Signed;
/// Quants `Q` with a scale for each half of a group.
pub struct Split<Q>(Q);
/// Quants `Q` with offsets.
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
