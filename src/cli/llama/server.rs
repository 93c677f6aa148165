//! The options of llama-server that `serve` does not have, besides llama-cli's.

use super::{
    Entry,
    Treatment::{self, Ignored, Unsupported},
    Value::{Any, No, Optional},
};

const ALWAYS: Treatment = Treatment::ALWAYS;
const REUSE: Treatment =
    Ignored("ignored, since rope-cpu continues the longest prefix of all slots");
const LOG: Treatment = Ignored("ignored, since lines of the log start with the time and the level");
const COLORS: Treatment = Ignored("ignored, since rope-cpu detects terminals");
const ONE: &str = "a server has one model";
const PAGE: &str = "the web page has no such setting";

const TEMPLATES: Treatment =
    Ignored("ignored, since rope-cpu renders every chat template as Jinja; the same text");
const BATCHED: Treatment =
    Ignored("ignored, since answers are always batched; each is the same as alone");
const CHECKED: Treatment = Ignored(
    "ignored, since rope-cpu checks values while it computes; inspect --verify checks a file",
);
const PROPS: Treatment = Ignored("ignored, since POST /props changes nothing");
const LOOKUPS: Treatment = Ignored("ignored, since drafts come from the conversation alone");
const PROMPT_LOG: Treatment = Ignored("ignored, since --log-prompts writes prompts to the log");

pub const OPTIONS: &[Entry] = &[
    ("-cb --cont-batching --embedding --embeddings --cache-prompt", No, ALWAYS),
    ("--prefill-assistant", No, ALWAYS),
    ("--cache-idle-slots --no-cache-idle-slots", No, REUSE),
    ("-sps --slot-prompt-similarity -cms --checkpoint-min-step", Any, REUSE),
    ("--threads-http", Any, Ignored("ignored, since threads are not bound to connections")),
    ("--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", No, LOG),
    ("--log-colors", Optional(&["on", "off", "auto"]), COLORS),
    ("--no-jinja", No, TEMPLATES),
    ("-nocb --no-cont-batching", No, BATCHED),
    ("--check-tensors", No, CHECKED),
    ("--props", No, PROPS),
    ("-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", Any, LOOKUPS),
    ("--verbose-prompt", No, PROMPT_LOG),
    //
    ("--log-prompts-dir", Any, Unsupported("--log-prompts writes prompts to the log")),
    ("--no-prefill-assistant", No, Unsupported("")),
    ("--no-cache-prompt", No, Unsupported("give \"cache_prompt\": false in requests")),
    ("--sleep-idle-seconds --media-path", Any, Unsupported("")),
    ("--spm-infill", No, Unsupported("")),
    ("--ssl-key-file --ssl-cert-file --api-prefix", Any, Unsupported("use a proxy")),
    ("--path --ui-config --ui-config-file --ui-mcp-proxy --tools", Any, Unsupported(PAGE)),
    ("--tools-runtime --mcp-servers-config --mcp-servers-json", Any, Unsupported(PAGE)),
    ("--models-max", Any, Unsupported(ONE)),
    ("--models-autoload --no-models-autoload", No, Unsupported(ONE)),
];
