//! `rope-cpu import`: a preset from ollama's Modelfile.

mod modelfile;

use std::{
    fs,
    path::{Path, PathBuf},
};

use rope_cpu::shelf::presets::{Choice, Preset, Presets, option_of_ollama};

use super::{args::ShelfArgs, command, error::Error, note, shelf};
use modelfile::{Instruction, Modelfile};

/// Make a preset from a Modelfile of ollama
///
/// FROM, PARAMETER, SYSTEM and ADAPTER become the options of a preset, in the file of presets. The
/// chat template is the one in the model file: rope-cpu does not read templates of TEMPLATE.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  rope-cpu import Modelfile helper
  rope-cpu run helper")]
pub struct Args {
    /// The Modelfile
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Name of the preset; by default the file's, or its folder's
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// Larger files are refused.
const BYTES_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// If the file cannot be read or has no FROM, an option or its model does not exist, or the name is
/// taken.
pub fn run(args: &Args) -> Result<(), Error> {
    let path = &args.file;
    let shelf = args.shelf.shelf();
    let presets = shelf.options().presets.clone();
    let presets = presets.ok_or(rope_cpu::shelf::Error::NoPresets)?;
    let preset = preset(path, args.name.clone(), &presets)?;
    let root = command();
    shelf::check(&root, &Preset { path: path.clone(), ..preset.clone() })?;
    if !Path::new(&preset.model).is_file() {
        shelf.find(&preset.model)?;
    }
    Presets::insert(&presets, &preset.name, &preset.model, &preset.choices)?;
    note(format_args!(
        "{} is a preset in {}: {}",
        preset.name,
        presets.display(),
        format_args!("`rope-cpu run {}`", preset.name)
    ));
    Ok(())
}

/// Reads a Modelfile as a preset. Notes what has no effect.
fn preset(path: &Path, name: Option<String>, presets: &Path) -> Result<Preset, Error> {
    let shown = path.display();
    let wrong = |line: usize, reason: &str| Error::usage(format_args!("{shown}:{line}: {reason}"));
    let bytes = fs::metadata(path).map(|metadata| metadata.len());
    let unreadable = |error| Error::usage(format_args!("{shown}: {error}"));
    if bytes.map_err(unreadable)? > BYTES_MAX {
        return Err(Error::usage(format_args!("{shown} is larger than {BYTES_MAX} bytes")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let folder = path.parent().unwrap_or("".as_ref());
    // A path in the file starts at its folder.
    let located = |value: &str| {
        let file = folder.join(value);
        match file.is_file() {
            true => file.canonicalize().unwrap_or(file).to_string_lossy().into_owned(),
            false => value.to_string(),
        }
    };
    let (mut model, mut choices): (Option<String>, Vec<Choice>) = (None, Vec::new());
    for Instruction { name, value, line } in
        Modelfile::parse(&text).map_err(|(line, reason)| wrong(line, &reason))?.0
    {
        let mut choose = |key: String, value: String| {
            match choices.iter_mut().find(|choice| choice.key == key) {
                // Only stop words may be repeated; of others, the last counts, as in ollama.
                Some(choice) if key == "reverse-prompt" || key == "lora" => {
                    choice.values.push(value)
                }
                Some(choice) => choice.values = vec![value],
                None => choices.push(Choice { key, values: vec![value], line }),
            }
        };
        match &name.to_uppercase()[..] {
            "FROM" => model = Some(located(&value)),
            "SYSTEM" => choose("system-prompt".into(), value),
            "ADAPTER" => choose("lora".into(), located(&value)),
            "PARAMETER" => {
                let (key, value) = value.split_once(char::is_whitespace).ok_or_else(|| {
                    wrong(line, "PARAMETER needs a name and a value: PARAMETER num_ctx 4096")
                })?;
                // Others are options under their own names, or errors.
                let option = option_of_ollama(key)
                    .map_or_else(|| key.replace('_', "-"), |option| option.to_string());
                choose(option, modelfile::unquoted(value.trim()).into());
            }
            "TEMPLATE" => note(format_args!(
                "warning: {shown}:{line}: TEMPLATE is not read, since it is a Go template: the chat \
                 template of the model file is used"
            )),
            other => note(format_args!("note: {shown}:{line}: {other} has no effect")),
        }
    }
    let model = model.ok_or_else(|| wrong(1, "there is no FROM, which names the model"))?;
    let of_file = || {
        let stem = path.file_stem()?.to_str()?;
        let full = path.canonicalize().ok()?;
        match stem.eq_ignore_ascii_case("modelfile") {
            true => Some(full.parent()?.file_name()?.to_str()?.to_string()),
            false => Some(stem.to_string()),
        }
    };
    let name = name.or_else(of_file);
    let name =
        name.ok_or_else(|| Error::usage("give the preset a name: rope-cpu import FILE NAME"))?;
    Ok(Preset { name, model, choices, path: presets.into(), line: 1 })
}
