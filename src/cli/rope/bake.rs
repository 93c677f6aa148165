//! `rope-cpu rope bake`: writes a scaling into a model, for programs that do not implement it.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use super::{Error, ModelArgs, length, load, resolve};
use crate::cli::{args::RopeArgs, handle_interrupts, note, warn};
use rope_cpu::{
    gguf::{
        Value,
        copy::{Changes, copy},
    },
    model::Architecture,
    platform::interrupt::{self, Interruptible},
    rope::{self, Family, Flags, Plan},
    whole_file::whole_file,
};

/// The options of `rope bake`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Output file, which must not exist
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Context size of the copy, in tokens
    #[arg(short, long = "ctx", alias = "ctx-size", value_name = "N", value_parser = length)]
    context: usize,

    #[command(flatten)]
    rope: RopeArgs,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, a scaling that a file cannot express, or if the copy
/// cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::model(&args.model)?;
    let path = &args.output;
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(Error::usage(format_args!("{path} already exists: choose another --output")));
    }
    let Architecture { name: architecture, rope: Family { divisors: tensors, .. }, .. } =
        model.config().architecture;
    if tensors.is_empty() {
        return Err(args.model.named(format_args!(
            "baking is not supported for {architecture} models: llama.cpp does not use {} for \
                 them, so the copy would run without scaling",
            rope::ROPE_FREQS
        )));
    }
    let plan = resolve(&model, &args.rope.flags(), Some(args.context)).map_err(Error::usage)?;
    let baked = plan.baked().map_err(Error::usage)?;
    let own = resolve(&model, &Flags::default(), Some(args.context));
    let same =
        |own: &Plan| own.scaling.value.in_llama_cpp && own.baked().is_ok_and(|own| own == baked);
    if own.is_ok_and(|own| same(&own)) {
        return Err(Error::usage(format_args!(
            "nothing to bake: with these settings and {} tokens the copy would have the frequencies of \
                 the file; give a method, such as --rope-scaling yarn, with more than the {} trained tokens \
                 as --ctx, or a factor with --rope-scale",
            args.context, plan.context_train.value
        )));
    }
    note(&plan);
    warn(&plan);

    let mut changes = Changes::default();
    let scaling = format!("{architecture}.rope.scaling.");
    for (key, _) in model.metadata().iter() {
        if key.starts_with(&scaling) || *key == format!("{architecture}.rope.scale_linear") {
            changes.keys.insert(key.into(), None);
        }
    }
    let mut set = |key: String, value| changes.keys.insert(key, Some(value));
    // LongRoPE has two sets of divisors; here both are equal.
    let form = if tensors.len() > 1 { &b"longrope"[..] } else { b"none" };
    set(format!("{scaling}type"), Value::String(form));
    if baked.attention_scale != 1.0 {
        let scale = Value::F32(baked.attention_scale as f32);
        set(format!("{scaling}attn_factor"), scale);
    }
    let context = u32::try_from(args.context).map_err(Error::usage)?;
    set(format!("{architecture}.context_length"), Value::U32(context));
    changes.rows.extend(tensors.iter().map(|&tensor| (tensor, baked.divisors.clone())));

    handle_interrupts()?;
    let written: io::Result<()> =
        whole_file(path, |file| copy(model.gguf(), &changes, Interruptible(file)));
    written.map_err(|e| match interrupt::raised() {
        true => Error::Interrupted,
        false => Error::failed(format_args!("cannot write {}: {e}", path.display())),
    })?;
    writeln!(
        out,
        "{}: {} of {} pairs divided, attention scale {}, context {context}",
        path.display(),
        baked.divisors.iter().filter(|divisor| **divisor != 1.0).count(),
        plan.n_rot / 2,
        rope::short(baked.attention_scale)
    )?;
    Ok(())
}
