//! The options of `serve`.

use rope_cpu::shelf::{Entry, Shelf};

use super::{
    AdapterArgs, EngineArgs, LogArgs, MemoryArgs, ModelArgs, RopeArgs, SamplingArgs, SparseArgs,
    SpeculationArgs, TemplateArgs,
};
use crate::{
    cli::{error::Error, text},
    server::{Listen, Options, Requests, Shelved},
};

/// Serve a model over HTTP, as llama-server does
///
/// A web page, and the interfaces of OpenAI (/v1/chat/completions, /v1/completions, /v1/models) and
/// llama-server (/completion, /tokenize, /props, /slots, ...), at http://127.0.0.1:8080. Several
/// requests are answered at a time, each with the whole context.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_group("source", |group| group.required(false)))]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,
    #[command(flatten)]
    pub listen: Listen,
    #[command(flatten)]
    pub shelved: Shelved,
    #[command(flatten)]
    pub requests: Requests,
    #[command(flatten, next_help_heading = "Requests")]
    pub template: TemplateArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub sparse: SparseArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

impl ServeArgs {
    /// Returns the options of the server.
    ///
    /// # Errors
    /// If keys cannot be read or are missing, or the folder of saved slots does not exist.
    pub fn options(&self) -> Result<Options, Error> {
        if let Some(folder) = self.listen.slot_save_path.as_ref().filter(|folder| !folder.is_dir())
        {
            return Err(Error::usage(format_args!(
                "--slot-save-path {}: not a folder",
                folder.display()
            )));
        }
        Ok(Options {
            listen: self.listen.clone(),
            requests: self.requests.clone(),
            shelved: self.shelved.clone(),
            keys: self.keys()?,
            logs_prompts: self.log.log_prompts,
        })
    }

    /// Returns the shelf that the server serves; `None` with `-m` or `-hf`.
    ///
    /// # Errors
    /// If another option needs one model.
    pub fn shelf(&self) -> Result<Option<Shelf>, Error> {
        if self.model.is_given() {
            return Ok(None);
        }
        let needs_one = [
            (self.memory.dry_run.is_some(), "--dry-run"),
            (self.adapters.all().next().is_some(), "--lora"),
            (!self.model.override_kv.is_empty(), "--override-kv"),
        ];
        if let Some((_, option)) = needs_one.into_iter().find(|(given, _)| *given) {
            return Err(Error::usage(format_args!(
                "{option} is for one model: add -m FILE, or remove it to serve all models on the disk"
            )));
        }
        Ok(Some(self.model.hub.shelf.shelf()))
    }

    /// Returns the options for a model of the shelf, with the name of its answers.
    ///
    /// # Errors
    /// If its preset has invalid options.
    pub fn for_entry(&self, entry: &Entry) -> Result<Self, Error> {
        let args = match entry.options().iter().any(|preset| !preset.choices.is_empty()) {
            true => crate::cli::serve_args_of(entry)?,
            false => self.clone(),
        };
        let model = ModelArgs { model: vec![entry.path.clone()], ..args.model };
        let listen = Listen { alias: vec![entry.name.clone()], ..args.listen };
        Ok(ServeArgs { model, listen, ..args })
    }

    /// Returns the keys of the command line and of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or the server would listen beyond this machine without a key.
    pub fn keys(&self) -> Result<Vec<String>, Error> {
        let listen = &self.listen;
        let mut keys = listen.api_key.clone();
        if let Some(path) = &listen.api_key_file {
            let lines = text::file(path)?;
            keys.extend(lines.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from));
        }
        keys.retain(|key| !key.is_empty());
        let given = !listen.api_key.is_empty() || listen.api_key_file.is_some();
        if given && keys.is_empty() {
            return Err(Error::usage("--api-key and --api-key-file contain no key"));
        }
        let public = listen.host.iter().find(|host| !host.is_loopback());
        if let Some(host) = public.filter(|_| keys.is_empty() && !listen.no_api_key) {
            return Err(Error::usage(format_args!(
                "--host {host}: others can reach this address: add --api-key KEY (or set \
                 ROPE_CPU_API_KEY=KEY), or add --no-api-key if all of them may use the server"
            )));
        }
        Ok(keys)
    }
}
