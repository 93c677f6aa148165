//! The options of llama-bench that `bench` lacks; see [`super::llama_cli`].

use super::llama_cli::{
    Fate::{self, Gpu, Missing, NoEffect},
    Value::{self, Any, No, OneOf},
    among,
};

/// The option of this name, if it is one of those.
pub fn find(name: &str) -> Option<(Value, Fate)> {
    among(OPTIONS, name)
}

const OPTIONS: &[(&str, Value, Fate)] = &[
    ("-ngl --n-gpu-layers -ncmoe --n-cpu-moe -sm --split-mode -mg --main-gpu", Any, Gpu),
    ("-dev --device -ts --tensor-split -ot --override-tensor -rpc --rpc", Any, Gpu),
    ("-nkvo --no-kv-offload -nopo --no-op-offload --no-host", Any, Gpu),
    ("-fitt --fit-target -fitc --fit-ctx", Any, Gpu),
    //
    ("-fa --flash-attn -mmp --mmap -dio --direct-io -lm --load-mode", Any, NoEffect),
    ("-lzm --lazy-mode --repack --numa --prio --poll", Any, NoEffect),
    ("-C --cpu-mask --cpu-strict", Any, NoEffect),
    ("-embd --embeddings", OneOf(&["0"]), NoEffect),
    ("-v --verbose", No, NoEffect),
    //
    ("--list-devices", No, Missing("")),
];
