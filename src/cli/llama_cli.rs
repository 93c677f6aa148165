//! The options of llama-cli and llama-completion that rope-cpu does not have. Those that do not change
//! results are ignored with a note; the others are rejected by name.

use indexmap::{IndexMap, IndexSet};

/// The treatment of such an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The option is ignored, with a note that begins with this text. Results are the same without it.
    Ignored(&'static str),
    /// The option is rejected, with this hint on what to do instead, which may be empty. The
    /// environment variable of the option, which other programs share, is ignored with a note.
    Unsupported(&'static str),
}

impl Treatment {
    /// The option is about GPUs.
    pub const GPU: Self = Self::Ignored("ignored, since rope-cpu runs on the CPU only");
    /// The option selects what rope-cpu always does.
    pub const ALWAYS: Self = Self::Ignored("ignored, since this is always the case in rope-cpu");
    /// The option selects how weights are loaded.
    pub const MAPPED: Self =
        Self::Ignored("ignored, since rope-cpu maps weights and uses them as they are stored");
    /// The option sets the processors or priorities of threads.
    pub const SCHEDULED: Self =
        Self::Ignored("ignored, since the operating system schedules the threads of rope-cpu");
    /// The option is about a log.
    pub const LOG: Self = Self::Ignored("ignored, since rope-cpu writes no log");
}

/// The values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    No,
    /// Any value.
    Any,
    /// One of these values; the option is rejected with another one.
    OneOf(&'static [&'static str]),
    /// One of these values, or none.
    Optional(&'static [&'static str]),
}

use Treatment::Unsupported;
use Value::{Any, No, OneOf, Optional};

/// Returns the values and the treatment of an option, if it is listed here.
pub fn find(name: &str) -> Option<(Value, Treatment)> {
    find_in(OPTIONS, name)
}

/// Returns the values and the treatment of an option in `options`: names separated by spaces, values,
/// treatment. The value of a rejected option is not read.
pub fn find_in(options: &[(&str, Value, Treatment)], name: &str) -> Option<(Value, Treatment)> {
    options
        .iter()
        .find(|(names, ..)| names.split_whitespace().any(|n| n == name))
        .map(|&(_, value, treatment)| (value, treatment))
}

/// Returns one note for each reason for which options were ignored.
pub fn notes(left_out: &[(String, Treatment)]) -> Vec<String> {
    let mut reasons: IndexMap<_, IndexSet<&str>> = IndexMap::new();
    for (name, treatment) in left_out {
        let reason = match treatment {
            Treatment::Ignored(reason) => *reason,
            Unsupported(_) => "ignored, since rope-cpu does not support them",
        };
        reasons.entry(reason).or_default().insert(name);
    }
    let sentence = |(reason, names): (_, IndexSet<_>)| {
        format!("{reason}: {}", names.into_iter().collect::<Vec<_>>().join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

const DOWNLOAD: &str = "-hf downloads models, or give a file with -m";
const MEDIA: &str = "models read text only, no images, sounds or videos";
const GPU: Treatment = Treatment::GPU;
const ALWAYS: Treatment = Treatment::ALWAYS;
const MAPPED: Treatment = Treatment::MAPPED;
const SCHEDULED: Treatment = Treatment::SCHEDULED;
const LOG: Treatment = Treatment::LOG;
const THREADS: Treatment =
    Treatment::Ignored("ignored, since -t sets the threads for both prompts and answers");
const CACHE: Treatment =
    Treatment::Ignored("ignored, since the KV cache of rope-cpu has another layout");
const DRAFTS: Treatment =
    Treatment::Ignored("ignored, since the number of drafts follows from their success");
const DRAFT_THREADS: Treatment =
    Treatment::Ignored("ignored, since -t sets the threads of the draft model, too");
const WARM_UP: Treatment = Treatment::Ignored("ignored, since only bench and sweep have a warm-up");
const TERMINAL: Treatment = Treatment::Ignored("ignored, since rope-cpu detects terminals");

const OPTIONS: &[(&str, Value, Treatment)] = &[
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
    ("-mu --model-url -dr --docker-repo", No, Unsupported(DOWNLOAD)),
    ("--gpt-oss-20b-default --gpt-oss-120b-default", No, Unsupported(DOWNLOAD)),
    ("--vision-gemma-4b-default --vision-gemma-12b-default", No, Unsupported(DOWNLOAD)),
    ("-cl --cache-list --server-base --license --completion-bash", No, Unsupported("")),
    ("--list-devices --check-tensors --perf", No, Unsupported("")),
    ("--control-vector --control-vector-scaled", No, Unsupported("")),
    ("--control-vector-layer-range", No, Unsupported("")),
    ("-bf --binary-file", No, Unsupported("-f reads text")),
    ("-i --interactive -if --interactive-first", No, Unsupported("-cnv starts a conversation")),
    ("--in-prefix --in-suffix --in-prefix-bos", No, Unsupported("")),
    ("-mli --multiline-input", No, Unsupported("end a line with \\ to continue it")),
    ("-ptc --print-token-count -o --output --output-file", No, Unsupported("")),
    ("--no-jinja --skip-chat-parsing", No, Unsupported("")),
    ("--no-skip-chat-parsing --reasoning-format -rea --reasoning", No, Unsupported("")),
    ("--reasoning-effort --reasoning-budget --reasoning-budget-message", No, Unsupported("")),
    ("--reasoning-preserve --no-reasoning-preserve", No, Unsupported("")),
    ("-bs --backend-sampling --adaptive-target --adaptive-decay", No, Unsupported("")),
    ("-mm --mmproj -mmu --mmproj-url --mmproj-auto -mmdev", No, Unsupported(MEDIA)),
    ("--mmproj-device --image --audio --video --image-min-tokens", No, Unsupported(MEDIA)),
    ("--image-max-tokens", No, Unsupported(MEDIA)),
    ("--spec-draft-n-min --draft-min --draft-n-min", Any, DRAFTS),
    ("--spec-draft-p-min --draft-p-min --spec-draft-p-split --draft-p-split", Any, DRAFTS),
    ("--spec-ngram-simple-size-n --spec-ngram-simple-size-m", Any, DRAFTS),
    ("--spec-ngram-simple-min-hits --spec-ngram-map-k-size-n", Any, DRAFTS),
    ("--spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits", Any, DRAFTS),
    ("--spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m", Any, DRAFTS),
    ("--spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-match", Any, DRAFTS),
    ("--spec-ngram-mod-n-min --spec-ngram-mod-n-max", Any, DRAFTS),
    ("-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft", Any, DRAFT_THREADS),
    ("--spec-draft-threads-batch", Any, DRAFT_THREADS),
    ("-devd --device-draft --spec-draft-device -ngld --gpu-layers-draft", Any, GPU),
    ("--n-gpu-layers-draft --spec-draft-ngl", Any, GPU),
    ("--spec-draft-sampling", OneOf(&["greedy"]), ALWAYS),
    ("-hfd -hfrd --hf-repo-draft --spec-draft-hf", No, Unsupported("give a file with -md")),
    ("--spec-default", No, Unsupported("--spec-type ngram-simple is similar")),
    ("--spec-synth-len --spec-synth-rates", No, Unsupported("")),
    //
    ("--hellaswag --hellaswag-tasks --winogrande --winogrande-tasks", No, Unsupported("")),
    ("--multiple-choice --multiple-choice-tasks", No, Unsupported("")),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_is_listed_once() {
        let mut seen = HashSet::new();
        for name in OPTIONS.iter().flat_map(|(names, ..)| names.split_whitespace()) {
            assert!(name.starts_with('-') && seen.insert(name), "{name}");
        }
    }

    #[test]
    fn names_are_found_whole() {
        assert_eq!(find("-ngl"), Some((Any, GPU)));
        assert_eq!(find("-ng"), None);
        assert_eq!(find("--image"), Some((No, Unsupported(MEDIA))));
    }
}
