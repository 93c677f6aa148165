//! `rope-cpu serve`: serves a model over HTTP.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use tokio::{net::TcpListener, runtime, sync::oneshot};

pub use super::args::ServeArgs as Args;
use super::{
    args::{ListenArgs, MemoryArgs, Reasoning, named},
    draft::{Draft, speculations},
    error::Error,
    flags, load, note, resources, sampling, warn,
};
use crate::server::{self, App, Command, Disk, Scheduler, Server, Status, remove_incomplete};
use rope_cpu::{
    chat::Template,
    model::{Engine, Model, Pooling},
    rope::Flags,
    sample::Settings,
};

/// The number of slots by default.
const SLOTS: usize = 4;

/// The most tokens that a draft model reads in a step.
const DRAFT_MICRO_BATCH: usize = 64;

/// Runs the command, until SIGINT or SIGTERM.
///
/// # Errors
/// On invalid arguments or an invalid file, if the address cannot be listened on, or if the model does
/// not fit in memory.
pub fn run(args: &Args) -> Result<(), Error> {
    serve(args, |addresses| {
        for address in addresses {
            note(format_args!("listening on http://{address}"));
        }
    })
}

/// Serves a model until SIGINT or SIGTERM. `ready` is called with the addresses when the model is loaded.
///
/// # Errors
/// As for [`run`].
pub fn serve(args: &Args, ready: impl FnOnce(&[SocketAddr])) -> Result<(), Error> {
    args.sampling.applied_to(Settings::default()).check().map_err(Error::usage)?;
    args.speculation.draft_model()?;
    let slots = usize::try_from(args.requests.parallel).ok().filter(|slots| *slots > 0);
    let server = Arc::new(Server::new(args.options(slots.unwrap_or(SLOTS))?)?);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // The addresses are taken before the model is loaded, and signals are handled.
    let listeners = match args.memory.dry_run {
        true => Vec::new(),
        false => runtime.block_on(listen(&args.listen))?,
    };
    let addresses: Result<Vec<_>, _> = listeners.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses?;
    let (stop, stopped) = oneshot::channel::<()>();
    let stop_signal = runtime.block_on(async { server::stop_signal() })?;
    let drain_max = Duration::from_secs(args.listen.drain_timeout);
    let serving = runtime.spawn(server::serve(
        server.clone(),
        listeners,
        async {
            tokio::select! {
                () = stop_signal => {}
                // The model could not be loaded.
                _ = stopped => {}
            }
        },
        drain_max,
    ));

    let loaded = load(args, &server);
    let (commands, scheduler, status) = match loaded {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return Ok(()),
        Err(e) => {
            drop(stop);
            return Err(e);
        }
    };
    ready(&addresses);
    if let Some(end) = runtime.block_on(serving).map_err(Error::failed)? {
        // It is set here alone.
        let _ = status.end.set(end);
    }
    // Answers whose connections are still open are dropped with them.
    runtime.shutdown_timeout(Duration::from_secs(1));
    // A handler may still be at work, with a sender of commands. It has ended only if the scheduler has.
    let _ = commands.send(Command::End);
    drop((commands, server));
    let _ = scheduler.join();
    Ok(())
}

/// Listens on all addresses, with one port.
async fn listen(args: &ListenArgs) -> Result<Vec<TcpListener>, Error> {
    let mut listeners = Vec::new();
    let mut port = args.port;
    for host in &args.host {
        let address = SocketAddr::new(*host, port);
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|e| Error::failed(format_args!("cannot listen on {address}: {e}")))?;
        port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(listeners)
}

/// A loaded model: the sender of commands to its scheduler, which owns it.
type Running = (mpsc::Sender<Command>, thread::JoinHandle<()>, Arc<Status>);

/// Loads the model, and starts its scheduler. With `--dry-run` it prints the plan instead, and returns
/// `None`.
fn load(args: &Args, server: &Server) -> Result<Option<Running>, Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let template = &args.requests.template;
    let no_escape = false;
    let sampling =
        sampling::settings(&args.sampling, &args.model, no_escape, model.metadata(), tokenizer)?;
    let slots = server.options.slots;
    let resources = resources::plan(&args.memory, &args.machine, &model, args.rope.rolls());
    let all = args.requests.parallel > 0;
    let resources = resources.for_server(slots, all);
    let flags = Flags { context_shift: args.requests.context_shift, ..args.rope.flags() };
    // Answers go on meanwhile, so the draft model reads few tokens at a time.
    let micro_batch = args.memory.ubatch_size.min(DRAFT_MICRO_BATCH);
    let memory = MemoryArgs { ubatch_size: micro_batch, ..args.memory.clone() };
    let draft = Draft::open(&args.speculation, &memory, &args.machine, &resources)?;
    let draft = draft.map(|draft| draft.for_server(slots, all));
    let rope = resources.rope(&model, &flags)?;
    let draft_rope = draft.as_ref().map(|draft| draft.rope(&flags)).transpose()?.flatten();
    let Some(rope) = rope else { return Ok(None) };
    let drafting = draft.as_ref().zip(draft_rope);
    let speculations = speculations(&args.speculation, &model, drafting, slots)?;
    note(&resources);
    note(rope.plan());
    if let Some(draft) = &draft {
        note(draft.line());
    }
    sampling::print_notes(&args.sampling, model.metadata(), &sampling, false);
    warn(rope.plan());
    let plan = rope.plan().clone();
    let template = match template.of(&args.model, &model) {
        Ok((_, template)) => Ok(with_reasoning(template, args)?),
        Err(e) if !template.given() => Err(e.to_string()),
        Err(e) => return Err(e),
    };

    let cache = args.requests.cache_ram;
    let cache = usize::try_from(cache).map_or(usize::MAX, |mebibytes| mebibytes << 20);
    let resources = match &draft {
        Some(draft) => resources.beside(draft.resources()),
        None => resources,
    };
    let options = resources.server_options(cache);
    let context = options.context;
    let status = Arc::new(Status::default());
    let engine = Engine::new(&model, rope, options).map_err(Error::failed)?;
    let capacity = engine.capacity();
    if let Some(folder) = &server.options.slot_folder {
        remove_incomplete(folder);
    }
    let on_disk = args.requests.cache_disk.as_ref();
    let saves = server.options.slot_folder.is_some() || on_disk.is_some();
    let fingerprint = saves.then(|| model.fingerprint());
    let disk = on_disk.zip(fingerprint).map(|(folder, fingerprint)| {
        let limit = args.requests.cache_disk_limit << 20;
        Disk::open(folder.clone(), limit, engine.archive(fingerprint))
            .map_err(|e| named(folder, format_args!("--cache-disk: {e}")))
    });
    let disk = disk.transpose()?;
    let (commands, received) = mpsc::channel();
    let scheduler = {
        let (model, status) = (model.clone(), status.clone());
        let step_max = server.options.step_max;
        let quotes = server.options.logs_prompts;
        thread::Builder::new().name("scheduler".into()).spawn(move || {
            // It was checked above.
            if let Ok(tokenizer) = model.tokenizer() {
                let scheduler = Scheduler::new(engine, tokenizer, speculations, step_max, status);
                scheduler.with_disk(disk).quoting(quotes).run(&received);
            }
        })?
    };
    let file = model.path().file_name().map(|name| name.to_string_lossy().into_owned());
    server.loaded(App {
        options: server.options.clone(),
        template_source: template_source(&model),
        template,
        vocabulary: OnceLock::new(),
        pooling: args.requests.pooling.unwrap_or_else(|| Pooling::of(&model)),
        alias: server.options.aliases.first().cloned().or(file).unwrap_or_default(),
        sampling,
        scales: Mutex::new(server::scales_of(&model)),
        context,
        capacity,
        rope: flags::line(&plan),
        warnings: plan.warnings.iter().map(|text| flags::with_flags(text).into_owned()).collect(),
        plan,
        memory: resources.of_one_context(),
        fingerprint,
        loaded: SystemTime::now(),
        status: status.clone(),
        commands: commands.clone(),
        model,
    });
    Ok(Some((commands, scheduler, status)))
}

/// Returns a template that reads whether the model reasons, unless --chat-template-kwargs says so. As in
/// llama-server it always does, since some templates have no reasoning where it is missing.
fn with_reasoning(template: Template, args: &Args) -> Result<Template, Error> {
    let reasoning = args.requests.reasoning != Reasoning::Off;
    let reasoning = format!(r#"{{"enable_thinking": {reasoning}}}"#);
    let template = template.arguments(&reasoning).map_err(Error::usage)?;
    match &args.requests.template.chat_template_kwargs {
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
