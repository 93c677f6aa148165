//! Downloads from the Hugging Face Hub. A thread downloads, so that Ctrl-C stops it at any time.

use std::{
    env,
    panic::resume_unwind,
    path::PathBuf,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
};

use pyo3::prelude::*;
use rope_cpu::hub::{self, Event, Hub, Options, Wanted};

use crate::{
    errors::{failed, invalid},
    generation::SIGNALS_EVERY,
};

/// Returns the path of a model, after downloading it if it is not in the cache. `progress` receives
/// the name of a file, the bytes that have arrived and all bytes.
#[pyfunction]
pub fn download(
    py: Python<'_>,
    repo: &str,
    file: Option<String>,
    cache: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    let options = Options::from_variables(|name| env::var(name).ok()).map_err(of_hub)?;
    let hub = Hub::new(Options { cache: cache.unwrap_or(options.cache), ..options });
    let hub = hub.map_err(of_hub)?;
    let wanted = Wanted { file, ..repo.parse().map_err(of_hub)? };

    let (sender, mut events) = channel();
    let worker = thread::Builder::new().name("rope-cpu download".into());
    let worker = worker.spawn(move || {
        let (mut name, mut all) = (String::new(), 0);
        hub.model(&wanted, &mut |event| {
            let done = match event {
                Event::Started { file, done, bytes, .. } => {
                    (name, all) = (file.into(), bytes);
                    done
                }
                Event::Received { done } => done,
                Event::Retrying { .. } | Event::Waiting | Event::UsingCached { .. } => return,
            };
            if sender.send((name.clone(), done, all)).is_err() {
                // The caller has gone: stops the thread. A later call resumes from the partial file.
                resume_unwind(Box::new("stopped"));
            }
        })
    });
    let worker = worker.map_err(failed)?;
    loop {
        let waiting = &mut events;
        let event = py.detach(move || waiting.recv_timeout(SIGNALS_EVERY));
        py.check_signals()?;
        // The latest of the events that have come meanwhile.
        let event = event.map(|event| events.try_iter().last().unwrap_or(event));
        match (event, &progress) {
            (Ok(event), Some(progress)) => drop(progress.call1(py, event)?),
            (Ok(_), None) | (Err(RecvTimeoutError::Timeout), _) => {}
            (Err(RecvTimeoutError::Disconnected), _) => break,
        }
    }
    let path = py.detach(|| worker.join());
    path.map_err(|_| failed("this is a bug, please report it with the message on standard error"))?
        .map_err(of_hub)
}

fn of_hub(error: hub::Error) -> PyErr {
    if error.is_failure() { failed(error) } else { invalid(error) }
}
