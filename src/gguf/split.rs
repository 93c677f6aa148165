//! Split models: several files `NAME-00001-of-0000N.gguf`, as llama-gguf-split writes them.
//!
//! The first part has the metadata. Each part has three keys: `split.no`, its number from 0;
//! `split.count`, the number of parts; `split.tensors.count`, the number of tensors of the model.

use std::path::{Path, PathBuf};

use super::{Error, File, Gguf, limits::PARTS_MAX, quoted};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// The keys of every part.
pub(super) const KEYS: [&str; 3] = [NUMBER, COUNT, TENSORS];

/// A part's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SplitFile {
    /// The number of the part, from 1 as in file names.
    number: u32,
    count: u32,
    tensors: u32,
}

/// Adds the tensors of all other parts to `gguf`, the contents of the file `first`. Does nothing if
/// the model is in one file.
pub(super) fn join<'a>(first: &'a File, gguf: &mut Gguf<'a>) -> Result<(), Error> {
    let Some(part) = SplitFile::read(gguf).map_err(|e| e.of(first.path()))? else { return Ok(()) };
    let SplitFile { number, count, tensors } = part;
    let path = first.path();
    let wrong_name = || Error::SplitName { path: path.into(), number, count };
    let stem = stem(path, number, count).ok_or_else(wrong_name)?;
    if number != 1 {
        let first = name(stem, 1, count);
        return Err(Error::SplitNotFirst { path: path.into(), number, count, first });
    }
    let others =
        first.others(|| (2..=count).map(|i| open(&name(stem, i, count), path)).collect())?;
    for (file, number) in others.iter().zip(2..) {
        let other = file.parse_alone(&[])?;
        if SplitFile::read(&other).map_err(|e| e.of(file.path()))?
            != Some(SplitFile { number, ..part })
        {
            let (path, first) = (file.path().into(), path.into());
            return Err(Error::SplitForeign { path, number, count, first });
        }
        for &tensor in other.tensors() {
            if gguf.index.insert(tensor.name, gguf.tensors.len()).is_some() {
                let error = Error::SplitTensorTwice { tensor: quoted(tensor.name) };
                return Err(error.of(file.path()));
            }
            gguf.tensors.push(tensor);
        }
    }
    let found = gguf.tensors.len();
    if found != tensors as usize {
        return Err(Error::SplitTensors { count, found, tensors }.of(path));
    }
    Ok(())
}

impl SplitFile {
    /// Reads the keys of a part; `None` if the file is a whole model.
    fn read(gguf: &Gguf) -> Result<Option<Self>, Error> {
        let number = |key: &str| gguf.metadata().u32(key);
        let count = number(COUNT)?.unwrap_or(0);
        if count < 2 {
            return Ok(None);
        }
        let index = number(NUMBER)?.filter(|&index| index < count);
        let tensors = number(TENSORS)?;
        match (index, tensors) {
            (Some(index), Some(tensors)) => Ok(Some(Self { number: index + 1, count, tensors })),
            _ => Err(Error::SplitKeys { count }),
        }
    }
}

fn open(path: &Path, first: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| match error {
        Error::Open { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::SplitMissing { path, first: first.into() }
        }
        other => other,
    })
}

/// Returns the names of all parts of a model, given the name of one part. Returns `None` for any
/// other name.
///
/// ```
/// # use rope_cpu::gguf::part_names;
/// let names = part_names("m-00002-of-00002.gguf").unwrap();
/// assert_eq!(names, ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
/// ```
pub fn part_names(part: &str) -> Option<Vec<String>> {
    let (stem, _, count) = numbers(part)?;
    Some((1..=count).map(|i| format!("{stem}{}", ending(i, count))).collect())
}

/// Returns whether `name` is the name of a part, but not of the first part.
pub fn is_later_part(name: &str) -> bool {
    numbers(name).is_some_and(|(_, number, _)| number > 1)
}

/// Splits the name of a part into its stem, its number and the number of parts.
fn numbers(part: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = part.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    let is_part = (1..=count).contains(&number)
        && count <= PARTS_MAX
        && part == format!("{stem}{}", ending(number, count));
    is_part.then_some((stem, number, count))
}

/// Returns the ending of a part's name.
fn ending(number: u32, count: u32) -> String {
    format!("-{number:05}-of-{count:05}.gguf")
}

/// Returns the path of a part without its ending, or `None` if it has another ending.
fn stem(path: &Path, number: u32, count: u32) -> Option<&str> {
    path.to_str()?.strip_suffix(&ending(number, count))
}

fn name(stem: &str, number: u32, count: u32) -> PathBuf {
    format!("{stem}{}", ending(number, count)).into()
}
