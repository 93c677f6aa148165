//! The options of llama-bench that `bench` does not have.

use super::{
    Entry,
    Treatment::{self, Unsupported},
    Value::{Any, No, OneOf},
};

const ATTENTION: Treatment =
    Treatment::Ignored("ignored, since rope-cpu has only one kind of attention");

pub const OPTIONS: &[Entry] = &[
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
