//! What layers see of positions: sliding windows, and which queries and keys rotate.

use super::{LAYERS_MAX, feed_forward::DENSE, keys::Keys};
use crate::{
    gguf::Metadata,
    model::{Architecture, Error},
};

/// The use of positions in a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionFamily {
    /// The elements of a head that rotate together.
    pub pairing: Pairing,
    /// Whether files with sections of M-RoPE pair halves: their converter reorders queries and keys.
    pub sections_pair_halves: bool,
    /// The layers with a sliding window; `None` if the family has no windows.
    pub windows: Option<Windows>,
    /// The layers without rotation of queries and keys.
    pub unrotated: Unrotated,
}

/// The elements of a head that rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Element `2i` rotates with `2i + 1`.
    Adjacent,
    /// Element `i` rotates with `i + n/2`.
    Halves,
}

/// The layers with a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The layers without a window.
    pub global: Global,
    /// The window in positions if the file does not set one.
    pub default: Option<usize>,
    /// The number of layers of models with windows; `None` for all models.
    pub only: Option<usize>,
    /// Whether layers with a window have their own RoPE, which no RoPE method changes.
    pub own_rope: bool,
    /// Whether files with another base for these layers are refused. llama.cpp would use it, and no
    /// known file has one.
    pub one_base: bool,
}

/// The layers without a sliding window. In any family, a file may list the layers that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// None.
    None,
    /// The first layer of each period, by default of this length.
    First(usize),
    /// The last layer of each period, by default of this length.
    Last(usize),
    /// The file must list them.
    Listed,
}

/// The layers without rotation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrotated {
    /// None.
    Never,
    /// All.
    Always,
    /// The last layer of each period.
    Period(usize),
    /// The layers without a window, in models that have windows. First layers without experts rotate,
    /// and so do layers that predict tokens.
    Global,
    /// All layers, in files with `rope.scaling.finetuned` = false.
    Unless,
    /// The layers with `false` in `attention.rope_pattern`.
    Listed,
}

impl PositionFamily {
    /// All layers rotate neighbouring elements, and see all earlier positions.
    pub const PLAIN: Self = PositionFamily {
        pairing: Pairing::Adjacent,
        sections_pair_halves: false,
        windows: None,
        unrotated: Unrotated::Never,
    };
}

impl Windows {
    /// Windows of a size that the file sets, with the RoPE of all layers.
    pub const fn without(global: Global) -> Self {
        Windows { global, default: None, only: None, own_rope: false, one_base: false }
    }
}

/// Whether each layer rotates queries and keys.
pub const ROTATES: &str = "attention.rope_pattern";
const SECTIONS: &str = "rope.dimension_sections";

/// Returns whether pairs rotate by several kinds of positions of an image (M-RoPE). llama.cpp needs
/// pairs of the first two kinds.
pub fn has_sections(keys: &Keys<'_, '_>) -> Result<bool, Error> {
    let sections = keys.metadata.integers(&keys.name(SECTIONS))?.unwrap_or_default();
    Ok(sections.len() > 1 && sections[..2].iter().all(|pairs| *pairs > 0))
}

/// Checks the numbers of pairs that rotate by each kind of position of an image (M-RoPE). Tokens of
/// text have the same position of the first three kinds, and 0 of the fourth, so that pairs of the
/// first three rotate as in any other model.
pub fn check_sections(keys: &Keys<'_, '_>) -> Result<(), Error> {
    let key = keys.name(SECTIONS);
    match keys.metadata.integers(&key)?.unwrap_or_default().get(3) {
        None | Some(0) => Ok(()),
        Some(pairs) => {
            let reason = "the fourth section must be 0: only text is supported".into();
            Err(Error::Value { key, value: format!("an array with {pairs} at index 3"), reason })
        }
    }
}

/// Reads the sliding window of each layer. The key of the pattern has a boolean for each layer, or
/// the period of layers without a window. The `predicting` last layers have none unless an array says
/// so, which may leave them out.
pub fn windows(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
    predicting: usize,
) -> Result<Vec<Option<usize>>, Error> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let windows = architecture.positions.windows;
    let windows = windows.filter(|windows| windows.only.is_none_or(|only| only == layers));
    let Some(windows) = windows else { return Ok(vec![None; layers]) };
    let window = keys.number("attention.sliding_window")?.or(windows.default);
    let window = window.filter(|&window| window > 0);
    let used = layers - predicting;
    let short = predicting > 0 && keys.array_len(PATTERN) == Some(used);
    let listed = keys.flags(PATTERN, if short { used } else { layers })?;
    let mut has_window = match (listed, windows.global) {
        (Some(listed), _) => listed,
        (None, Global::None) => vec![true; used],
        (None, Global::First(period)) => {
            let period = keys.size_or(PATTERN, LAYERS_MAX, period)?;
            (0..used).map(|layer| layer % period > 0).collect()
        }
        (None, Global::Last(period)) => {
            let period = keys.size_or(PATTERN, LAYERS_MAX, period)?;
            (0..used).map(|layer| layer % period + 1 < period).collect()
        }
        (None, Global::Listed) => Metadata::require(&keys.name(PATTERN), None)?,
    };
    has_window.resize(layers, false);
    Ok(has_window.into_iter().map(|has| window.filter(|_| has)).collect())
}

/// Returns whether each layer has no rotation of queries and keys.
pub fn unrotated(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    windows: &[Option<usize>],
    predicting: usize,
) -> Result<Vec<bool>, Error> {
    let layers = windows.len();
    Ok(match architecture.positions.unrotated {
        Unrotated::Never => vec![false; layers],
        Unrotated::Always => vec![true; layers],
        Unrotated::Period(period) => {
            (0..layers).map(|layer| layer % period + 1 == period).collect()
        }
        Unrotated::Global => {
            let any = windows.iter().any(Option::is_some);
            let rest = keys.number(DENSE)?.unwrap_or(0)..layers - predicting;
            (0..layers)
                .map(|layer| any && windows[layer].is_none() && rest.contains(&layer))
                .collect()
        }
        Unrotated::Unless => {
            let rotates = keys.metadata.bool(&keys.name("rope.scaling.finetuned"))?;
            vec![rotates == Some(false); layers]
        }
        Unrotated::Listed => {
            let rotates = keys.flags(ROTATES, layers)?;
            // One value stands for all layers.
            let one = keys.flag(ROTATES);
            let all = rotates.unwrap_or_else(|| vec![one.unwrap_or(true); layers]);
            all.into_iter().map(|rotates| !rotates).collect()
        }
    })
}

/// Checks that layers with a window have the base of all layers, where they must.
pub fn check_base(keys: &Keys<'_, '_>, architecture: &Architecture) -> Result<(), Error> {
    if !architecture.positions.windows.is_some_and(|windows| windows.one_base) {
        return Ok(());
    }
    let key = keys.name("rope.freq_base_swa");
    let base = keys.metadata.f32(&keys.name("rope.freq_base"))?.unwrap_or(10000.0);
    match keys.metadata.f32(&key)?.filter(|own| *own != base) {
        None => Ok(()),
        Some(own) => {
            let reason = format!(
                "must be rope.freq_base, which is {base}: layers with a window rotate by the same base"
            );
            Err(Error::Value { key, value: own.to_string(), reason })
        }
    }
}
