//! The options of `serve`, named as llama-server names them.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;

use super::{
    AdapterArgs, EngineArgs, LogArgs, MemoryArgs, ModelArgs, RopeArgs, SamplingArgs, SparseArgs,
    SpeculationArgs, TemplateArgs, at_least_one, numbers, up_to_limit,
};
use crate::{
    cli::{error::Error, text},
    server::Options,
};
use rope_cpu::{batch::MOVED_LEAST, model::Pooling};

/// Serve a model over HTTP, as llama-server does
///
/// A web page, and the interfaces of OpenAI (/v1/chat/completions, /v1/completions, /v1/models) and
/// llama-server (/completion, /tokenize, /props, /slots, ...), at http://127.0.0.1:8080. Several
/// requests are answered at a time, each with the whole context.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub requests: RequestArgs,
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

/// The options of the address and of access to it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ListenArgs {
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
    #[arg(value_parser = numbers::between::<usize>(1, 4096))]
    pub body_max: Option<usize>,

    /// Seconds for a request to arrive, and for a client to read
    ///
    /// A request that is not complete after N seconds gets the status 408. The server closes a
    /// connection that sends no request, or reads nothing of its answer, for N seconds.
    #[arg(long, alias = "-to", value_name = "N", default_value_t = 600, hide_short_help = true)]
    #[arg(value_parser = numbers::between::<u64>(1, 1_000_000))]
    pub timeout: u64,

    /// Seconds between signs of life on a silent stream
    ///
    /// Many clients give up if a stream is silent, as during a long prompt. They get
    /// `response.in_progress`, `ping` or an empty delta, depending on the interface. -1: none.
    #[arg(long, value_name = "N", default_value = "10", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::between::<i64>(-1, 1_000_000), hide_short_help = true)]
    pub sse_ping_interval: i64,

    /// Seconds that the end may take after SIGTERM
    ///
    /// The server takes no more requests, and stops when all answers are complete or after N
    /// seconds. What --cache-disk has not written by then is lost.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub drain_timeout: u64,
}

/// The options of the answers to requests.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Requests")]
pub struct RequestArgs {
    /// Requests answered at a time
    ///
    /// Each can use the whole context. -1: up to 4, as memory allows.
    #[arg(long, alias = "-np", value_name = "N", default_value = "-1")]
    #[arg(value_parser = numbers::between::<i64>(-1, 256), allow_negative_numbers = true)]
    pub parallel: i64,

    /// Keep parts of prompts that change at each request
    ///
    /// By default Claude Code's billing header and `<total_tokens>` are removed, and the log says
    /// so. A change near the start of a prompt would require processing all of it again.
    #[arg(long, hide_short_help = true)]
    pub keep_volatile: bool,

    /// Move lines of prompts that change at each request to the end
    ///
    /// If the first messages of two requests differ only in numbers, dates or times, the lines where
    /// they differ are moved to the last message from then on. The log names such lines, and the
    /// tokens that they cost, without this option too.
    #[arg(long, hide_short_help = true)]
    pub move_volatile: bool,

    /// MiB of memory for earlier conversations
    ///
    /// A conversation in it continues without processing its tokens again. -1: no limit. 0: none, so
    /// only the last conversation of each slot continues.
    #[arg(long, alias = "-cram", value_name = "N", default_value = "8192")]
    #[arg(allow_negative_numbers = true, value_parser = numbers::from(-1))]
    pub cache_ram: i64,

    /// Folder for conversations that memory is too small for
    ///
    /// Conversations are written to the folder before they leave --cache-ram, and when the server
    /// stops. A conversation also continues from there after a restart. The folder is created if
    /// it does not exist. Its files contain conversations. Prompts also continue from documents of
    /// `rope-cpu read` in it.
    #[arg(long, value_name = "DIR")]
    pub cache_disk: Option<PathBuf>,

    /// MiB of the conversations in --cache-disk
    ///
    /// The server removes the least recently used ones.
    #[arg(long, value_name = "N", default_value_t = 8192, requires = "cache_disk")]
    #[arg(value_parser = numbers::between::<u64>(1, 1 << 40), hide_short_help = true)]
    pub cache_disk_limit: u64,

    /// Take over moved parts of prompts with at least N tokens; 0: none
    ///
    /// Parts of earlier prompts and of documents in --cache-disk that a prompt has elsewhere are not
    /// computed again, except for their first 32 tokens. Answers are then less exact, since a part was
    /// computed after another text. Needs --context-shift, which stores keys that can move.
    #[arg(long, alias = "LLAMA_ARG_CACHE_REUSE", value_name = "N", default_value = "0")]
    #[arg(value_parser = moved_min, hide_short_help = true)]
    pub cache_reuse: usize,

    /// Share cached tokens and slots between the clients of all API keys
    ///
    /// With several keys, each key by default continues, saves and erases only its own conversations.
    /// Otherwise the time of an answer would tell a client what others have sent. Documents of
    /// `rope-cpu read` are for all.
    #[arg(long, hide_short_help = true)]
    pub share_cache: bool,

    /// Requests that may wait for a slot
    ///
    /// Further ones get the status 429.
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one)]
    pub max_queue: usize,

    /// Longest time between two tokens in ms
    ///
    /// While answers are generated, each step also processes tokens of other prompts, as many as
    /// fit in this time.
    #[arg(long, value_name = "N", default_value_t = 250)]
    pub step_time: u64,

    /// Maximum tokens of answers, unless a request gives it [default: no limit]
    #[arg(short = 'n', long, aliases = ["n-predict", "LLAMA_ARG_N_PREDICT"], value_name = "N")]
    #[arg(default_value_t = -1, value_parser = numbers::from(-1), allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub predict: i64,

    /// Whether the model reasons before it answers: on, off or auto
    ///
    /// On and auto: the chat template is rendered with reasoning. Off: it is rendered without, and
    /// an empty block of reasoning is added if it has none.
    #[arg(long, alias = "-rea", value_name = "MODE", default_value = "auto")]
    #[arg(hide_possible_values = true)]
    pub reasoning: Reasoning,

    /// Maximum tokens of reasoning, unless a request gives it [default: no limit]
    ///
    /// Then the model's marker for the end of reasoning is inserted, and the answer follows. 0:
    /// reasoning stops at once.
    #[arg(long, value_name = "N", default_value_t = -1, value_parser = numbers::from(-1))]
    #[arg(allow_negative_numbers = true, hide_default_value = true)]
    pub reasoning_budget: i64,

    /// When the context is full, evict old tokens
    ///
    /// Otherwise an answer stops when the context is full.
    #[arg(long, alias = "LLAMA_ARG_CONTEXT_SHIFT", overrides_with = "no_context_shift")]
    pub context_shift: bool,

    /// End the answer when the context is full (the default)
    #[arg(long, alias = "LLAMA_ARG_NO_CONTEXT_SHIFT", overrides_with = "context_shift")]
    #[arg(hide_short_help = true)]
    pub no_context_shift: bool,

    /// How embeddings of tokens become one of the text: none mean cls last rank
    ///
    /// By default as the model was trained, or else the mean. none: /embeddings returns the
    /// embeddings of all tokens. rank: /v1/rerank orders documents by their relevance to a query.
    #[arg(long, value_name = "POOLING")]
    pub pooling: Option<Pooling>,

    /// Rank documents at /v1/rerank: like --pooling rank [--rerank]
    #[arg(long, alias = "rerank", conflicts_with = "pooling")]
    pub reranking: bool,

    #[command(flatten)]
    pub template: TemplateArgs,
}

/// Whether a model reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reasoning {
    /// The default of the chat template.
    Auto,
    /// Reasoning is switched on in the chat template.
    On,
    /// Reasoning is switched off, even if the template starts it.
    Off,
}

impl ListenArgs {
    /// Returns the names of the model in alphabetical order.
    fn aliases(&self) -> Vec<String> {
        self.alias.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the keys of the command line and of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or the server would listen beyond this machine without a key.
    pub fn keys(&self) -> Result<Vec<String>, Error> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let lines = text::file(path)?;
            keys.extend(lines.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from));
        }
        keys.retain(|key| !key.is_empty());
        let given = !self.api_key.is_empty() || self.api_key_file.is_some();
        if given && keys.is_empty() {
            return Err(Error::usage("--api-key and --api-key-file contain no key"));
        }
        let public = self.host.iter().find(|host| !host.is_loopback());
        if let Some(host) = public.filter(|_| keys.is_empty() && !self.no_api_key) {
            return Err(Error::usage(format_args!(
                "--host {host}: others can reach this address: add --api-key KEY (or set \
                 ROPE_CPU_API_KEY=KEY), or add --no-api-key if all of them may use the server"
            )));
        }
        Ok(keys)
    }
}

impl ServeArgs {
    /// Returns the options of the server, for `slots` slots.
    ///
    /// # Errors
    /// If keys cannot be read or are missing, or the folder of saved slots does not exist.
    pub fn options(&self, slots: usize) -> Result<Options, Error> {
        let (listen, requests) = (&self.listen, &self.requests);
        if let Some(folder) = listen.slot_save_path.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Error::usage(format_args!(
                "--slot-save-path {}: not a folder",
                folder.display()
            )));
        }
        Ok(Options {
            keys: listen.keys()?,
            shares_cache: requests.share_cache,
            hosts: listen.allowed_hosts.clone(),
            origins: listen.cors_origins.clone(),
            slots,
            step_max: Duration::from_millis(requests.step_time),
            queue_max: requests.max_queue,
            timeout: Duration::from_secs(listen.timeout),
            keep_alive: u64::try_from(listen.sse_ping_interval)
                .ok()
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            body_max: listen.body_max.map(|mebibytes| mebibytes << 20),
            predict_max: usize::try_from(requests.predict).ok(),
            slot_folder: listen.slot_save_path.clone(),
            shows_slots: !listen.no_slots,
            shows_metrics: listen.metrics,
            shows_page: !listen.no_ui,
            aliases: listen.aliases(),
            tags: listen.tags.clone(),
            reasoning: requests.reasoning != Reasoning::Off,
            reasoning_max: usize::try_from(requests.reasoning_budget).ok(),
            verbose: listen.verbose,
            keeps_volatile: requests.keep_volatile,
            moves_volatile: requests.move_volatile,
            reasoning_format: listen.reasoning_format.clone(),
            skips_parsing: listen.skip_chat_parsing,
            normalization: listen.embd_normalize,
            logs_prompts: self.log.log_prompts,
        })
    }
}

/// Parses an address to listen on.
fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| "must be an IP address or localhost".into()),
    }
}

/// Parses the minimum tokens of a part that moves.
fn moved_min(text: &str) -> Result<usize, String> {
    match up_to_limit(text)? {
        tokens if tokens > 0 && tokens < MOVED_LEAST => {
            Err(format!("must be 0, or at least {MOVED_LEAST}"))
        }
        tokens => Ok(tokens),
    }
}
