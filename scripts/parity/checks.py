"""What "correct" means here, as twelve checks of whole models: against llama.cpp, and against the reference or itself where
llama.cpp can't do it.

Each takes `ours` (rope-cpu, or what stands in for it in a self-test) and a report. The bounds and
where they come from stand beside each check.
"""
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from files import FORMATS, QUANTIZED, ROOT, WORK, f32_toy, f32_twin, toy, weights, without_qk_norm, without_window
from llama import FILE_TYPES, Model, Rope, quantize
from measure import SPAN, as_saved, distance
from reference import Model as Reference

TEXT = (ROOT / "tests/data/jargon.txt").read_text()
# Of two programs that compute the same in f32: rounding alone. The reference and llama.cpp differ by up to
# 3e-11 and 1.1e-4 on SmolLM2 without drift or tables; llama.cpp's own two attention paths by 1e-6 and 3e-2.
MEAN_KL, DIFFERENCE = 1e-8, 1e-3
# What llama.cpp's GELU, through a table of f16 values, does to Gemma 3: over 256 tokens at most 4.2e-7 and 1.9e-2.
TABLE_MEAN_KL, TABLE_DIFFERENCE = 1e-6, 2e-2


def settings(base):
    return {
        "no scaling": Rope(),
        "linear 0.25": Rope(rope_scaling="linear", rope_freq_scale=0.25),
        "NTK, base x 8": Rope(rope_freq_base=8 * base),
        "YaRN x 4": Rope(rope_scaling="yarn", rope_freq_scale=0.25),
    }


def exact_weights(ours, report):
    """1. Every scaling rule, 256 tokens, on the F32 twins with an f32 cache. Of Gemma 3, with its vocabulary of 262,144, the
    last 64.

    llama.cpp's GELU reads a table of f16 values, which only Gemma 3 meets. So there ours is held to the reference,
    whose GELU is exact, and to llama.cpp only within twice what the table does: that is measured here too,
    by the reference with and without the table.
    """
    for name in QUANTIZED:
        path = f32_twin(name)
        reference = Reference(path)
        with Model(path) as llama:
            tokens = llama.tokenize(TEXT)[:256]
            last = 64 if reference.gemma else 256
            for rule, rope in settings(reference.rope_base).items():
                theirs = llama.logits(tokens, rope, last)
                mine = ours.logits(path, tokens, rope, last)
                if not reference.gemma:
                    compared(report, f"1 {name}, {rule}", theirs, mine, (MEAN_KL, DIFFERENCE))
                    continue
                exact = reference.logits(tokens, rope, last)
                table = distance(exact, reference.logits(tokens, rope, last, like_llama_cpp=True))
                compared(report, f"1 {name}, {rule}, from the reference", exact, mine, (MEAN_KL, DIFFERENCE))
                compared(report, f"1 {name}, {rule}", theirs, mine, (2 * table.mean_kl, 2 * table.diff_999))


# The effect of llama.cpp's drifting angles on the last 256 of 9,000 tokens under YaRN x 4. It is the difference of
# the reference with exact angles and with ggml's: `scripts/parity --measure-drift` prints it (ten minutes).
DRIFT_MEAN_KL, DRIFT_DIFFERENCE = 2.3e-8, 3.0e-3
LONG = 9000


def long_context(ours, report):
    """2. Where RoPE shows: past the trained context, past the window, over many micro-batches.

    llama.cpp multiplies its angles up in f32, so that they drift with the position; the allowance for that
    is twice what the reference says. The controls switch a feature off in ours: a check that
    can't see them is worth nothing.
    """
    path = f32_twin("smollm2")
    yarn = Rope(rope_scaling="yarn", rope_freq_scale=0.25)
    bound = (MEAN_KL + 2 * DRIFT_MEAN_KL, DIFFERENCE + 2 * DRIFT_DIFFERENCE)
    with Model(path) as llama:
        tokens = llama.tokenize(TEXT)[:LONG]
        theirs = llama.logits(tokens, yarn, last=256)
        theirs_short = llama.logits(tokens[:1024], yarn, last=256)
    compared(report, "2 smollm2, 9,000 tokens, YaRN x 4", theirs, ours.logits(path, tokens, yarn, last=256), bound)
    mine = ours.logits(path, tokens[:1024], last=256)
    control(report, "2 smollm2 without scaling, 1,024 tokens", theirs_short, mine, bound)

    path = f32_twin("gemma3")
    bound = (2 * TABLE_MEAN_KL, 2 * TABLE_DIFFERENCE)
    with Model(path) as llama:
        tokens = llama.tokenize(TEXT)[:1024]  # twice the window
        theirs = llama.logits(tokens, last=64)
    compared(report, "2 gemma3, 1,024 tokens", theirs, ours.logits(path, tokens, last=64), bound)
    for label, changed in ("window", without_window), ("QK-norm", without_qk_norm):
        mine = ours.logits(changed("gemma3"), tokens, last=64)
        control(report, f"2 gemma3 without {label}", theirs, mine, bound)


def measure_drift():
    reference = Reference(f32_twin("smollm2"))
    with Model(f32_twin("smollm2")) as llama:
        tokens = llama.tokenize(TEXT)[:LONG]
    yarn = Rope(rope_scaling="yarn", rope_freq_scale=0.25)
    print(distance(reference.logits(tokens, yarn, 256), reference.logits(tokens, yarn, 256, like_llama_cpp=True)))


def compared(report, label, theirs, mine, bound):
    found = distance(theirs, mine)
    report.at_most(f"{label}: mean KL", found.mean_kl, bound[0])
    report.at_most(f"{label}: 99.9 % of logit differences", found.diff_999, bound[1])


def control(report, label, theirs, mine, bound):
    found = distance(theirs, mine)
    report.at_least(f"{label}: mean KL, 100 x the bound", found.mean_kl, 100 * bound[0])
    report.at_least(f"{label}: 99.9 % of logit differences, 100 x the bound", found.diff_999, 100 * bound[1])


CHUNKS = {"smollm2": 8, "gemma3": 2}  # of 1,024 tokens; fewer where the vocabulary is 262,144


def quantized_weights(ours, report):
    """3. The file as it is, f16 cache: no further from the exact model than llama.cpp is, plus a tenth. Of each chunk the
    second half counts, which has the longer context.
    """
    for name, chunks in CHUNKS.items():
        their_kl, my_kl, their_top, my_top = [], [], [], []
        with Model(f32_twin(name)) as exact, Model(QUANTIZED[name]) as llama:
            tokens = exact.tokenize(TEXT)
            for chunk in np.array(tokens[:1024 * chunks]).reshape(chunks, 1024).tolist():
                truth = exact.logits(chunk, last=512)
                theirs = distance(truth, llama.logits(chunk, last=512, cache_type="f16", flash_attention=True))
                mine = distance(truth, ours.logits(QUANTIZED[name], chunk, last=512, cache_type="f16"))
                their_kl.append(theirs.mean_kl), my_kl.append(mine.mean_kl)
                their_top.append(theirs.same_top), my_top.append(mine.same_top)
        print(f"       3 {name}, {512 * chunks} tokens: mean KL from F32 {np.mean(my_kl):.2e} (llama.cpp"
              f" {np.mean(their_kl):.2e}), same top {np.mean(my_top):.1%} (llama.cpp {np.mean(their_top):.1%})")
        report.at_most(f"3 {name}, quantized, f16 cache: mean KL from F32", np.mean(my_kl), 1.1 * np.mean(their_kl))


PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "To bake a loaf of bread, first",
    "def fibonacci(n):\n",
    "The three laws of motion are",
    "Dear Sir or Madam,\n\nI am writing to",
    "A list of the planets, from the Sun outwards:\n1.",
    "In 1969, for the first time,",
    "Q: What is the difference between a virus and a bacterium?\nA:",
    "The old clock in the hall struck midnight, and",
]
GAP = {"smollm2": 0.03, "gemma3": 0.2}  # ten times and more what check 1 allows, so that rounding can't decide


def greedy_text(ours, report):
    """4. 64 tokens, each the most probable: the same text for as long as llama.cpp is sure of its choice.

    Given our text, llama.cpp says in one pass what it would have chosen after each of its tokens; where
    its two best logits lie closer together than the gap, either is right, and the texts may part.
    """
    for name in QUANTIZED:
        path, compared, wrong = f32_twin(name), 0, 0
        with Model(path) as llama:
            for prompt in PROMPTS:
                tokens = llama.tokenize(prompt)
                text = ours.greedy(path, tokens, 64)
                assert len(text) == 64, f"{len(text)} tokens for {prompt!r}"
                for row, token in zip(llama.logits(tokens + text[:-1], last=64), text):
                    second, best = np.partition(row, -2)[-2:]
                    if best - second <= GAP[name]:
                        break
                    compared += 1
                    if token != row.argmax():
                        wrong += 1
                        break
        report.at_most(f"4 {name}: greedy texts of ten that differ from llama.cpp's", wrong, 0)
        report.at_least(f"4 {name}: tokens compared before a choice is close", compared, 100)


STATIC = ["linear", "ntk", "ntk-mixed", "yarn", "llama3", "dprope"]


def baked_scaling(ours, report):
    """5. Every rule that does not follow the length, most of which llama.cpp does not know: in a file made by
    `rope-cpu rope bake`, which has it as divisors, llama.cpp computes what rope-cpu does by its flags.
    """
    path = f32_twin("smollm2")
    with Model(path) as llama:
        tokens = llama.tokenize(TEXT)[:256]
        plain = llama.logits(tokens)
    for name in STATIC:
        rope = Rope(rope_scaling=name, rope_freq_scale=0.25)
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            baked = Path(folder) / "baked.gguf"
            ours.bake(path, baked, rope, 32768)
            with Model(baked) as llama:
                theirs = llama.logits(tokens)
        compared(report, f"5 smollm2, {name} x 4, baked", theirs, ours.logits(path, tokens, rope), (MEAN_KL, DIFFERENCE))
        control(report, f"5 smollm2, {name} x 4, from no scaling", theirs, plain, (MEAN_KL, DIFFERENCE))


def every_format(ours, report):
    """6. A toy of random weights in each format with code books, base-3 digits, small floats or few bits: no further from the exact
    model than llama.cpp is, plus a tenth. (Activations are rounded 32 at a time; llama.cpp does so for 32 or 256.)
    """
    tokens = np.random.default_rng(0).integers(3, 320, 256).tolist()
    for name in FORMATS:
        path = toy(name)
        with Model(f32_toy(name)) as exact, Model(path) as llama:
            truth = exact.logits(tokens)
            theirs = distance(truth, llama.logits(tokens))
        mine = distance(truth, ours.logits(path, tokens))
        report.at_most(f"6 {name}: mean KL from F32", mine.mean_kl, 1.1 * theirs.mean_kl)


def other_formats(ours, report):
    """7. A model that is brought into another format: the types that llama-quantize chooses, no larger errors, and a file that
    llama.cpp runs.
    """
    source = f32_twin("smollm2")
    exact = weights(source)
    for kind in FILE_TYPES:
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            mine, theirs = Path(folder) / "mine.gguf", Path(folder) / "theirs.gguf"
            ours.quantize(source, mine, kind)
            quantize(source, theirs, kind)
            with Model(mine) as llama:
                finite = np.isfinite(llama.logits(llama.tokenize(TEXT)[:16])).all()
            other, worst = 0, 0.0
            mine, theirs = weights(mine), weights(theirs)
            for name, (_, values) in exact.items():
                other += mine[name][0] != theirs[name][0]
                errors = [np.sqrt(np.mean((w[name][1] - values) ** 2)) for w in (mine, theirs)]
                worst = max(worst, errors[0] / errors[1] if errors[1] else np.inf if errors[0] else 0.0)
        report.at_least(f"7 {kind}: llama.cpp runs it", int(finite), 1)
        report.at_most(f"7 {kind}: tensors of another type than with llama-quantize", other, 0)
        report.at_most(f"7 {kind}: a tensor's largest error, relative to llama-quantize's", worst, 1.0)


# Of the logarithm of a perplexity. Its distance is at most the root mean square of the distances of the
# log-likelihoods. If the text is what the model expects, that is the root of twice the mean KL: 1.4e-4, and 2e-3 with
# what the table does.
SAME_PERPLEXITY, TABLE_PERPLEXITY = 2e-4, 2e-3
# Two programs that round activations to 8 bits are 4e-3 apart in mean KL (check 3 prints the distance of each from
# F32). So a log-likelihood differs by 0.09, and the mean of 1,020 independent ones by 0.3 %.
ROUNDED_PERPLEXITY = 1e-2


def perplexities(ours, report):
    """8. `rope-cpu perplexity` says what llama-perplexity does. Of the two models only Gemma 3 has BOS in each window."""
    for path, windows, cache_type, bound in (
        (f32_twin("smollm2"), 2, "f32", SAME_PERPLEXITY),
        (f32_twin("gemma3"), 2, "f32", TABLE_PERPLEXITY),
        (QUANTIZED["smollm2"], 4, "f16", ROUNDED_PERPLEXITY),
    ):
        with Model(path) as llama:
            theirs = llama.perplexity(TEXT, 512, windows, cache_type=cache_type, flash_attention=cache_type == "f16")
        mine = ours.perplexity(path, TEXT, 512, windows, cache_type)
        print(f"       8 {path.name}: {mine:.5f} (llama.cpp {theirs:.5f})")
        report.at_most(f"8 {path.name}: difference of ln perplexity", abs(np.log(mine / theirs)), bound)


# Of two log-probabilities that were saved in 16 bits: each is off by up to half a step, evenly, and KL is half the variance.
STEP = SPAN / 65535
SAVED = (MEAN_KL + STEP**2 / 12, DIFFERENCE + STEP)


def frequencies_by_length(ours, report):
    """9. Rules that follow the length: those of Hugging Face's formulas for the very length. The control is another length."""
    path, window = f32_twin("smollm2"), 299
    reference = Reference(path)
    by_length = Rope(yarn_orig_ctx=256, rope_policy="run", rope_step=1)
    for rule, rope in {
        "dynamic": replace(by_length, rope_scaling="dynamic"),
        # A factor is at most the window / the trained length.
        "dynamic, factor 4": replace(by_length, yarn_orig_ctx=64, rope_scaling="dynamic", rope_freq_scale=0.25),
        "dynamic-yarn": replace(by_length, rope_scaling="dynamic-yarn"),
    }.items():
        tokens, mine = ours.log_probabilities(path, TEXT, window, rope, last=128)
        exact = lambda length: as_saved(reference.logits(tokens[:-1], rope, 128, length=length))
        compared(report, f"9 smollm2, {rule}", exact(window), mine, SAVED)
        control(report, f"9 smollm2, {rule}, length + 64", exact(window + 64), mine, SAVED)


def frequencies_by_position(ours, report):
    """10. With each token's frequencies by the sequence up to it, the size of micro-batches makes no difference: across the
    trained length, here 1,024, and the next two lines of the grid, of which none is a multiple of 301. The control is the
    other policy.

    Not with the quantized file: it rounds activations to 8 bits, which makes of rounding errors in f32, wherever they
    come from, 3e-3 of mean KL. That is as much as the control has.
    """
    in_any_batches(ours, report, "10 smollm2, dynamic", Rope(rope_scaling="dynamic", yarn_orig_ctx=1024), 1552, [301])


def in_any_batches(ours, report, label, rope, window, micro_batches):
    path, beyond = f32_twin("smollm2"), window - 1 - rope.yarn_orig_ctx
    read = lambda policy, **how: ours.log_probabilities(
        path, 2 * TEXT, window, replace(rope, rope_policy=policy), beyond, **how)[1]
    whole = read("position")
    for n in micro_batches:
        parts = read("position", micro_batch=n)
        compared(report, f"{label}, {window:,} tokens by position, micro-batches of {n}", whole, parts, SAVED)
    control(report, f"{label}, {window:,} tokens as a run", whole, read("run"), SAVED)


def across_the_trained_length(ours, report):
    """11. Check 10 where SmolLM2's own training ends, at 8,192 tokens, and at the next line of the grid: also token by token,
    and for YaRN.
    """
    for name in "dynamic", "dynamic-yarn":
        in_any_batches(ours, report, f"11 smollm2, {name}", Rope(rope_scaling=name, yarn_orig_ctx=8192), 8500, [301, 1])


def quantized_at_depth(ours, report):
    """12. Check 3 behind 8,744 tokens, YaRN x 4, also with keys in q8_0, which both programs multiply by queries of 8 bits."""
    path, yarn = QUANTIZED["smollm2"], Rope(rope_scaling="yarn", rope_freq_scale=0.25)
    with Model(f32_twin("smollm2")) as exact, Model(path) as llama:
        tokens = exact.tokenize(TEXT)[:LONG]
        truth = exact.logits(tokens, yarn, last=256)
        for cache_type in "f16", "q8_0":
            theirs = distance(truth, llama.logits(tokens, yarn, last=256, cache_type=cache_type, flash_attention=True))
            mine = distance(truth, ours.logits(path, tokens, yarn, last=256, cache_type=cache_type))
            label = f"12 smollm2, 9,000 tokens, {cache_type} cache"
            report.at_most(f"{label}: mean KL from F32", mine.mean_kl, 1.1 * theirs.mean_kl)


CHECKS = {
    "1": exact_weights, "2": long_context, "3": quantized_weights, "4": greedy_text, "5": baked_scaling,
    "6": every_format, "7": other_formats, "8": perplexities, "9": frequencies_by_length, "10": frequencies_by_position,
}
# Half an hour and more: for a change of attention, the cache or RoPE.
LONG_CHECKS = {"11": across_the_trained_length, "12": quantized_at_depth}
