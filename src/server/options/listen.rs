//! The options of the address, of access to it, and of what it serves.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use crate::numbers;

/// A time between two events; `None` for never.
type Interval = Option<Duration>;

/// The options of the address and of access to it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct Listen {
    /// Addresses to listen on: IP[,...]
    ///
    /// `localhost` is 127.0.0.1; 0.0.0.0 and :: are all addresses of this machine. Beyond loopback
    /// addresses, --api-key is required, or --no-api-key.
    #[arg(long, value_name = "LIST", default_value = "127.0.0.1", value_delimiter = ',')]
    #[arg(value_parser = address)]
    pub host: Vec<IpAddr>,

    /// Port to listen on; 0: a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,

    /// Keys that requests must have: KEY[,...]
    ///
    /// As `Authorization: Bearer KEY` or `X-Api-Key: KEY`. The paths /health, /livez and /readyz
    /// need none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "no_api_key")]
    pub api_key: Vec<String>,

    /// File with keys, one on each line
    #[arg(long, value_name = "FILE", conflicts_with = "no_api_key")]
    pub api_key_file: Option<PathBuf>,

    /// Listen beyond this machine without a key
    #[arg(long)]
    pub no_api_key: bool,

    /// Names of this server besides localhost: NAME[,...]
    ///
    /// Requests with another name in their Host header are refused, so that no web page can reach
    /// the server through a name of its own. `*` allows all, for example behind a proxy.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,

    /// Web pages that may send requests: ORIGIN[,...]
    ///
    /// Such as https://example.org, `localhost` for this machine on any port, or `*` for all
    /// (CORS). By default only the server's own page.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cors_origins: Vec<String>,

    /// Names of the model: NAME[,...] [-a]
    ///
    /// Answers have the first one in alphabetical order, as in llama-server. By default the name
    /// of the model file.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    pub alias: Vec<String>,

    /// Words that describe the model in /v1/models: WORD[,...]
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_short_help = true)]
    pub tags: Vec<String>,

    /// Folder for saved slots
    ///
    /// POST /slots/ID?action=save writes to files in it.
    #[arg(long, value_name = "DIR")]
    pub slot_save_path: Option<PathBuf>,

    /// Serve the state of slots at /slots (the default)
    #[arg(long, overrides_with = "no_slots", hide_short_help = true)]
    pub slots: bool,

    /// Do not serve /slots
    #[arg(long, overrides_with = "slots")]
    pub no_slots: bool,

    /// Serve the web page at / (the default) [--webui]
    #[arg(long, alias = "webui", overrides_with = "no_ui", hide_short_help = true)]
    pub ui: bool,

    /// Do not serve the web page [--no-webui]
    #[arg(long, alias = "no-webui", overrides_with = "ui")]
    pub no_ui: bool,

    /// Serve Prometheus metrics at /metrics
    #[arg(long)]
    pub metrics: bool,

    /// Log more, and add the settings to chat answers
    ///
    /// Like --log-verbosity 4 and "verbose": true in each request. The field __verbose of an
    /// answer has the prompt and the settings.
    #[arg(short = 'v', long, alias = "log-verbose", hide_short_help = true)]
    pub verbose: bool,

    /// Form of reasoning in answers without "reasoning_format"
    ///
    /// none: it stays in the text. auto, deepseek, deepseek-legacy: it is a field of its own.
    #[arg(long, value_name = "FORM", default_value = "auto", hide_short_help = true)]
    #[arg(value_parser = ["none", "auto", "deepseek", "deepseek-legacy"])]
    pub reasoning_format: String,

    /// Leave calls of tools and reasoning in the text
    #[arg(long, hide_short_help = true)]
    pub skip_chat_parsing: bool,

    /// Scale embeddings without "embd_normalize": 2 to unit length, -1 not at all
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true)]
    #[arg(value_parser = numbers::normalization, hide_short_help = true)]
    pub embd_normalize: i64,

    /// Largest body of a request in MiB
    ///
    /// By default 4, and 1 more for every 16,384 positions of the context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = numbers::mebibytes(1, 4096))]
    pub body_max: Option<usize>,

    /// Seconds for a request to arrive, and for a client to read
    ///
    /// A request that is not complete after N seconds gets the status 408. The server closes a
    /// connection that sends no request, or reads nothing of its answer, for N seconds.
    #[arg(long, alias = "-to", value_name = "N", default_value = "600", hide_short_help = true)]
    #[arg(value_parser = numbers::seconds(1, 1_000_000))]
    pub timeout: Duration,

    /// Seconds between signs of life on a silent stream
    ///
    /// Many clients give up if a stream is silent, as during a long prompt. They get
    /// `response.in_progress`, `ping` or an empty delta, depending on the interface. -1: none.
    #[arg(long, value_name = "N", default_value = "10", allow_negative_numbers = true)]
    #[arg(value_parser = interval, hide_short_help = true)]
    pub sse_ping_interval: Interval,

    /// Seconds that the end may take after SIGTERM
    ///
    /// The server takes no more requests, and stops when all answers are complete or after N
    /// seconds. What --cache-disk has not written by then is lost.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub drain_timeout: u64,
}

impl Listen {
    /// Returns the names of the model in alphabetical order.
    pub fn aliases(&self) -> BTreeSet<&str> {
        self.alias.iter().map(String::as_str).collect()
    }
}

/// Parses an address to listen on.
fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| "must be an IP address or localhost".into()),
    }
}

/// Parses seconds of which -1 and 0 are never.
fn interval(text: &str) -> Result<Interval, String> {
    let seconds = numbers::between::<i64>(-1, 1_000_000)(text)?;
    Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs))
}
