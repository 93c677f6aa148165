//! Builds files byte by byte, so that any part of a file can be made faulty.

use std::io::Write;

use tempfile::NamedTempFile;

/// Numbers of value types in a file.
pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;

/// The parts of a file before they are joined.
#[derive(Clone)]
pub struct Builder {
    pub magic: [u8; 4],
    pub version: u32,
    /// The counts in the header; `None` for the true ones.
    pub key_count: Option<u64>,
    pub tensor_count: Option<u64>,
    pub keys: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub alignment: usize,
    pub data: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            key_count: None,
            tensor_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }
}

impl Builder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn key(mut self, name: impl AsRef<[u8]>, value_type: u32, value: impl AsRef<[u8]>) -> Self {
        self.keys.push([&string(name)[..], &value_type.to_le_bytes(), value.as_ref()].concat());
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], type_number: u32, offset: u64) -> Self {
        self.tensors.push(tensor(name, dims, type_number, offset));
        self
    }

    /// Adds a tensor and its data after the existing data.
    pub fn append(
        mut self,
        name: &str,
        dims: &[u64],
        type_number: u32,
        data: impl IntoIterator<Item = u8>,
    ) -> Self {
        let offset = self.data.len() as u64;
        self.data.extend(data);
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        self.tensor(name, dims, type_number, offset)
    }

    pub fn data(mut self, bytes: usize) -> Self {
        // A prime period, so that a slice from the wrong place has other bytes.
        self.data = (0..bytes).map(|i| (i % 251) as u8).collect();
        self
    }

    /// Returns the padded header, all bytes before the data.
    pub fn header(&self) -> Vec<u8> {
        let mut file = self.magic.to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        file.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        file.extend(self.keys.concat());
        file.extend(self.tensors.concat());
        if !self.data.is_empty() {
            file.resize(file.len().next_multiple_of(self.alignment), 0);
        }
        file
    }

    pub fn bytes(&self) -> Vec<u8> {
        [self.header(), self.data.clone()].concat()
    }

    pub fn file(&self) -> NamedTempFile {
        file(&self.bytes())
    }
}

/// Returns a small model file with every type of value, two tensors and no trailing bytes.
pub fn model() -> Builder {
    Builder::new()
        .key("general.architecture", STRING, string("llama"))
        .key("general.name", STRING, string("A small \"model\""))
        .key("llama.context_length", U32, 4096u32.to_le_bytes())
        .key("llama.rope.freq_base", F32, 10000f32.to_le_bytes())
        .key("llama.attention.layer_norm_rms_epsilon", F32, 1e-6f32.to_le_bytes())
        .key("tokenizer.ggml.model", STRING, string("gpt2"))
        .key("tokenizer.ggml.pre", STRING, string("smollm"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&["a", "b", "\u{120}c"]))
        .key("tokenizer.ggml.scores", ARRAY, array(F32, 2, [0f32, -1.5].map(f32::to_le_bytes)))
        .key("tokenizer.ggml.token_type", ARRAY, array(I32, 2, [1i32, -3].map(i32::to_le_bytes)))
        .key("tokenizer.ggml.add_bos_token", BOOL, [1])
        .key("test.u8", U8, [200])
        .key("test.i8", 1, [200])
        .key("test.u16", 2, 60_000u16.to_le_bytes())
        .key("test.i16", 3, (-300i16).to_le_bytes())
        .key("test.i32", I32, (-70_000i32).to_le_bytes())
        .key("test.u64", U64, u64::MAX.to_le_bytes())
        .key("test.i64", 11, i64::MIN.to_le_bytes())
        .key("test.f64", 12, 0.1f64.to_le_bytes())
        .key("test.bools", ARRAY, array(BOOL, 3, [[1], [0], [1]]))
        .tensor("output_norm.weight", &[4], 0, 0)
        .tensor("token_embd.weight", &[32, 3], 8, 32)
        .data(32 + 3 * 34)
}

pub fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

pub fn array<const N: usize>(
    element: u32,
    len: u64,
    elements: impl IntoIterator<Item = [u8; N]>,
) -> Vec<u8> {
    let elements: Vec<u8> = elements.into_iter().flatten().collect();
    [&element.to_le_bytes()[..], &len.to_le_bytes(), &elements].concat()
}

pub fn strings<T: AsRef<[u8]>>(texts: &[T]) -> Vec<u8> {
    let texts: Vec<_> = texts.iter().map(string).collect();
    let len = (texts.len() as u64).to_le_bytes();
    [&STRING.to_le_bytes()[..], &len, &texts.concat()].concat()
}

pub fn tensor(name: impl AsRef<[u8]>, dims: &[u64], type_number: u32, offset: u64) -> Vec<u8> {
    let mut entry = string(name);
    entry.extend((dims.len() as u32).to_le_bytes());
    entry.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
    entry.extend(type_number.to_le_bytes());
    entry.extend(offset.to_le_bytes());
    entry
}

pub fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.flush().unwrap();
    file
}
