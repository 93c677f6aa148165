//! The options of llama-bench that `bench` does not have; see [`super::llama_cli`].

use super::llama_cli::{
    Treatment::{self, Unsupported},
    Value::{self, Any, No, OneOf},
    find_in,
};

/// Returns the values and the treatment of an option, if it is listed here.
pub fn find(name: &str) -> Option<(Value, Treatment)> {
    find_in(OPTIONS, name)
}

const ATTENTION: Treatment =
    Treatment::Ignored("ignored, since rope-cpu has only one kind of attention");

const OPTIONS: &[(&str, Value, Treatment)] = &[
    ("-ngl --n-gpu-layers -ncmoe --n-cpu-moe -sm --split-mode -mg --main-gpu", Any, Treatment::GPU),
    ("-dev --device -ts --tensor-split -ot --override-tensor -rpc --rpc", Any, Treatment::GPU),
    ("-nkvo --no-kv-offload -nopo --no-op-offload --no-host", Any, Treatment::GPU),
    ("-fitt --fit-target -fitc --fit-ctx", Any, Treatment::GPU),
    //
    ("-fa --flash-attn", Any, ATTENTION),
    ("-mmp --mmap -dio --direct-io -lm --load-mode -lzm --lazy-mode", Any, Treatment::MAPPED),
    ("--repack", Any, Treatment::MAPPED),
    ("-C --cpu-mask --cpu-strict --numa --prio --poll", Any, Treatment::SCHEDULED),
    ("-embd --embeddings", OneOf(&["0"]), Treatment::ALWAYS),
    ("-v --verbose", No, Treatment::LOG),
    //
    ("--list-devices", No, Unsupported("")),
];
