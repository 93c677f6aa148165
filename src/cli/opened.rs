//! Opening a model for a server: its plan, its scheduler, and what its requests need.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, SystemTime},
};

use super::{
    args::ServeArgs as Args,
    error::Error,
    escapes::{stops, unescaped},
    extension::Extension,
    flags, load, note, resources, sampling, warn,
};
use crate::server::{
    App, Compiling, Longer, Memory, Opened, Options, Requests, Server, Unopened, Wanted,
    remove_incomplete, scales_of,
};
use rope_cpu::{
    batch::Turns,
    chat::Template,
    model::{Model, Pooling, memory::Bytes},
    platform::{self, others_may_write},
    rope::{Flags, Sourced},
    runtime::{self as opening, Plan, Runtime, Scheduling, Sequences},
};
use tracing::info;

/// What all models of a server share.
#[derive(Clone)]
pub struct Shared {
    options: Options,
    memory: Memory,
    turns: Turns,
    /// Whether the server has the models of a shelf.
    many: bool,
}

impl Shared {
    /// Returns what the models of a server share.
    pub fn of(server: &Server) -> Self {
        Shared {
            options: server.options.clone(),
            memory: server.memory.clone(),
            turns: Turns::default(),
            many: server.models.is_shelf(),
        }
    }
}

impl Shared {
    /// Returns the folder of a model's cache on disk: each of several models has its own.
    fn folder(&self, folder: &Path, model: &Model) -> PathBuf {
        match self.many {
            true => folder.join(format!("{:032x}", model.fingerprint())),
            false => folder.into(),
        }
    }
}

/// Opens the model of a command line, and starts its scheduler. With `--dry-run` it prints the plan
/// instead, and returns `None`.
///
/// # Errors
/// On invalid arguments or an invalid file, or if the model does not fit in memory.
pub fn open(args: &Args, shared: &Shared) -> Result<Option<Opened>, Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let settings = settings(args)?;
    let ready = Ready::check(args, model)?;
    let plan = resources::plan(&ready.model, &settings, &args.memory)?;
    plan.map(|plan| ready.start(args, &settings, plan, shared)).transpose()
}

/// Opens a model that a request names, beside other open models.
///
/// # Errors
/// If it cannot be opened with the server's options, or does not fit in memory.
pub fn open_wanted(args: &Args, wanted: &Wanted<'_>, shared: &Shared) -> Result<Opened, Unopened> {
    let failed = |error: Error| Unopened::Failed(error.to_string());
    let typed = args.memory.context;
    let args = match wanted.entry {
        Some(entry) => args.for_entry(entry).map_err(failed)?,
        None => args.clone(),
    };
    let model = load::adapted(&args.model, &args.adapters).map_err(failed)?;
    let mut settings = settings(&args).map_err(failed)?;
    let ready = Ready::check(&args, model).map_err(failed)?;
    if let Some(max) = ready.model.positions_max().filter(|max| typed > *max)
        && wanted.entry.is_some()
    {
        // The context of all models, which suits conversations, is too long for an embedding model.
        info!(target: "models", ctx = typed, max, "the context is as long as the model allows");
        settings.context = Some(Sourced::given(max, "the positions that the model has learned"));
    }
    if wanted.shares && args.requests.parallel <= 0 {
        // One context, whose pages all slots share, so that more models fit.
        settings.sequences = Sequences::UpTo(1);
    }
    let plan = plan_beside(&ready.model, &settings, wanted)?;
    ready.start(&args, &settings, plan, shared).map_err(failed)
}

/// Plans a model beside other open models. If it can, it leaves a quarter of the memory to further
/// models, by a smaller context.
fn plan_beside(
    model: &Model,
    settings: &opening::Settings,
    wanted: &Wanted<'_>,
) -> Result<Plan, Unopened> {
    let plan = |taken| -> Result<Plan, opening::Error> {
        let plan = Plan::new(model, &opening::Settings { taken, ..settings.clone() })?;
        plan.check().map(|()| plan)
    };
    let available = platform::memory::available().map_or(0, |available| available.bytes);
    let free = available.saturating_sub(wanted.reserved);
    let usable = wanted.memory.map_or(free, |most| most.min(free));
    let taken = free - usable;
    let leaves = (wanted.shares && settings.context.is_none()).then(|| plan(taken + usable / 4));
    let plan = match leaves {
        Some(Ok(plan)) => Ok(plan),
        _ => plan(taken),
    };
    let plan = plan.map_err(|error| match error.is_too_large() {
        true => Unopened::TooLarge(error.to_string()),
        false => Unopened::Failed(error.to_string()),
    })?;
    let need = plan.need().total();
    match wanted.memory.filter(|most| need > *most) {
        Some(most) => Err(Unopened::TooLarge(format!(
            "it needs {}, and --models-memory leaves {}",
            Bytes(need),
            Bytes(most)
        ))),
        None => Ok(plan),
    }
}

/// Returns the settings of a run from the options of a server.
fn settings(args: &Args) -> Result<opening::Settings, Error> {
    let slots = args.requests.slots();
    let all = args.requests.parallel > 0;
    let flags = Flags { context_shift: args.requests.context_shift, ..args.rope.flags() };
    Ok(opening::Settings {
        sparse: args.sparse.settings(),
        drafts: args.speculation.settings(args.requests.cache_disk.is_some())?,
        sequences: if all { Sequences::All(slots) } else { Sequences::UpTo(slots) },
        ..resources::settings(&args.memory, &args.machine, flags)
    })
}

/// Returns the options of requests, with the escapes in their texts replaced.
fn requests(args: &Args) -> Result<Requests, Error> {
    let mut requests = args.requests.clone();
    if let Some(text) = &mut requests.system_prompt {
        *text = unescaped("--system-prompt", text, false)?;
    }
    requests.reverse_prompt = stops(&requests.reverse_prompt, false)?;
    Ok(requests)
}

/// A model that suits the options of the server, before its plan.
struct Ready {
    model: Model,
    pooling: Pooling,
    sampling: rope_cpu::sample::Settings,
    requests: Requests,
}

impl Ready {
    /// Checks that the options suit the model.
    fn check(args: &Args, model: Model) -> Result<Self, Error> {
        let tokenizer = model.tokenizer().map_err(Error::usage)?;
        let ranks = args.requests.reranking.then_some(Pooling::Rank);
        let pooling = args.requests.pooling.or(ranks).unwrap_or_else(|| Pooling::of(&model));
        model.require_pooling(pooling).map_err(Error::usage)?;
        let no_escape = false;
        let sampling = sampling::settings(
            &args.sampling,
            &args.model,
            no_escape,
            model.metadata(),
            tokenizer,
        )?;
        Ok(Ready { pooling, sampling, model, requests: requests(args)? })
    }

    /// Starts the scheduler of a planned run.
    fn start(
        self,
        args: &Args,
        settings: &opening::Settings,
        plan: Plan,
        shared: &Shared,
    ) -> Result<Opened, Error> {
        let Ready { model, pooling, sampling, requests } = self;
        let slots = args.requests.slots();
        resources::show(&plan);
        sampling::print_notes(&args.sampling, model.metadata(), &sampling, false);
        warn(&plan.rope);
        let template = match args.template.of(&args.model, &model) {
            Ok((_, template)) => Ok(with_reasoning(template, args)?),
            Err(e) if !args.template.given() => Err(e.to_string()),
            Err(e) => return Err(e),
        };

        let cache = args.requests.cache_ram;
        let cache = usize::try_from(cache);
        let cache = cache.map_or(usize::MAX, |mebibytes| mebibytes.saturating_mul(1 << 20));
        let context = plan.context.value;
        if let Some(folder) = &args.listen.slot_save_path {
            remove_incomplete(folder);
        }
        let on_disk = args.requests.cache_disk.as_ref();
        if let Some(folder) = on_disk.filter(|folder| others_may_write(folder)) {
            note(format_args!(
                "warning: --cache-disk {}: other users may write to this folder, and so change what the model \
             answers; permit only yourself to (chmod go-w), or choose another folder",
                folder.display()
            ));
        }
        let scheduling = Scheduling {
            slots,
            step_max: Duration::from_millis(args.requests.step_time),
            cache_bytes: cache,
            disk: on_disk.map(|folder| {
                (shared.folder(folder, &model), args.requests.cache_disk_limit << 20)
            }),
            moved_min: Some(args.requests.cache_reuse).filter(|tokens| *tokens > 0),
            prefill_later: args.requests.prefill_later,
            quotes: args.log.log_prompts,
            turns: Some(shared.turns.clone()),
        };
        let reserved = plan.reserve(&model);
        let runtime = Runtime::start(model.clone(), plan.clone(), scheduling, reserved)?;
        if let Some(reason) = runtime.unused_files() {
            note(format_args!("note: --cache-disk: not used: {reason}"));
        }
        let extension = Extension::new(&plan, &model, &settings.rope, args.requests.predict);
        let file = model.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let app = App {
            // A preset may change them.
            options: Options { listen: args.listen.clone(), requests, ..shared.options.clone() },
            template_source: template_source(&model),
            template,
            vocabulary: OnceLock::new(),
            pooling,
            // As in llama-server, the first one in alphabetical order.
            alias: args.listen.alias.iter().min().cloned().or(file).unwrap_or_default(),
            sampling,
            scales: Mutex::new(scales_of(&model)),
            context,
            capacity: runtime.capacity(),
            rope: flags::line(&plan.rope),
            warnings: plan
                .rope
                .warnings
                .iter()
                .map(|text| flags::with_flags(text).into_owned())
                .collect(),
            memory: plan.need_of_one(),
            plan: plan.rope,
            requests_memory: shared.memory.clone(),
            longer: Box::new(move |tokens| {
                let proposal = extension.for_prompt(tokens);
                Longer { text: proposal.to_string(), options: proposal.options }
            }),
            fingerprint: args.listen.slot_save_path.as_ref().map(|_| model.fingerprint()),
            loaded: SystemTime::now(),
            scheduler: runtime.handle().clone(),
            latency: Arc::default(),
            changing: Default::default(),
            echoes: Arc::default(),
            compiling: Compiling::default(),
            model,
        };
        Ok(Opened { app: Arc::new(app), runtime })
    }
}

/// Passes whether the model reasons to the template, unless --chat-template-kwargs does. It is
/// always passed, as in llama-server, since some templates do not reason without it.
fn with_reasoning(template: Template, args: &Args) -> Result<Template, Error> {
    let reasoning = format!(r#"{{"enable_thinking": {}}}"#, args.requests.reasons());
    let template = template.arguments(&reasoning).map_err(Error::usage)?;
    match &args.template.chat_template_kwargs {
        // Later ones take precedence.
        Some(arguments) => template.arguments(arguments).map_err(Error::usage),
        None => Ok(template),
    }
}

/// Returns the source of the chat template in the model file.
fn template_source(model: &Model) -> String {
    let source = model.metadata().string("tokenizer.chat_template").ok().flatten();
    source.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::atomic::Ordering::Relaxed, thread};

    use clap::FromArgMatches;

    use super::*;
    use crate::cli::{CommandLine, Subcommands, definition, names};

    /// Returns the options of a command line of `serve`.
    fn serve_args(options: &[&str]) -> Args {
        let argv = [&["rope-cpu", "serve"], options].concat();
        let matches = names::for_clap(definition()).try_get_matches_from(argv).unwrap();
        match CommandLine::from_arg_matches(&matches).unwrap().command {
            Some(Subcommands::Serve(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_model_is_opened_again_after_its_scheduler_panicked() {
        let folder = tempfile::tempdir().unwrap();
        let model = rope_cpu_testing::reader::tiny_reader(7, true);
        fs::copy(model.path(), folder.path().join("a-tiny-model.gguf")).unwrap();
        let models_dir = format!("--models-dir={}", folder.path().display());
        let args = serve_args(&["--ctx=256", "--parallel=1", "--threads=1", &models_dir]);
        let server = Server::new(args.options().unwrap(), args.shelf().unwrap(), |_| Ok(()));
        let server = server.unwrap();
        let (models, shared, of_loader) = (&server.models, Shared::of(&server), args.clone());
        let opens = move |wanted: &Wanted<'_>| open_wanted(&of_loader, wanted, &shared);
        models.start(Box::new(opens)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lease = || {
            let (name, entry) = models.resolve(Some("a-tiny-model"), &[]).unwrap();
            let mut waiting = models.wait(&name, entry, None).unwrap();
            runtime.block_on(waiting.lease()).unwrap()
        };
        let status = || models.listed("a-tiny-model", &[]).unwrap().status.name();

        let first = lease();
        assert_eq!(status(), "loaded");
        first.app.scheduler.act(|_| panic!("a test")).unwrap();
        while !first.app.scheduler.status().ended.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        // Though its request is not complete.
        assert_eq!(status(), "unloaded");
        let second = lease();
        assert!(!Arc::ptr_eq(&first.app, &second.app));
        drop(first);
        assert_eq!(status(), "loaded");
        second.app.scheduler.act(|_| ()).unwrap();
        assert!(models.alive());
        drop(second);
        models.stop(None);
    }
}
