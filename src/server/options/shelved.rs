//! The options of a server of many models.

use std::time::Duration;

use crate::{numbers, server::KeepAlive};

/// A time without requests; `None` for never.
type Idle = Option<Duration>;

/// The options of a server of many models, which `serve` is without `-m`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Many models")]
pub struct Shelved {
    /// Models that are open at a time; 0: as many as fit
    ///
    /// Without -m the server opens the model that a request names. Before it opens one more, it
    /// closes the idle one that was used least recently.
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = numbers::up_to_limit)]
    pub models_max: usize,

    /// Memory of all open models in MiB
    ///
    /// By default the memory that is available.
    #[arg(long, value_name = "N", value_parser = numbers::mebibytes(1, 1 << 24))]
    pub models_memory: Option<usize>,

    /// Open models when a request names them (the default)
    #[arg(long, overrides_with = "no_models_autoload", hide_short_help = true)]
    pub models_autoload: bool,

    /// Open models only with POST /models/load
    #[arg(long, overrides_with = "models_autoload")]
    pub no_models_autoload: bool,

    /// Time that a model stays open without requests
    ///
    /// Seconds, or a time such as 5m or 1h30m; 0 closes a model after each request. A request's
    /// keep_alive takes precedence. By default until its memory is needed.
    #[arg(long, value_name = "TIME", default_value = "-1", hide_default_value = true)]
    #[arg(allow_negative_numbers = true)]
    pub keep_alive: KeepAlive,

    /// Seconds without requests after which a model sleeps; -1: never
    ///
    /// It gives its memory back, and opens again with the next request.
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = idle, hide_short_help = true)]
    pub sleep_idle_seconds: Idle,

    /// Key that permits to load, pull and delete models
    ///
    /// As `Authorization: Bearer KEY` or `X-Manage-Key: KEY`. Without it these are permitted only
    /// to programs on this machine, while the server listens on loopback addresses alone.
    #[arg(long, value_name = "KEY")]
    pub manage_key: Option<String>,
}

/// Parses seconds of which -1 is never.
fn idle(text: &str) -> Result<Idle, String> {
    let seconds = numbers::between::<i64>(-1, 1_000_000_000)(text)?;
    Ok(u64::try_from(seconds).ok().map(Duration::from_secs))
}
