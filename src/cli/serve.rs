//! `rope-cpu serve`: serves a model over HTTP.

use std::{
    future,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, SystemTime},
};

use tokio::{net::TcpListener, runtime, sync::oneshot};

pub use super::args::ServeArgs as Args;
use super::{error::Error, extension::Extension, flags, load, note, resources, sampling, warn};
use crate::server::{self, App, Compiling, Listen, Longer, Server, remove_incomplete};
use rope_cpu::{
    chat::Template,
    model::{Model, Pooling},
    platform::others_may_write,
    rope::Flags,
    runtime::{self as opening, Drafts, Runtime, Scheduling, Sequences},
    sample::Settings,
};

/// Runs the command, until SIGINT or SIGTERM.
///
/// # Errors
/// On invalid arguments or an invalid file, if the address cannot be listened on, or if the model
/// does not fit in memory.
pub fn run(args: &Args) -> Result<(), Error> {
    serve(args, Stop::OnSignal, |addresses, _| {
        for address in addresses {
            note(format_args!("listening on http://{address}"));
        }
        Ok(())
    })
}

/// When a server stops.
pub enum Stop {
    /// After SIGINT or SIGTERM.
    OnSignal,
    /// After a message, or SIGTERM. SIGINT does nothing.
    OnMessage(oneshot::Receiver<()>),
}

/// Serves a model. Calls `ready` with the addresses and the size of the context once the model is
/// loaded.
///
/// # Errors
/// As for [`run`], and the errors of `ready`.
pub fn serve(
    args: &Args,
    stop: Stop,
    ready: impl FnOnce(&[SocketAddr], usize) -> Result<(), Error>,
) -> Result<(), Error> {
    args.sampling.applied_to(Settings::default()).check().map_err(Error::usage)?;
    let drafts = args.speculation.settings(args.requests.cache_disk.is_some())?;
    let server = Arc::new(Server::new(args.options()?)?);
    let cannot_start = |e| Error::failed(format_args!("cannot start the server: {e}"));
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(cannot_start)?;
    // Listens, and handles signals, before it loads the model.
    let listeners = match args.memory.dry_run {
        Some(_) => Vec::new(),
        None => runtime.block_on(listen(&args.listen))?,
    };
    let addresses: Result<Vec<_>, _> = listeners.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses?;
    let interrupts = matches!(stop, Stop::OnSignal);
    let stop_signal = server::stop_signal(interrupts).map_err(cannot_start)?;
    let message = async {
        match stop {
            Stop::OnSignal => future::pending().await,
            Stop::OnMessage(message) => _ = message.await,
        }
    };
    let drain_max = Duration::from_secs(args.listen.drain_timeout);
    let serving = runtime.spawn(server::serve(
        server.clone(),
        listeners,
        async {
            tokio::select! {
                () = stop_signal => {}
                () = message => {}
            }
        },
        drain_max,
    ));

    let Some(model) = load(args, drafts, &server)? else { return Ok(()) };
    ready(&addresses, model.plan().context.value)?;
    let end = runtime.block_on(serving).map_err(Error::failed)?;
    // Drops connections that are still open, with their answers.
    runtime.shutdown_timeout(Duration::from_secs(1));
    model.stop(end);
    Ok(())
}

/// Listens on all addresses, with one port.
async fn listen(args: &Listen) -> Result<Vec<TcpListener>, Error> {
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

/// Loads the model, and starts its scheduler. With `--dry-run` it prints the plan instead, and
/// returns `None`.
fn load(args: &Args, drafts: Drafts, server: &Server) -> Result<Option<Runtime>, Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let template = &args.template;
    let ranks = args.requests.reranking.then_some(Pooling::Rank);
    let pooling = args.requests.pooling.or(ranks).unwrap_or_else(|| Pooling::of(&model));
    model.require_pooling(pooling).map_err(Error::usage)?;
    let no_escape = false;
    let sampling =
        sampling::settings(&args.sampling, &args.model, no_escape, model.metadata(), tokenizer)?;
    let slots = args.requests.slots();
    let all = args.requests.parallel > 0;
    let flags = Flags { context_shift: args.requests.context_shift, ..args.rope.flags() };
    let settings = opening::Settings {
        sparse: args.sparse.settings(),
        drafts,
        sequences: if all { Sequences::All(slots) } else { Sequences::UpTo(slots) },
        ..resources::settings(&args.memory, &args.machine, flags)
    };
    let Some(plan) = resources::plan(&model, &settings, &args.memory)? else { return Ok(None) };
    resources::show(&plan);
    sampling::print_notes(&args.sampling, model.metadata(), &sampling, false);
    warn(&plan.rope);
    let template = match template.of(&args.model, &model) {
        Ok((_, template)) => Ok(with_reasoning(template, args)?),
        Err(e) if !template.given() => Err(e.to_string()),
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
        disk: on_disk.map(|folder| (folder.clone(), args.requests.cache_disk_limit << 20)),
        moved_min: Some(args.requests.cache_reuse).filter(|tokens| *tokens > 0),
        quotes: args.log.log_prompts,
    };
    let reserved = plan.reserve(&model);
    let runtime = Runtime::start(model.clone(), plan.clone(), scheduling, reserved)?;
    if let Some(reason) = runtime.unused_files() {
        note(format_args!("note: --cache-disk: not used: {reason}"));
    }
    let extension = Extension::new(&plan, &model, &settings.rope, args.requests.predict);
    let file = model.path().file_name().map(|name| name.to_string_lossy().into_owned());
    server.loaded(App {
        options: server.options.clone(),
        template_source: template_source(&model),
        template,
        vocabulary: OnceLock::new(),
        pooling,
        // As in llama-server, the first one in alphabetical order.
        alias: args.listen.alias.iter().min().cloned().or(file).unwrap_or_default(),
        sampling,
        scales: Mutex::new(server::scales_of(&model)),
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
        requests_memory: server.memory.clone(),
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
    });
    Ok(Some(runtime))
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
