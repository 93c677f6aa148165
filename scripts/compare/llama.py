"""Measures llama.cpp (or ik_llama.cpp) on one model: a program of its own, run with the python of an environment.

It prints JSON lines: first what was compiled, then for each test the samples in tokens a second. A test processes
`prompt` tokens at once or generates `generation` tokens, after `depth` tokens that are computed once. With several
sequences, each has its own `depth` tokens, and each step generates one token per sequence.
"""
import argparse
import ctypes
import json
import random
import sys
import time

try:
    import llama_cpp as C
    ik = False
except ImportError:
    import ik_llama_cpp._ctypes_api as C
    ik = True

# ggml's own numbers, which one of the bindings lacks.
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
BATCH = 512


class Context:
    def __init__(self, path, size, threads, cache_type, rope_freq_scale, sequences=1, repack=True, more=0):
        """`more`: the positions that tests need if the state can't go back."""
        C.llama_backend_init()
        model = C.llama_model_default_params()
        if not ik:
            model.use_extra_bufts = repack
        self.model = C.llama_model_load_from_file(path.encode(), model)
        if not self.model:
            sys.exit(f"{path}: llama.cpp can't load it")
        self.recurrent = not ik and (C.llama_model_is_recurrent(self.model) or C.llama_model_is_hybrid(self.model))
        self.vocabulary = C.llama_vocab_n_tokens(C.llama_model_get_vocab(self.model))
        options = C.llama_context_default_params()
        size += more if self.recurrent else 0
        options.n_ctx, options.n_seq_max = size * sequences, sequences
        options.n_batch = options.n_ubatch = BATCH
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = TYPES[cache_type]
        options.rope_freq_scale = rope_freq_scale
        # llama.cpp chooses by itself; ik_llama.cpp has it on and off. With several sequences, flash attention of the
        # packaged version stops at an assertion (S > 0): it overlooks entries of the cache between other sequences.
        if ik:
            options.flash_attn = sequences == 1
        self.pointer = C.llama_init_from_model(self.model, options)
        if not self.pointer:
            sys.exit(f"{path}: llama.cpp can't make a context of {size * sequences}")

    def close(self):
        C.llama_free(self.pointer)
        (C.llama_free_model if ik else C.llama_model_free)(self.model)

    def feed(self, tokens, position, sequence=0):
        """Reads tokens of a sequence from `position` on, and waits for the logits of the last."""
        for start in range(0, len(tokens), BATCH):
            part = tokens[start:start + BATCH]
            last = start + len(part) == len(tokens)
            self.decode([(token, position + start + i, sequence, last and i == len(part) - 1)
                         for i, token in enumerate(part)])
        C.llama_get_logits_ith(self.pointer, -1)

    def step(self, tokens, position):
        """Reads a token of each sequence at `position`, and waits for the logits of all."""
        self.decode([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
        C.llama_get_logits_ith(self.pointer, -1)

    def decode(self, entries):
        """`entries`: token, position, sequence and whether its logits are wanted, of each token."""
        batch = C.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        if C.llama_decode(self.pointer, batch) != 0:
            sys.exit("llama_decode failed")
        C.llama_batch_free(batch)

    def forget(self, position, end):
        """Drops what stands from `position` to `end`, in all sequences. Returns where the next tokens go: at the end,
        if a recurrent state can't go back."""
        if self.recurrent:
            if position:
                return end
            C.llama_memory_clear(C.llama_get_memory(self.pointer), True)
            return 0
        if ik:
            remove = C._lib.llama_kv_cache_seq_rm
            remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
            remove.restype = ctypes.c_bool
            removed = remove(self.pointer, -1, position, -1)
        else:
            removed = C.llama_memory_seq_rm(C.llama_get_memory(self.pointer), -1, position, -1)
        if not removed:
            sys.exit(f"llama.cpp can't forget from position {position} on")
        return position


def system_info():
    if not ik:
        return C.llama_print_system_info().decode()
    C._lib.llama_print_system_info.restype = ctypes.c_char_p
    return C._lib.llama_print_system_info().decode()


def start(a):
    """Without Python's own start, and in the default context of rope-cpu."""
    began = time.perf_counter()
    context = Context(a.m, 4096, a.t, a.cache_type, a.rope_freq_scale, repack=False)
    context.feed([3], 0)
    seconds = time.perf_counter() - began
    context.close()
    return seconds


def sweep(context, tokens, a):
    """The speeds at every depth, of generation first, as the prompt leads to the next depth."""
    for depth in range(0, a.d + 1, a.sweep):
        seconds = []
        for count in (a.n, a.sweep):
            given = tokens(count)
            began = time.perf_counter()
            if count == a.n:
                for i, token in enumerate(given):
                    context.step([token], depth + i)
                context.forget(depth, depth + a.n)
            else:
                context.feed(given, depth)
            seconds.append(time.perf_counter() - began)
        print(json.dumps({"depth": depth, "generation": a.n / seconds[0], "prompt": a.sweep / seconds[1]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True, metavar="FILE")
    parser.add_argument("-t", type=int, required=True, metavar="THREADS")
    parser.add_argument("-p", type=int, default=0, metavar="PROMPT")
    parser.add_argument("-n", type=int, default=0, metavar="GENERATION")
    parser.add_argument("-d", type=int, default=0, metavar="DEPTH")
    parser.add_argument("-r", type=int, default=2, metavar="REPETITIONS")
    parser.add_argument("--sequences", type=int, default=1, metavar="N",
                        help="of generation, each behind its own -d; the speed is that of all together [1]")
    parser.add_argument("--cache-type", choices=TYPES, default="f16")
    parser.add_argument("--rope-freq-scale", type=float, default=0.0)
    parser.add_argument("--sweep", type=int, metavar="STEP",
                        help="the speeds at every depth up to -d, in steps of this, instead")
    parser.add_argument("--together", action="store_true",
                        help="read -p and then generate -n, once, and print the seconds until the first token")
    parser.add_argument("--start", action="store_true", help="the seconds from nothing to the first token alone")
    a = parser.parse_args()
    if a.sequences > 1 and (a.p or a.sweep or a.start or a.together):
        parser.error("several sequences have tests of generation alone (-n)")

    print(json.dumps({"system_info": system_info()}), flush=True)
    if a.start:
        print(json.dumps({"test": "start", "samples": [start(a) for _ in range(a.r)]}), flush=True)
        return
    longest = a.p + a.n if a.together else max(a.p, a.n, a.sweep or 0)
    context = Context(a.m, a.d + longest + 8, a.t, a.cache_type, a.rope_freq_scale, a.sequences,
                      more=a.r * (a.p + a.n))
    numbers = random.Random(1)

    def tokens(count):
        return [numbers.randrange(3, context.vocabulary) for _ in range(count)]

    context.feed(tokens(32), 0)
    context.forget(0, 32)
    if a.sweep:
        sweep(context, tokens, a)
        return
    for sequence in range(a.sequences if a.d else 0):
        context.feed(tokens(a.d), 0, sequence)
    if a.together:
        began = time.perf_counter()
        context.feed(tokens(a.p), a.d)
        print(json.dumps({"test": "first", "samples": [time.perf_counter() - began]}), flush=True)
        for i, token in enumerate(tokens(a.n)):
            context.step([token], a.d + a.p + i)
        return
    position = a.d
    for kind, size in (("prompt", a.p), ("generation", a.n)):
        samples = []
        for _ in range(a.r if size else 0):
            given = tokens(size * a.sequences)
            began = time.perf_counter()
            if kind == "prompt":
                context.feed(given, position)
            else:
                for i in range(size):
                    context.step(given[i::size], position + i)
            samples.append(len(given) / (time.perf_counter() - began))
            position = context.forget(a.d, position + size)
        if samples:
            print(json.dumps({"test": kind, "samples": samples}), flush=True)


main()
