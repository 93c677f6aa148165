//! The options of llama-cli and llama-completion that rope-cpu lacks, so that a command line
//! made for them either runs or says exactly what stands in its way.

use indexmap::{IndexMap, IndexSet};

/// What becomes of such an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is left out, with a note that begins with this reason. Results are the same without it.
    Ignored(&'static str),
    /// It is refused, with what to do instead, if there is something. A variable that stands for it,
    /// which other programs share, is left out, with a note.
    Missing(&'static str),
}

impl Fate {
    /// It is about a GPU.
    pub const GPU: Self = Self::Ignored("ignored, since rope-cpu runs on the CPU alone");
    /// It asks for what rope-cpu does in any case.
    pub const ALWAYS: Self = Self::Ignored("without effect, since always so in rope-cpu");
    /// It chooses how weights come into memory.
    pub const MAPPED: Self =
        Self::Ignored("ignored, since rope-cpu maps weights and uses them as they are stored");
    /// It places threads on processors, or ranks them.
    pub const SCHEDULED: Self =
        Self::Ignored("ignored, since rope-cpu leaves its threads to the system's scheduler");
    /// It is about a log.
    pub const LOG: Self = Self::Ignored("ignored, since rope-cpu writes no log");
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

use Fate::Missing;
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

/// What the user should know of options that were left out: a sentence for each reason.
pub fn notes(left_out: &[(String, Fate)]) -> Vec<String> {
    let mut reasons: IndexMap<_, IndexSet<&str>> = IndexMap::new();
    for (name, fate) in left_out {
        let reason = match fate {
            Fate::Ignored(reason) => *reason,
            Missing(_) => "ignored, since rope-cpu does not have these (yet)",
        };
        reasons.entry(reason).or_default().insert(name);
    }
    let sentence = |(reason, names): (_, IndexSet<_>)| {
        format!("{reason}: {}", names.into_iter().collect::<Vec<_>>().join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

const DOWNLOAD: &str = "-hf fetches models, or download the file and give it with -m";
const GPU: Fate = Fate::GPU;
const ALWAYS: Fate = Fate::ALWAYS;
const MAPPED: Fate = Fate::MAPPED;
const SCHEDULED: Fate = Fate::SCHEDULED;
const LOG: Fate = Fate::LOG;
const THREADS: Fate =
    Fate::Ignored("ignored, since -t sets the threads of prompts and answers alike");
const CACHE: Fate = Fate::Ignored("ignored, since rope-cpu has its own layout of keys and values");
const WARM_UP: Fate = Fate::Ignored("ignored, since rope-cpu warms up only where it measures");
const TERMINAL: Fate = Fate::Ignored("ignored, since rope-cpu sees whether it is on a terminal");

const OPTIONS: &[(&str, Value, Fate)] = &[
    ("-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split", Any, GPU),
    ("-mg --main-gpu -dev --device -ot --override-tensor -ncmoe --n-cpu-moe", Any, GPU),
    ("-fit --fit -fitt --fit-target -fitc --fit-ctx --rpc", Any, GPU),
    ("-cmoe --cpu-moe -kvo --kv-offload -nkvo --no-kv-offload --no-host", No, GPU),
    ("--op-offload --no-op-offload --mmproj-offload --no-mmproj-offload", No, GPU),
    //
    ("--jinja --no-warmup --no-perf --no-mmproj --no-mmproj-auto", No, ALWAYS),
    ("--mmap -nr --no-repack", No, ALWAYS),
    ("-fa --flash-attn", Optional(&["on", "auto", "1"]), ALWAYS),
    ("-np --parallel", OneOf(&["1"]), ALWAYS),
    //
    ("--no-mmap --mlock -dio --direct-io -ndio --no-direct-io --repack", No, MAPPED),
    ("-lm --load-mode", Any, MAPPED),
    ("-tb --threads-batch", Any, THREADS),
    ("-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa", Any, SCHEDULED),
    ("-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch", Any, SCHEDULED),
    ("--prio-batch --poll-batch", Any, SCHEDULED),
    ("--swa-full -kvu --kv-unified -no-kvu --no-kv-unified", No, CACHE),
    ("-dt --defrag-thold -cram --cache-ram", Any, CACHE),
    ("-ctxcp --ctx-checkpoints --swa-checkpoints", Any, CACHE),
    ("--log-disable --log-prefix --no-log-prefix --log-timestamps", No, LOG),
    ("--no-log-timestamps -v --verbose --log-verbose", No, LOG),
    ("--log-file --log-prompts-dir -lv --verbosity --log-verbosity", Any, LOG),
    ("--log-colors", Optional(&["on", "off", "auto"]), LOG),
    ("--warmup", No, WARM_UP),
    ("--simple-io", No, TERMINAL),
    //
    ("-mu --model-url -dr --docker-repo", No, Missing(DOWNLOAD)),
    ("--gpt-oss-20b-default --gpt-oss-120b-default", No, Missing(DOWNLOAD)),
    ("--vision-gemma-4b-default --vision-gemma-12b-default", No, Missing(DOWNLOAD)),
    ("-cl --cache-list --server-base --license --completion-bash", No, Missing("")),
    ("--list-devices --check-tensors --perf", No, Missing("")),
    ("--control-vector --control-vector-scaled", No, Missing("")),
    ("--control-vector-layer-range", No, Missing("")),
    ("-bf --binary-file", No, Missing("-f reads text")),
    ("-i --interactive -if --interactive-first", No, Missing("-cnv converses")),
    ("--in-prefix --in-suffix --in-prefix-bos", No, Missing("")),
    ("-mli --multiline-input", No, Missing("end a line with \\ to go on typing")),
    ("-ptc --print-token-count -o --output --output-file", No, Missing("")),
    ("--no-jinja --skip-chat-parsing", No, Missing("")),
    ("--no-skip-chat-parsing --reasoning-format -rea --reasoning", No, Missing("")),
    ("--reasoning-effort --reasoning-budget --reasoning-budget-message", No, Missing("")),
    ("--reasoning-preserve --no-reasoning-preserve", No, Missing("")),
    ("-bs --backend-sampling --adaptive-target --adaptive-decay", No, Missing("")),
    ("--grammar --grammar-file -j --json-schema", No, Missing("")),
    ("-jf --json-schema-file", No, Missing("")),
    ("-mm --mmproj -mmu --mmproj-url --mmproj-auto -mmdev", No, Missing("")),
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
    use std::collections::HashSet;

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
        assert_eq!(find("-ngl"), Some((Any, GPU)));
        assert_eq!(find("-ng"), None);
        assert_eq!(find("--grammar"), Some((No, Missing(""))));
    }
}
