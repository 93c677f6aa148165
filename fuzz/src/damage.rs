//! Changes to a GGUF file that keep its form, so that they reach what is behind the parser.

use arbitrary::Arbitrary;
use rope_cpu_testing::builder::{ARRAY, Builder, F32, STRING, string};

use crate::number::Number;

/// Maximum changes of a file.
const EDITS_MAX: usize = 12;

/// A change.
#[derive(Arbitrary, Debug)]
pub enum Edit {
    /// Gives a key a number of any type.
    KeyNumber {
        key: u8,
        kind: u8,
        number: Number,
    },
    KeyFloat {
        key: u8,
        value: f32,
    },
    KeyText {
        key: u8,
        text: Vec<u8>,
    },
    /// Gives a key an array, with a length that may be wrong.
    KeyArray {
        key: u8,
        element: u8,
        len: Number,
        bytes: Vec<u8>,
    },
    /// Writes a number into the value of a key, such as the length of its array.
    KeyInside {
        key: u8,
        at: u16,
        number: Number,
    },
    /// Gives a key the value of another.
    KeySwap {
        key: u8,
        other: u8,
    },
    KeyDrop {
        key: u8,
    },
    KeyTwice {
        key: u8,
    },
    Dim {
        tensor: u8,
        dim: u8,
        number: Number,
    },
    DimCount {
        tensor: u8,
        number: Number,
    },
    Kind {
        tensor: u8,
        number: Number,
    },
    Offset {
        tensor: u8,
        number: Number,
    },
    TensorName {
        tensor: u8,
        other: u8,
    },
    TensorDrop {
        tensor: u8,
    },
    Weight {
        at: Number,
        value: f32,
    },
    Counts {
        keys: Number,
        tensors: Number,
    },
    Version {
        number: u8,
    },
    HeaderByte {
        at: Number,
        value: u8,
    },
    Cut {
        at: Number,
    },
}

/// Returns the bytes of a file after the changes.
pub fn damaged(mut b: Builder, edits: &[Edit]) -> Vec<u8> {
    let edits = &edits[..edits.len().min(EDITS_MAX)];
    edits.iter().for_each(|edit| change(&mut b, edit));
    let (header, mut bytes) = (b.header().len(), b.bytes());
    for edit in edits {
        match edit {
            Edit::HeaderByte { at, value } if !bytes.is_empty() => {
                let at = at.index(header.min(bytes.len()));
                bytes[at] = *value;
            }
            Edit::Cut { at } => bytes.truncate(at.index(bytes.len())),
            _ => {}
        }
    }
    bytes
}

fn change(b: &mut Builder, edit: &Edit) {
    let Builder { keys, tensors, data, .. } = b;
    let index = |list: &[Vec<u8>], at: u8| usize::from(at) % list.len().max(1);
    let value = |keys: &mut Vec<Vec<u8>>, at: u8, kind: u32, value: &[u8]| {
        let at = index(keys, at);
        if let Some(key) = keys.get_mut(at) {
            key.truncate(name_end(key));
            key.extend(kind.to_le_bytes());
            key.extend(value);
        }
    };
    match edit {
        Edit::KeyNumber { key, kind, number } => {
            let (kind, number) =
                ([0, 1, 2, 3, 4, 5, 7, 10, 11][usize::from(kind % 9)], number.get());
            let bytes = [1, 1, 2, 2, 4, 4, 0, 1, 0, 0, 8, 8][kind as usize];
            value(keys, *key, kind, &number.to_le_bytes()[..bytes]);
        }
        Edit::KeyFloat { key, value: float } => value(keys, *key, F32, &float.to_le_bytes()),
        Edit::KeyText { key, text } => value(keys, *key, STRING, &string(text)),
        Edit::KeyArray { key, element, len, bytes } => {
            let element = u32::from(element % 13).to_le_bytes();
            let array = [&element[..], &len.get().to_le_bytes(), bytes].concat();
            value(keys, *key, ARRAY, &array);
        }
        Edit::KeyInside { key, at, number } => {
            let key = index(keys, *key);
            if let Some(key) = keys.get_mut(key) {
                let start = name_end(key) + 4;
                let at = start + usize::from(*at) % key.len().saturating_sub(start).max(1);
                write(key, at, &number.get().to_le_bytes());
            }
        }
        Edit::KeySwap { key, other } => {
            let (key, other) = (index(keys, *key), index(keys, *other));
            if let (Some(name), Some(of)) = (keys.get(key), keys.get(other)) {
                keys[key] = [&name[..name_end(name)], &of[name_end(of)..]].concat();
            }
        }
        Edit::KeyDrop { key } if !keys.is_empty() => drop(keys.remove(index(keys, *key))),
        Edit::KeyTwice { key } if !keys.is_empty() => keys.push(keys[index(keys, *key)].clone()),
        Edit::Dim { tensor, dim, number } => in_tensor(tensors, *tensor, |dims| {
            (4 + 8 * usize::from(*dim) % (8 * dims).max(1), number.get().to_le_bytes().to_vec())
        }),
        Edit::DimCount { tensor, number } => {
            in_tensor(tensors, *tensor, |_| (0, (number.get() as u32).to_le_bytes().to_vec()))
        }
        Edit::Kind { tensor, number } => in_tensor(tensors, *tensor, |dims| {
            (4 + 8 * dims, (number.get() as u32).to_le_bytes().to_vec())
        }),
        Edit::Offset { tensor, number } => {
            in_tensor(tensors, *tensor, |dims| (8 + 8 * dims, number.get().to_le_bytes().to_vec()))
        }
        Edit::TensorName { tensor, other } => {
            let (tensor, other) = (index(tensors, *tensor), index(tensors, *other));
            if let (Some(entry), Some(of)) = (tensors.get(tensor), tensors.get(other)) {
                tensors[tensor] = [&of[..name_end(of)], &entry[name_end(entry)..]].concat();
            }
        }
        Edit::TensorDrop { tensor } if !tensors.is_empty() => {
            tensors.remove(index(tensors, *tensor));
        }
        Edit::Weight { at, value } => {
            let at = at.index(data.len());
            write(data, at, &value.to_le_bytes());
        }
        Edit::Counts { keys, tensors } => {
            b.key_count = Some(keys.get());
            b.tensor_count = Some(tensors.get());
        }
        Edit::Version { number } => b.version = (*number).into(),
        _ => {}
    }
}

/// Returns where the name of a key or tensor ends. All names are whole.
fn name_end(entry: &[u8]) -> usize {
    let len: [u8; 8] = entry[..8].try_into().expect("a length");
    8 + u64::from_le_bytes(len) as usize
}

/// Writes bytes at the place that `place` computes from the number of dimensions of a tensor, after
/// its name.
fn in_tensor(tensors: &mut [Vec<u8>], tensor: u8, place: impl FnOnce(usize) -> (usize, Vec<u8>)) {
    let index = usize::from(tensor) % tensors.len().max(1);
    let Some(entry) = tensors.get_mut(index) else { return };
    let start = name_end(entry);
    // After the count of dimensions: 8 bytes each, the type, and the offset.
    let dims = entry.len().saturating_sub(start + 16) / 8;
    let (at, bytes) = place(dims);
    write(entry, start + at, &bytes);
}

/// Writes bytes as far as there is room.
fn write(to: &mut [u8], at: usize, bytes: &[u8]) {
    let to = to.get_mut(at..).unwrap_or_default();
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
}
