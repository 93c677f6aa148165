//! The options of llama-cli and llama-completion that rope-cpu does not have.

use super::{
    Entry,
    Treatment::{self, Unsupported},
    Value::{Any, No, OneOf, Optional},
};

const DOWNLOAD: &str = "-hf downloads models, or give a file with -m";
const MEDIA: &str = "models read text only, no images, sounds or videos";
const GPU: Treatment = Treatment::GPU;
const ALWAYS: Treatment = Treatment::ALWAYS;
const MAPPED: Treatment = Treatment::MAPPED;
const SCHEDULED: Treatment = Treatment::SCHEDULED;
const LOG: Treatment = Treatment::LOG;
const CACHE: Treatment =
    Treatment::Ignored("ignored, since the KV cache of rope-cpu has another layout");
const DRAFTS: Treatment =
    Treatment::Ignored("ignored, since the number of drafts follows from their success");
const DRAFT_THREADS: Treatment =
    Treatment::Ignored("ignored, since -t also sets the threads of the draft model");
const WARM_UP: Treatment = Treatment::Ignored("ignored, since only bench and sweep have a warm-up");
const TERMINAL: Treatment = Treatment::Ignored("ignored, since rope-cpu detects terminals");

pub const OPTIONS: &[Entry] = &[
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
