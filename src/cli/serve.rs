//! `rope-cpu serve`: serves a model over HTTP.

use std::{future, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, runtime, sync::oneshot};

pub use super::args::ServeArgs as Args;
use super::{error::Error, note, opened};
use crate::server::{self, Listen, Server};
use rope_cpu::{sample::Settings, shelf::Entry};

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
    // Wrong options are errors before anything is opened.
    check(args)?;
    let server = Arc::new(Server::new(args.options()?, args.shelf()?, check_entry)?);
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

    let shared = opened::Shared::of(&server);
    let mut context = 0;
    if !server.models.is_shelf() {
        let Some(opened) = opened::open(args, &shared)? else { return Ok(()) };
        context = opened.runtime.plan().context.value;
        server.models.install(opened);
    }
    let of_loader = args.clone();
    server
        .models
        .start(Box::new(move |wanted| opened::open_wanted(&of_loader, wanted, &shared)))?;
    ready(&addresses, context)?;
    let end = runtime.block_on(serving).map_err(Error::failed)?;
    // Drops connections that are still open, with their answers.
    runtime.shutdown_timeout(Duration::from_secs(1));
    server.models.stop(end);
    Ok(())
}

/// Checks the options that no model is needed for.
fn check(args: &Args) -> Result<(), Error> {
    args.sampling.applied_to(Settings::default()).check().map_err(Error::usage)?;
    args.speculation.settings(args.requests.cache_disk.is_some()).map(drop)
}

/// Checks the options of a model of the shelf.
fn check_entry(entry: &Entry) -> Result<(), String> {
    let checked = super::serve_args_of(entry).and_then(|args| check(&args));
    checked.map_err(|error| error.to_string())
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
