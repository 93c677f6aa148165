//! `rope-cpu list` and `rope-cpu show`: the models on the disk.

use std::{io::Write, time::SystemTime};

use indicatif::HumanBytes;
use jiff::Timestamp;
use rayon::prelude::*;
use rope_cpu::{
    platform::memory,
    shelf::{Details, Entry, Error as ShelfError, Fit, Suggestion, suggestions},
};
use serde_json::{Value as Json, json};

use super::{args::ShelfArgs, error::Error, note, table};

/// List the models on the disk
///
/// Lists downloaded models, the folder of --models-dir, presets, and the models of ollama, LM
/// Studio, Jan and llama.cpp. FITS says whether a model fits in the memory that is available now:
/// yes, no, or the largest context that does.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// Show one model: where it lies, its size, format and context
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Name of the model
    #[arg(value_name = "NAME")]
    name: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// A model with its header, and whether it fits in memory.
struct Row {
    entry: Entry,
    details: Result<Details, ShelfError>,
    fit: Result<Fit, ShelfError>,
}

impl Row {
    fn of(entry: Entry) -> Self {
        let (details, fit) = (entry.details(), entry.fit());
        Row { entry, details, fit }
    }

    /// Returns why the model cannot run.
    fn wrong(&self) -> Option<&ShelfError> {
        self.details.as_ref().err().or(self.fit.as_ref().err())
    }

    /// Returns `chat`, `text` for a model without a template, or `embedding`.
    fn kind(&self) -> &'static str {
        match &self.details {
            Ok(Details { embedding: true, .. }) => "embedding",
            Ok(Details { template: Some(_), .. }) => "chat",
            Ok(_) => "text",
            Err(_) => "",
        }
    }

    /// Returns `yes`, `no`, or the largest context that fits in memory.
    fn fits(&self) -> String {
        let trained = self.details.as_ref().ok().and_then(|details| details.context);
        match &self.fit {
            Err(_) => "unsupported".into(),
            Ok(fit) if !fit.fits => "no".into(),
            Ok(fit) if trained.is_some_and(|trained| (fit.context as u64) < trained) => {
                format!("{} tokens", fit.context)
            }
            Ok(_) => "yes".into(),
        }
    }

    fn cells(&self) -> [String; 8] {
        let details = self.details.as_ref().ok();
        let of = |field: fn(&Details) -> String| details.map(field).unwrap_or_default();
        [
            self.entry.name.clone(),
            HumanBytes(self.entry.bytes).to_string(),
            of(|details| details.format.clone()),
            of(|details| details.architecture.clone()),
            of(|details| details.context.map(|context| context.to_string()).unwrap_or_default()),
            self.kind().into(),
            self.fits(),
            self.entry.store.name().into(),
        ]
    }

    fn json(&self) -> Json {
        let entry = &self.entry;
        let mut json = json!({
            "name": entry.name,
            "store": entry.store.name(),
            "path": entry.path,
            "bytes": entry.bytes,
            "digest": entry.digest,
            "modified": entry.modified.and_then(time),
            "alias_of": entry.alias_of(),
        });
        match &self.details {
            Ok(details) => {
                json["format"] = details.format.clone().into();
                json["architecture"] = details.architecture.clone().into();
                json["title"] = details.title.clone().into();
                json["parameters"] = details.parameters.into();
                json["context"] = details.context.into();
                json["kind"] = self.kind().into();
                json["template"] = details.template.is_some().into();
            }
            Err(error) => json["error"] = error.to_string().into(),
        }
        match &self.fit {
            Ok(fit) => {
                json["fits"] = fit.fits.into();
                json["fit_context"] = fit.context.into();
                json["fit_bytes"] = fit.bytes.into();
            }
            Err(error) => json["error"] = error.to_string().into(),
        }
        json
    }
}

/// Prints the models on the disk.
///
/// # Errors
/// If the folder of models or the presets cannot be read, or `out` cannot be written.
pub fn list(args: &ListArgs, out: &mut dyn Write) -> Result<(), Error> {
    let listing = args.shelf.shelf().listing()?;
    // Headers are read side by side: a vocabulary takes milliseconds.
    let rows: Vec<Row> = listing.entries.into_par_iter().map(Row::of).collect();
    listing.notes.iter().for_each(|text| note(format_args!("note: {text}")));
    if args.json {
        let rows: Vec<Json> = rows.iter().map(Row::json).collect();
        return print(&rows.into(), out);
    }
    if rows.is_empty() {
        note("there are no models: download one with `rope-cpu pull USER/MODEL`");
        return Ok(());
    }
    let header = ["NAME", "SIZE", "FORMAT", "FAMILY", "CONTEXT", "KIND", "FITS", "STORE"];
    let mut table = table::table(&header, &[1, 4]);
    rows.iter().for_each(|row| _ = table.add_row(row.cells()));
    table::section(out, None, &table)?;
    let wrong: Vec<_> =
        rows.iter().filter_map(|row| Some((&row.entry.name, row.wrong()?))).collect();
    match &wrong[..] {
        [] => {}
        [(name, error)] => note(format_args!("note: {name}: {error}")),
        several => note(format_args!(
            "note: {} of the models cannot run; `rope-cpu show NAME` says why",
            several.len()
        )),
    }
    Ok(())
}

/// Prints one model.
///
/// # Errors
/// If no model or several have the name, its file is invalid, or `out` cannot be written.
pub fn show(args: &ShowArgs, out: &mut dyn Write) -> Result<(), Error> {
    let row = Row::of(args.shelf.shelf().find(&args.name)?);
    if args.json {
        return print(&row.json(), out);
    }
    let entry = &row.entry;
    let mut table = table::table(&[], &[]);
    let mut line = |title: &str, value: String| {
        if !value.is_empty() {
            table.add_row([title, &value]);
        }
    };
    line("name", entry.name.clone());
    line("stands for", entry.alias_of().unwrap_or_default().into());
    for preset in entry.options() {
        for choice in &preset.choices {
            line("option", format!("{} {}", choice.key, choice.values.join(" ")));
        }
    }
    line("store", entry.store.name().into());
    for path in &entry.paths {
        line("file", path.display().to_string());
    }
    line("size", HumanBytes(entry.bytes).to_string());
    line("SHA-256", entry.digest.clone().unwrap_or_default());
    line("modified", entry.modified.and_then(time).unwrap_or_default());
    if let Ok(details) = &row.details {
        line("title", details.title.as_deref().unwrap_or_default().escape_debug().to_string());
        line("family", details.architecture.clone());
        line("parameters", details.parameters.to_string());
        line("format", details.format.clone());
        line("trained context", details.context.map(|n| n.to_string()).unwrap_or_default());
        line("kind", row.kind().into());
    }
    if let Ok(fit) = &row.fit {
        let bytes = HumanBytes(fit.bytes);
        let fits = if fit.fits { "fits in memory" } else { "does not fit in memory" };
        line("memory", format!("{bytes} for a context of {}: {fits}", fit.context));
    }
    table::section(out, None, &table)?;
    match row.details.err().or(row.fit.err()) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Names models to start with that fit in memory, if there is none on the disk.
pub fn suggest() {
    let shelf = ShelfArgs::default().shelf();
    let Some(memory) = memory::available() else { return };
    if shelf.entries().is_ok_and(|entries| entries.is_empty()) {
        note("\nThere is no model on the disk yet. These fit in the memory of this machine:\n");
        for Suggestion { name, bytes } in suggestions(memory.bytes) {
            note(format_args!("  rope-cpu pull {name:<38} {:.1} GB", bytes as f64 / 1e9));
        }
    }
}

fn print(json: &Json, out: &mut dyn Write) -> Result<(), Error> {
    serde_json::to_writer_pretty(&mut *out, json).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

fn time(time: SystemTime) -> Option<String> {
    Some(Timestamp::try_from(time).ok()?.round(jiff::Unit::Second).ok()?.to_string())
}
