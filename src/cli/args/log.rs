//! The options of the server's log.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use clap::ValueEnum;
use tracing::{Level, error, info, warn};
use tracing_subscriber::{
    filter::LevelFilter,
    fmt::{
        self,
        writer::{BoxMakeWriter, MakeWriterExt},
    },
};

use super::{named, numbers};
use crate::cli::error::Error;

/// Whether messages of the program are lines of the log.
static TAKES_NOTES: AtomicBool = AtomicBool::new(false);

/// The options of the log.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Form of the log on stderr: text or json
    ///
    /// Each request has a line: identifier, method, path, status, tokens, times, and why the answer
    /// stopped. The response has the same identifier in its header X-Request-Id. json: every line
    /// is an object, also when the server starts.
    #[arg(long, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    pub log_format: LogFormat,

    /// Verbosity of the log: 0 to 4
    ///
    /// 0: nothing, 1: errors, 2: warnings, 3: requests, 4: also the arrival of requests, and
    /// requests for /health, /metrics and /slots.
    #[arg(long, aliases = ["verbosity", "-lv"], value_name = "N", default_value_t = 3)]
    #[arg(value_parser = numbers::between::<u8>(0, 4))]
    pub log_verbosity: u8,

    /// Also append the log to this file
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Write no log
    #[arg(long, conflicts_with_all = ["log_file", "log_prompts"])]
    pub log_disable: bool,

    /// Write prompts to the log
    ///
    /// Prompts may be confidential: by default the log has nothing of them.
    #[arg(long, hide_short_help = true)]
    pub log_prompts: bool,

    /// Whether stderr has errors only, whatever the verbosity.
    #[arg(skip)]
    pub only_errors_on_stderr: bool,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogArgs {
    /// Starts the log, at maximum verbosity if `verbose`.
    ///
    /// # Errors
    /// If its file cannot be opened.
    pub fn start(&self, verbose: bool) -> Result<(), Error> {
        let level = match self.log_verbosity {
            _ if self.log_disable => LevelFilter::OFF,
            _ if verbose => LevelFilter::DEBUG,
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        };
        let on_stderr = if self.only_errors_on_stderr { Level::ERROR } else { Level::TRACE };
        let stderr = io::stderr.with_max_level(on_stderr);
        let writer = match &self.log_file {
            None => BoxMakeWriter::new(stderr),
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.map_err(|e| named(path, e))?;
                BoxMakeWriter::new(stderr.and(Arc::new(file)))
            }
        };
        let log = fmt::fmt()
            .with_max_level(level)
            .with_writer(writer)
            .with_ansi(self.log_file.is_none() && io::stderr().is_terminal());
        match self.log_format {
            LogFormat::Text => log.init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
        let only_lines = self.log_format == LogFormat::Json || self.log_file.is_some();
        let takes = only_lines && level >= LevelFilter::INFO && !self.only_errors_on_stderr;
        TAKES_NOTES.store(takes, Relaxed);
        if self.log_prompts {
            warn!("--log-prompts: prompts are written to the log");
        }
        Ok(())
    }
}

/// Writes a message of the program to the log. Returns false if the log does not take messages.
pub fn note(text: &str) -> bool {
    let taken = TAKES_NOTES.load(Relaxed);
    if taken {
        match text.split_once(": ") {
            Some(("error", text)) => error!("{text}"),
            Some(("warning", text)) => warn!("{text}"),
            _ => info!("{text}"),
        }
    }
    taken
}
