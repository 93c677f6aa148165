//! The options of llama-bench that `bench` lacks; see [`super::llama_cli`].

use super::llama_cli::{
    Fate::{self, Missing},
    Value::{self, Any, No, OneOf},
    among,
};

/// The option of this name, if it is one of those.
pub fn find(name: &str) -> Option<(Value, Fate)> {
    among(OPTIONS, name)
}

const ATTENTION: Fate = Fate::Ignored("ignored, since rope-cpu has one kind of attention");

const OPTIONS: &[(&str, Value, Fate)] = &[
    ("-ngl --n-gpu-layers -ncmoe --n-cpu-moe -sm --split-mode -mg --main-gpu", Any, Fate::GPU),
    ("-dev --device -ts --tensor-split -ot --override-tensor -rpc --rpc", Any, Fate::GPU),
    ("-nkvo --no-kv-offload -nopo --no-op-offload --no-host", Any, Fate::GPU),
    ("-fitt --fit-target -fitc --fit-ctx", Any, Fate::GPU),
    //
    ("-fa --flash-attn", Any, ATTENTION),
    ("-mmp --mmap -dio --direct-io -lm --load-mode -lzm --lazy-mode", Any, Fate::MAPPED),
    ("--repack", Any, Fate::MAPPED),
    ("-C --cpu-mask --cpu-strict --numa --prio --poll", Any, Fate::SCHEDULED),
    ("-embd --embeddings", OneOf(&["0"]), Fate::ALWAYS),
    ("-v --verbose", No, Fate::LOG),
    //
    ("--list-devices", No, Missing("")),
];
