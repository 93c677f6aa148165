//! The options of llama-cli and llama-completion that rope-cpu lacks, so that a command line
//! made for them either runs or says exactly what stands in its way.

use std::collections::HashSet;

/// What becomes of such an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is about a GPU: left out, with a note.
    Gpu,
    /// It asks for what rope-cpu does in any case: left out, with a note.
    Always,
    /// It tunes what rope-cpu does in its own way: left out, with a note.
    NoEffect,
    /// It is refused, with what to do instead, if there is something. A variable that stands for it,
    /// which other programs share, is left out, with a note.
    Missing(&'static str),
}

/// The value that follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// None.
    No,
    /// Any.
    Any,
    /// One of these; with another one the option is refused.
    OneOf(&'static [&'static str]),
    /// One of these may follow, or none.
    Optional(&'static [&'static str]),
}

use Fate::{Always, Gpu, Missing, NoEffect};
use Value::{Any, No, OneOf, Optional};

/// The option of this name, if it is one of those.
pub fn find(name: &str) -> Option<(Value, Fate)> {
    among(OPTIONS, name)
}

/// The option of this name among `options`: names separated by spaces, the value, and the fate.
/// The value of a refused option is not read.
pub fn among(options: &[(&str, Value, Fate)], name: &str) -> Option<(Value, Fate)> {
    options
        .iter()
        .find(|(names, ..)| names.split_whitespace().any(|n| n == name))
        .map(|&(_, value, fate)| (value, fate))
}

/// What the user should know of options that were left out: a sentence for each fate.
pub fn notes(left_out: &[(String, Fate)]) -> Vec<String> {
    let reason = |fate| match fate {
        Gpu => "ignored, since rope-cpu runs on the CPU alone",
        Always => "without effect, since always so in rope-cpu",
        NoEffect => "without effect in rope-cpu",
        Missing(_) => "ignored, since rope-cpu does not have these (yet)",
    };
    let mut notes = Vec::new();
    for reason_now in [Gpu, Always, NoEffect, Missing("")].map(reason) {
        let of_it = left_out.iter().filter(|(_, fate)| reason(*fate) == reason_now);
        let mut seen = HashSet::new();
        let names: Vec<_> =
            of_it.map(|(name, _)| &name[..]).filter(|name| seen.insert(*name)).collect();
        if !names.is_empty() {
            notes.push(format!("{reason_now}: {}", names.join(", ")));
        }
    }
    notes
}

const DOWNLOAD: &str = "-hf fetches models, or download the file and give it with -m";
const THREADS: &str = "-t sets the threads for everything";

const OPTIONS: &[(&str, Value, Fate)] = &[
    ("-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split", Any, Gpu),
    ("-mg --main-gpu -dev --device -ot --override-tensor -ncmoe --n-cpu-moe", Any, Gpu),
    ("-fit --fit -fitt --fit-target -fitc --fit-ctx --rpc", Any, Gpu),
    ("-cmoe --cpu-moe -kvo --kv-offload -nkvo --no-kv-offload --no-host", No, Gpu),
    ("--op-offload --no-op-offload", No, Gpu),
    //
    ("--mmap --jinja -nr --no-repack --no-warmup", No, Always),
    ("--no-perf", No, Always),
    ("-fa --flash-attn", Optional(&["on", "auto", "1"]), Always),
    ("-np --parallel", OneOf(&["1"]), Always),
    ("-lm --load-mode", OneOf(&["auto", "mmap"]), Always),
    //
    ("-mu --model-url -dr --docker-repo", No, Missing(DOWNLOAD)),
    ("--gpt-oss-20b-default --gpt-oss-120b-default", No, Missing(DOWNLOAD)),
    ("--vision-gemma-4b-default --vision-gemma-12b-default", No, Missing(DOWNLOAD)),
    ("-cl --cache-list --server-base --license --completion-bash", No, Missing("")),
    ("-tb --threads-batch", No, Missing(THREADS)),
    ("-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa", No, Missing("")),
    ("-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch", No, Missing("")),
    ("--prio-batch --poll-batch --list-devices --warmup", No, Missing("")),
    ("--no-mmap --mlock -dio --direct-io -ndio --no-direct-io --repack", No, Missing("")),
    ("--swa-full -dt --defrag-thold --check-tensors --perf", No, Missing("")),
    ("-cram --cache-ram -ctxcp --ctx-checkpoints --swa-checkpoints", No, Missing("")),
    ("--control-vector --control-vector-scaled", No, Missing("")),
    ("--control-vector-layer-range", No, Missing("")),
    ("-bf --binary-file", No, Missing("-f reads text")),
    ("-i --interactive -if --interactive-first", No, Missing("-cnv converses")),
    ("--in-prefix --in-suffix --in-prefix-bos", No, Missing("")),
    ("-mli --multiline-input", No, Missing("end a line with \\ to go on typing")),
    ("--simple-io -ptc --print-token-count -o --output --output-file", No, Missing("")),
    ("--no-jinja --skip-chat-parsing", No, Missing("")),
    ("--no-skip-chat-parsing --reasoning-format -rea --reasoning", No, Missing("")),
    ("--reasoning-effort --reasoning-budget --reasoning-budget-message", No, Missing("")),
    ("--reasoning-preserve --no-reasoning-preserve", No, Missing("")),
    ("-bs --backend-sampling --adaptive-target --adaptive-decay", No, Missing("")),
    ("--grammar --grammar-file -j --json-schema", No, Missing("")),
    ("-jf --json-schema-file", No, Missing("")),
    ("--log-disable --log-file --log-colors --log-prefix --no-log-prefix", No, Missing("")),
    ("--log-timestamps --no-log-timestamps --log-prompts-dir", No, Missing("")),
    ("-v --verbose --log-verbose -lv --verbosity --log-verbosity", No, Missing("")),
    ("-mm --mmproj -mmu --mmproj-url --mmproj-auto --no-mmproj", No, Missing("")),
    ("--no-mmproj-auto --mmproj-offload --no-mmproj-offload -mmdev", No, Missing("")),
    ("--mmproj-device --image --audio --video --image-min-tokens", No, Missing("")),
    ("--image-max-tokens", No, Missing("")),
    ("-md --model-draft --draft --draft-n --draft-max --draft-min", No, Missing("")),
    ("--draft-n-min --draft-p-min --draft-p-split --spec-type --spec-default", No, Missing("")),
    ("-hfd -hfrd --hf-repo-draft -td --threads-draft -tbd", No, Missing("")),
    ("--threads-batch-draft -ctkd --cache-type-k-draft -ctvd", No, Missing("")),
    ("--cache-type-v-draft -devd --device-draft -ngld --gpu-layers-draft", No, Missing("")),
    ("--n-gpu-layers-draft", No, Missing("")),
    //
    ("--hellaswag --hellaswag-tasks --winogrande --winogrande-tasks", No, Missing("")),
    ("--multiple-choice --multiple-choice-tasks", No, Missing("")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once() {
        let mut seen = HashSet::new();
        for name in OPTIONS.iter().flat_map(|(names, ..)| names.split_whitespace()) {
            assert!(name.starts_with('-') && seen.insert(name), "{name}");
        }
    }

    #[test]
    fn names_are_found_whole() {
        assert_eq!(find("-ngl"), Some((Any, Gpu)));
        assert_eq!(find("-ng"), None);
        assert_eq!(find("--grammar"), Some((No, Missing(""))));
    }
}
