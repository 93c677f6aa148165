//! Quantizes a model: chooses a format for each tensor, and writes the new file.
//!
//! Converts and writes a few rows at a time, so memory use does not grow with the model.

mod mixture;
mod target;

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use rayon::{ThreadPool, prelude::*};
use rope_cpu_kernels::{Cpu, DType, Encoder, Matrix};
use thiserror::Error;

pub use self::{mixture::Options, target::Target};
use crate::json::FileText;
use crate::{
    gguf::{
        GgmlType, Gguf, MetadataError, Tensor, Value,
        copy::Changes,
        quoted,
        writer::{Entry, Writer},
    },
    imatrix::{self, Imatrix},
};

/// An error while quantizing a model.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("tensor {tensor} has type {found}, which is not supported: use another file")]
    Source { tensor: FileText, found: &'static str },
    #[error("tensor {tensor}: row {row} has a weight that is not finite, or too large for {to}")]
    Weight { tensor: FileText, row: u64, to: &'static str },
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("the file has no tensors: there is nothing to quantize")]
    Empty,
    #[error(transparent)]
    Imatrix(#[from] imatrix::Error),
    #[error("tensor {tensor}: {to} is useless without an importance matrix, and it has none")]
    Importance { tensor: FileText, to: &'static str },
    #[error(
        "no tensor has an entry in the importance matrix, such as {tensor}: it belongs to another \
         model"
    )]
    OtherModel { tensor: FileText },
    #[error("interrupted")]
    Interrupted,
}

/// A tensor of the new file.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'g, 'a> {
    /// The tensor of the original file.
    pub source: &'g Tensor<'a>,
    /// The type in the new file.
    pub ggml_type: GgmlType,
    /// The encoder that converts the tensor; `None` if it is copied unchanged.
    pub encoder: Option<Encoder>,
    /// The format that was chosen first. It was replaced, because a row is not a multiple of its
    /// block.
    pub instead_of: Option<DType>,
    /// The importance of the weights; `None` if it is unknown.
    pub importance: Option<&'g imatrix::Entry>,
    /// Whether the type is useless without knowing the importance of the weights.
    pub requires_importance: bool,
}

impl Planned<'_, '_> {
    /// Returns whether the tensor cannot be converted because the importance of its weights is
    /// unknown.
    pub fn lacks_importance(&self) -> bool {
        self.encoder.is_some() && self.requires_importance && self.importance.is_none()
    }

    /// Returns the size in the new file in bytes.
    pub fn bytes(&self) -> u64 {
        self.entry().bytes()
    }

    fn entry(&self) -> Entry<'_> {
        Entry { ggml_type: self.ggml_type, ..Entry::from(self.source) }
    }
}

/// Chooses the format of every tensor.
///
/// # Errors
///
/// Returns an error if a metadata key has the wrong type, a tensor that must be converted has an
/// unsupported type, or the importance matrix belongs to another model.
pub fn plan<'g, 'a>(
    gguf: &'g Gguf<'a>,
    target: Target,
    options: &Options<'g>,
) -> Result<Vec<Planned<'g, 'a>>, Error> {
    if gguf.tensors().is_empty() {
        return Err(Error::Empty);
    }
    let planned = mixture::plan(gguf, target, options)?;
    let converted = || planned.iter().filter(|tensor| tensor.encoder.is_some());
    for tensor in converted() {
        matrix(tensor.source)?;
    }
    let is_of_other = options.imatrix.is_some() && converted().all(|t| t.importance.is_none());
    if let Some(tensor) = converted().find(|t| is_of_other && t.source.name.starts_with("blk.")) {
        return Err(Error::OtherModel { tensor: quoted(tensor.source.name) });
    }
    Ok(planned)
}

/// The progress of writing one tensor.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The index in the plan.
    pub tensor: usize,
    /// The number of rows written.
    pub rows: u64,
    /// The root mean square error of the weights written so far.
    pub rms_error: f64,
}

/// Called after every few rows. It can stop the work.
pub type Progress<'p> = dyn FnMut(Report) -> ControlFlow<()> + 'p;

/// Writes the new file. If an `imatrix` is given, the metadata names its file.
///
/// # Errors
///
/// Returns an error if the importance of weights is required but not known, if a weight cannot be
/// encoded, if writing to `out` fails, or if `progress` stops the work.
///
/// ```no_run
/// use std::{fs, ops::ControlFlow::Continue};
///
/// use rope_cpu::{gguf::File, quantize::{self, Options, Target}};
///
/// let file = File::open("f16.gguf")?;
/// let gguf = file.parse(&[])?;
/// let planned = quantize::plan(&gguf, Target::Q4KM, &Options::default())?;
/// let threads = rayon::ThreadPoolBuilder::new().build()?;
/// let with = (&threads, rope_cpu_kernels::Cpu::best());
/// let out = fs::File::create("q4_k_m.gguf")?;
/// quantize::write(&gguf, Target::Q4KM, &planned, None, with, out, &mut |_| Continue(()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(
    gguf: &Gguf<'_>,
    target: Target,
    planned: &[Planned<'_, '_>],
    imatrix: Option<(&str, &Imatrix)>,
    (pool, cpu): (&ThreadPool, Cpu),
    out: impl Write,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    if let Some(tensor) = planned.iter().find(|tensor| tensor.lacks_importance()) {
        let (tensor, to) = (quoted(tensor.source.name), tensor.ggml_type.name);
        return Err(Error::Importance { tensor, to });
    }
    let mut changes = Changes::default();
    let mut set = |key: &str, value| changes.keys.insert(key.into(), Some(value));
    set("general.quantization_version", Value::U32(VERSION));
    set("general.file_type", Value::U32(target.file_type()));
    if let Some((file, imatrix)) = imatrix {
        set("quantize.imatrix.file", Value::String(file.as_bytes()));
        set("quantize.imatrix.entries_count", Value::U32(imatrix.len() as u32));
        if let Some(dataset) = imatrix.datasets.first() {
            set("quantize.imatrix.dataset", Value::String(dataset.as_bytes()));
        }
        if imatrix.chunks > 0 {
            set("quantize.imatrix.chunks_count", Value::U32(imatrix.chunks));
        }
    }
    let entries: Vec<Entry> = planned.iter().map(Planned::entry).collect();
    let mut writer = Writer::new(out, gguf.alignment(), &changes.keys_of(gguf), &entries)?;
    for (index, tensor) in planned.iter().enumerate() {
        let mut report = |rows, rms_error| match progress(Report { tensor: index, rows, rms_error })
        {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted),
        };
        match tensor.encoder {
            Some(encoder) => convert(tensor, encoder, (pool, cpu), &mut writer, &mut report)?,
            None => {
                writer.write(tensor.source.bytes)?;
                report(tensor.source.rows(), 0.0)?;
            }
        }
        writer.pad()?;
    }
    Ok(())
}

/// The version of the quantized formats (`GGML_QNT_VERSION`).
const VERSION: u32 = 2;

/// Maximum weights to convert before writing them.
const WEIGHTS_AT_ONCE: usize = 1 << 22;

fn convert<W: Write>(
    tensor: &Planned<'_, '_>,
    encoder: Encoder,
    (pool, cpu): (&ThreadPool, Cpu),
    writer: &mut Writer<W>,
    report: &mut dyn FnMut(u64, f64) -> Result<(), Error>,
) -> Result<(), Error> {
    let weights = matrix(tensor.source)?;
    let (rows, columns) = (weights.rows(), weights.columns());
    let row_bytes = tensor.bytes() as usize / rows;
    let rows_at_once = (WEIGHTS_AT_ONCE / columns).clamp(1, rows);
    let mut bytes = vec![0; rows_at_once * row_bytes];
    let mut squares = 0.0;
    let importance = tensor.importance.map(imatrix::Entry::mean_squares);
    let rows_of_matrix = tensor.source.dims[1] as usize;
    for first in (0..rows).step_by(rows_at_once) {
        let end = rows.min(first + rows_at_once);
        let bytes = &mut bytes[..(end - first) * row_bytes];
        let buffers = || (vec![0.0; columns], vec![0.0; columns]);
        let convert_row = |(before, after): &mut (Vec<f32>, Vec<f32>),
                           (i, bytes): (usize, &mut [u8])| {
            weights.decode_row(first + i, before);
            let matrix = (first + i) / rows_of_matrix;
            let importance = importance.as_ref().map(|all| &all[matrix * columns..][..columns]);
            encoder.encode(cpu, before, importance, bytes);
            encoder.decode(bytes, after);
            let errors = before.iter().zip(after).map(|(a, b)| f64::from(*a) - f64::from(*b));
            errors.map(|error| error * error).sum::<f64>()
        };
        let changed: Vec<f64> = pool.install(|| {
            let each = bytes.par_chunks_mut(row_bytes).enumerate();
            each.map_init(buffers, convert_row).collect()
        });
        if let Some(i) = changed.iter().position(|squares| !squares.is_finite()) {
            return Err(Error::Weight {
                tensor: quoted(tensor.source.name),
                row: (first + i) as u64,
                to: encoder.dtype().name(),
            });
        }
        writer.write(bytes)?;
        squares += changed.iter().sum::<f64>();
        let rms_error = (squares / (end * columns) as f64).sqrt();
        report(end as u64, rms_error)?;
    }
    Ok(())
}

fn matrix<'a>(tensor: &Tensor<'a>) -> Result<Matrix<'a>, Error> {
    let found = tensor.ggml_type.name;
    let unreadable = || Error::Source { tensor: quoted(tensor.name), found };
    let dtype = DType::named(found).ok_or_else(unreadable)?;
    let [rows, columns] = [tensor.rows(), tensor.row_len()].map(|n| n as usize);
    Matrix::new(dtype, rows, columns, tensor.bytes).map_err(|_| unreadable())
}
