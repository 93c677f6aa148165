//! Computes importance matrices: the mean squares of the inputs of a model's matrices in a text.

use std::{collections::HashMap, io};

use super::perplexity::{self, Point, Scored, Settings, perplexity};
use crate::{
    Token,
    gguf::{Gguf, Tensor},
    imatrix::{Entry, Imatrix},
    model::{EMBEDDINGS, Engine, InputsOfMatrix},
};

/// The tensors that an importance matrix covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensors {
    /// Only the tensors of layers. This is usual, as the output's format has many bits.
    Layers,
    /// The output too, which some models share with the embeddings.
    All,
}

/// Computes the importance matrix of a text, and its perplexity. A point is passed to `each` after
/// each window.
///
/// # Errors
/// As for [`perplexity()`].
///
/// ```no_run
/// use rope_cpu::{
///     eval::{importance::{Tensors, importance}, perplexity::{Settings, Windows}},
///     model::{Engine, Model, Options},
///     rope::{Flags, Rope},
///     tokenizer::{Ends, Special},
/// };
///
/// let model = Model::open("model.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 512)?);
/// let mut engine = Engine::new(&model, rope, Options::new(512))?;
/// let text = std::fs::read_to_string("text.txt")?;
/// let tokens = model.tokenizer()?.encode(text, Special::AsText, Ends::Omit);
/// let windows = Windows::Halves { window: 512 };
/// let settings = Settings { windows, windows_max: None, bos: None, bucket: None };
/// let each = &mut |_| Ok(());
/// let (imatrix, _) = importance(&mut engine, &tokens, settings, Tensors::Layers, each)?;
/// imatrix.write(std::fs::File::create("imatrix.gguf")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn importance(
    engine: &mut Engine,
    tokens: &[Token],
    settings: Settings,
    tensors: Tensors,
    each: &mut dyn FnMut(Point) -> io::Result<()>,
) -> Result<(Imatrix, Scored), perplexity::Error> {
    engine.observe_inputs();
    let scored = perplexity(engine, tokens, settings, None, each);
    let inputs = engine.take_inputs();
    let scored = scored?;
    let mut imatrix = Imatrix::new(scored.windows as u32, settings.windows.window() as u32);
    for (tensor, entry) in entries(engine.model().gguf(), &inputs) {
        let is_output = ["output.weight", EMBEDDINGS].contains(&tensor.name);
        if tensor.name.starts_with("blk.") || (is_output && tensors == Tensors::All) {
            imatrix.insert(tensor.name, entry)?;
        }
    }
    Ok((imatrix, scored))
}

/// Returns the tensors that the addresses are in, with the inputs of all of their matrices.
fn entries<'g, 'a>(
    gguf: &'g Gguf<'a>,
    inputs: &HashMap<usize, InputsOfMatrix>,
) -> Vec<(&'g Tensor<'a>, Entry)> {
    let of = |tensor: &'g Tensor<'a>| {
        let (columns, rows) = (tensor.row_len() as usize, tensor.dims[1] as usize);
        let matrices = (tensor.dims[2] * tensor.dims[3]) as usize;
        let start = tensor.bytes.as_ptr() as usize;
        // Inputs of matrices that begin elsewhere in the tensor are those of its first rows.
        let of_matrix = |i: usize| {
            let found = inputs.get(&(start + i * rows * tensor.row_bytes() as usize))?;
            (found.squares.len() == columns).then_some(found)
        };
        let found: Vec<_> = (0..matrices).map(of_matrix).collect();
        found.iter().any(Option::is_some).then(|| {
            let sums = found.iter().flat_map(|one| match one {
                Some(inputs) => inputs.squares.clone(),
                None => vec![0.0; columns],
            });
            let counts = found.iter().map(|one| one.map_or(0.0, |inputs| inputs.count as f32));
            (tensor, Entry::new(sums.collect(), counts.collect()))
        })
    };
    gguf.tensors().iter().filter_map(of).collect()
}
