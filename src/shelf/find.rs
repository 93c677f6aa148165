//! Finds a model by its name or a part of it.

use super::{Entry, Error};

/// Longer names are refused.
const NAME_MAX: usize = 300;

/// How similar a name must be to be proposed, from 0 to 1.
const SIMILAR: f64 = 0.75;

/// How many similar names are proposed.
const PROPOSED: usize = 3;

/// The quants and tags that a name without one stands for, in order.
const DEFAULTS: [&str; 3] = ["latest", "q4_k_m", "q8_0"];

/// Checks that `name` can be the name of a model.
///
/// # Errors
/// If it is empty, too long, or has a control character.
pub fn check(name: &str) -> Result<(), Error> {
    let is_name = !name.trim().is_empty()
        && name.chars().count() <= NAME_MAX
        && !name.chars().any(char::is_control);
    match is_name {
        true => Ok(()),
        false => Err(Error::Name { name: name.chars().take(NAME_MAX).collect(), max: NAME_MAX }),
    }
}

/// Finds a model: by its exact name, then in any case, without `:latest`, without quant, by a part.
///
/// # Errors
/// If no name or several match.
pub fn find<'a>(
    entries: impl Iterator<Item = &'a Entry> + Clone,
    name: &str,
) -> Result<&'a Entry, Error> {
    check(name)?;
    if let Some(entry) = entries.clone().find(|entry| entry.name == name) {
        return Ok(entry);
    }
    let lower = name.to_lowercase();
    let lowered: Vec<(String, &Entry)> =
        entries.map(|entry| (entry.name.to_lowercase(), entry)).collect();
    let matching = |matches: &dyn Fn(&str) -> bool| -> Vec<&'a Entry> {
        lowered.iter().filter(|(name, _)| matches(name)).map(|(_, entry)| *entry).collect()
    };
    let without_quant =
        matching(&|name| name.split_once(':').is_some_and(|(stem, _)| stem == lower));
    let preferred = || {
        DEFAULTS.iter().find_map(|quant| {
            let whole = format!("{lower}:{quant}");
            lowered.iter().find(|(name, _)| *name == whole).map(|(_, entry)| *entry)
        })
    };
    // ollama's clients add it to a name without a tag.
    let untagged = lower.strip_suffix(":latest");
    let candidates = [
        matching(&|name| name == lower),
        matching(&|name| Some(name) == untagged),
        without_quant,
        matching(&|name| name.contains(&lower)),
    ];
    match candidates.iter().find(|candidates| !candidates.is_empty()) {
        Some(candidates) => match &candidates[..] {
            [one] => Ok(one),
            several => preferred().ok_or_else(|| Error::Several {
                name: name.into(),
                names: several.iter().map(|entry| entry.name.clone()).collect(),
            }),
        },
        None => Err(Error::None { name: name.into(), near: near(&lowered, &lower) }),
    }
}

/// Returns the names that are most similar to `name`, the most similar first.
fn near(lowered: &[(String, &Entry)], name: &str) -> Vec<String> {
    let similarity = |known: &str| {
        // Users leave out the user and the quant.
        let bare = known.split(':').next().unwrap_or(known);
        let bare = bare.rsplit('/').next().unwrap_or(bare);
        strsim::jaro_winkler(known, name).max(strsim::jaro_winkler(bare, name))
    };
    let mut near: Vec<(f64, &str)> =
        lowered.iter().map(|(known, entry)| (similarity(known), &entry.name[..])).collect();
    near.retain(|(similarity, _)| *similarity >= SIMILAR);
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.into_iter().take(PROPOSED).map(|(_, name)| name.to_string()).collect()
}
