"""Models: texts, numbers, errors."""

import copy
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import rope_cpu
from rope_cpu import Model
from rope_cpu.options import _OPENING, AnswerOptions, OpenOptions
from rope_cpu.settings import RopeOptions, SamplingOptions

PROMPT = "The capital of France is"
GREEDY = {"temperature": 0}


def test_an_answer_is_a_text_with_usage(model):
    answer = model.generate(PROMPT, max_tokens=8, **GREEDY)
    assert isinstance(answer, str) and "Paris" in answer
    assert answer == model.detokenize(answer.tokens)
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 8, 13)
    assert usage.tokens_per_second > 0
    assert (answer.end, answer.finish_reason) == ("max_tokens", "length")
    again = model.generate(PROMPT, max_tokens=8, **GREEDY)
    assert (again, again.usage.cached_tokens) == (answer, 4)


def test_a_stream_has_the_pieces_of_the_answer(model):
    answer = model.generate(PROMPT, max_tokens=8, **GREEDY)
    with model.stream(PROMPT, max_tokens=8, **GREEDY) as stream:
        assert stream.answer is None
        pieces = list(stream)
    assert "".join(pieces) == answer == stream.answer and len(pieces) > 4
    assert stream.answer.tokens == answer.tokens


def test_streams_run_at_a_time_if_the_model_is_opened_for_it(path):
    with Model(path, ctx=64, threads=1, parallel=2) as model:
        prompts = ["The capital of France is", "One, two, three,"]
        alone = [str(model.generate(prompt, max_tokens=12, **GREEDY)) for prompt in prompts]
        streams = [model.stream(prompt, max_tokens=12, **GREEDY) for prompt in prompts]
        with pytest.raises(rope_cpu.Error, match="in use by 2 streams: .* parallel=3"):
            model.generate(PROMPT)
        texts = ["", ""]
        while any(pieces := [next(stream, "") for stream in streams]):
            texts = [text + piece for text, piece in zip(texts, pieces)]
        assert texts == alone
        # Each prompt is still in the cache.
        cached = [model.generate(prompt, max_tokens=1, **GREEDY).usage.cached_tokens for prompt in prompts]
        assert min(cached) > 3


def test_a_later_run_continues_from_the_cache_on_disk(path, tmp_path):
    prompt = "The quick brown fox jumps over the lazy dog. " * 40
    with Model(path, ctx=1024, threads=1, cache_disk=tmp_path) as model:
        first = model.generate(prompt, max_tokens=4, **GREEDY)
    assert first.usage.cached_tokens == 0 and any(tmp_path.iterdir())
    with Model(path, ctx=1024, threads=1, cache_disk=tmp_path) as model:
        again = model.generate(prompt, max_tokens=4, **GREEDY)
    assert (again, again.usage.cached_tokens) == (first, first.usage.prompt_tokens - 1)


def test_models_in_one_process_leave_each_other_their_memory(path):
    # 90 GB of keys and values, of which nothing is allocated.
    trained = ["llama.context_length=int:4194304"]
    with Model(path, ctx=2**22, threads=1, memory_check=False, override_kv=trained):
        with pytest.raises(MemoryError, match="but 0.0 KiB is available"):
            Model(path, ctx=64, threads=1)
    Model(path, ctx=64, threads=1).close()


def test_a_stream_excludes_other_calls_until_it_is_closed(model):
    stream = model.stream(PROMPT, ignore_eos=True)
    next(stream)
    with pytest.raises(rope_cpu.Error, match="in use by a stream"):
        model.generate(PROMPT)
    stream.close()
    assert stream.answer.end == "closed"
    assert list(stream) == []
    model.generate(PROMPT, max_tokens=1)
    # A stream that nobody holds is closed.
    next(model.stream(PROMPT, ignore_eos=True))
    model.generate(PROMPT, max_tokens=1)


def test_sampling_follows_the_seed_and_the_arguments(model):
    def texts(**options):
        return [model.generate(PROMPT, max_tokens=8, seed=seed, **options) for seed in (1, 1, 2, 3)]

    one, same, *others = texts(temperature=1.5)
    assert one == same and set(others) != {one}
    assert len(set(texts(top_k=1))) == 1
    token = model.generate(PROMPT, max_tokens=1, **GREEDY).tokens[0]
    banned = model.generate(PROMPT, max_tokens=1, logit_bias={token: -100.0}, **GREEDY)
    assert banned.tokens != [token]
    assert model.generate(PROMPT, max_tokens=1).seed is not None


def test_stop_strings_end_an_answer(model):
    answer = model.generate(PROMPT, stop=["."], max_tokens=64, **GREEDY)
    assert (answer.end, answer.stop, "." in answer) == ("stop", ".", False)
    assert model.generate(PROMPT, stop=".", max_tokens=64, **GREEDY) == answer


def test_answers_have_the_form_that_is_asked_for(model):
    schema = {"type": "object", "properties": {"age": {"enum": [7]}}, "required": ["age"], "additionalProperties": False}
    answer = model.generate("An age as JSON:", json_schema=schema, max_tokens=32)
    assert json.loads(answer) == {"age": 7} and answer.end == "complete"
    assert model.generate(PROMPT, grammar='root ::= " Rome" | " Oslo"') in (" Rome", " Oslo")
    assert model.generate(PROMPT, regex="[0-9]{3}").isdigit()
    with pytest.raises(ValueError, match="grammar and regex exclude each other"):
        model.generate(PROMPT, grammar="x", regex="y")


def test_a_batch_gives_the_answers_of_single_prompts(model):
    prompts = [f"{n} plus {n} is" for n in range(6)]
    seen = []
    answers = model.generate_batch(
        prompts, slots=3, max_tokens=6, progress=lambda *now: seen.append(now), **GREEDY
    )
    assert answers == [model.generate(prompt, max_tokens=6, **GREEDY) for prompt in prompts]
    assert seen == [(n, 6) for n in range(1, 7)]
    assert [len(answer.tokens) for answer in answers] == [answer.usage.completion_tokens for answer in answers]
    assert model.generate_batch([]) == []


def test_answers_can_be_copied_and_sent_to_other_processes(model):
    for answer in (model.generate(PROMPT, max_tokens=4, **GREEDY), model.chat("Hello", max_tokens=4, **GREEDY)):
        for other in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
            assert (other, type(other), vars(other)) == (answer, type(answer), vars(answer))


def test_texts_may_be_bytes(model):
    assert model.generate(PROMPT.encode(), max_tokens=4, **GREEDY) == model.generate(PROMPT, max_tokens=4, **GREEDY)
    assert (model.logits(b"A cat") == model.logits("A cat")).all()
    assert model.perplexity(b"A cat " * 40).value == model.perplexity("A cat " * 40).value
    assert (model.embed(b"A cat") == model.embed("A cat")).all()


def test_a_conversation_continues(model):
    messages = [{"role": "user", "content": "My name is Ada. Answer in one word: what is 1 + 1?"}]
    answer = model.chat(messages, max_tokens=16, **GREEDY)
    assert answer.message == {"role": "assistant", "content": str(answer)}
    messages += [answer.message, {"role": "user", "content": "What is my name?"}]
    second = model.chat(messages, max_tokens=16, **GREEDY)
    assert second.usage.cached_tokens > answer.usage.prompt_tokens
    with model.chat_stream(messages, max_tokens=16, **GREEDY) as stream:
        pieces = list(stream)
    assert {piece.kind for piece in pieces} == {"text"}
    assert "".join(piece.text for piece in pieces) == second == stream.answer


def test_a_required_tool_is_called(model):
    parameters = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    weather = {"type": "function", "function": {"name": "weather", "description": "Weather", "parameters": parameters}}
    with model.chat_stream("Weather in Oslo?", tools=[weather], tool_choice="required", max_tokens=200, **GREEDY) as stream:
        kinds = [piece.kind for piece in stream]
    answer = stream.answer
    assert kinds[0] == "call" and "arguments" in kinds and kinds[-1] == "end"
    [call] = answer.tool_calls
    assert call.name == "weather" and set(json.loads(call.arguments)) == {"city"}
    assert answer.finish_reason == "tool_calls"
    assert answer.message["tool_calls"][0]["function"]["name"] == "weather"


def test_tokens_and_texts(model):
    text = "Grüße, 3 × 4 = 12"
    tokens = model.tokenize(text)
    assert model.detokenize(tokens) == text
    assert len(model.tokenize("<|im_end|>")) == 1 < len(model.tokenize("<|im_end|>", parse_special=False))
    assert model.detokenize(model.tokenize("<|im_end|>"), special=True) == "<|im_end|>"
    with pytest.raises(ValueError, match=r"token 99999999: must be from 0 to 49151"):
        model.detokenize([99999999])


def test_logits_predict_the_greedy_answer(model):
    tokens = model.tokenize(PROMPT)
    logits = model.logits(tokens)
    assert logits.shape == (5, model.vocabulary) and logits.dtype == np.float32
    assert logits[-1].argmax() == model.generate(tokens, max_tokens=1, **GREEDY).tokens[0]
    # The rows of a text do not depend on what follows.
    assert (model.logits(tokens[:3]) == logits[:3]).all()


def test_perplexity_is_of_the_logits(model):
    tokens = model.tokenize("One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.")
    found = model.perplexity(tokens, window=8, stride=4)
    first = model.logits(tokens[:8]).astype(np.float64)
    log_softmax = first - np.log(np.exp(first).sum(axis=1, keepdims=True))
    expected = [log_softmax[i, tokens[i + 1]] for i in range(7)]
    # The library subtracts the largest logit in float32. Differences are below 64, so they are within
    # 64 * 2**-24 = 4e-6, as is the logarithm of their sum.
    assert np.abs(found.log_likelihoods[:7] - expected).max() < 8e-6
    assert list(found.positions[:11]) == [1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]
    assert list(found.indices) == list(range(1, len(tokens)))
    assert found.value == np.exp(-found.log_likelihoods.mean())
    halves = model.perplexity(tokens, window=8)
    assert set(halves.positions) == {5, 6, 7}
    middles, values = halves.by_position(4)
    assert list(middles) == [6.0] and np.isclose(values[0], halves.value)
    # A long window is read in parts, and only tokens after its middle are scored.
    long = (tokens * 200)[:2200]
    half, whole = (model.perplexity(long, window=1100, stride=stride, max_windows=1) for stride in (None, 550))
    assert list(half.positions) == list(range(551, 1100))
    assert (half.log_likelihoods == whole.log_likelihoods[550:]).all()
    with pytest.raises(ValueError, match="tokens are needed|are needed for windows"):
        model.perplexity("short", window=512)


def test_a_call_may_have_a_context_of_its_own(path):
    prompt, greedy = [1] * 100, {"max_tokens": 4, **GREEDY}
    with Model.open(path, ctx=128, rope="yarn:4", threads=1) as longer:
        expected = longer.generate(prompt, **greedy)
    with Model.open(path, ctx=64, threads=1) as model:
        answer = model.generate(prompt, ctx=128, rope="yarn:4", **greedy)
        assert (answer.tokens, answer.usage.cached_tokens) == (expected.tokens, 0)
        # The model keeps that context until another one is asked for, and its own.
        again = model.generate(prompt, ctx=128, rope="yarn:4", **greedy)
        assert (again.tokens, again.usage.cached_tokens) == (expected.tokens, 99)
        assert model.ctx == 64 and model.rope.method == "none"
        with pytest.raises(ValueError, match="larger ctx"):
            model.generate(prompt, **greedy)
        assert model.generate(prompt, ctx=128, **greedy).usage.cached_tokens == 0
        with model.stream(prompt, ctx=128, rope={"method": "yarn", "rope_scale": 4}, **greedy) as pieces:
            assert "".join(pieces) == expected
        assert model.generate_batch([prompt], ctx=128, rope="yarn:4", **greedy) == [expected]
        assert model.chat("Hello!" * 30, ctx=256, **greedy).usage.prompt_tokens > 64
    with pytest.raises(ValueError, match="the model is closed"):
        model.generate(prompt, ctx=128, rope="yarn:4")


def test_the_package_has_its_version():
    manifest = Path(__file__).parents[2] / "Cargo.toml"
    assert f'version = "{rope_cpu.__version__}"' in manifest.read_text()


def test_embeddings_are_vectors_of_length_one(model):
    rows = model.embed(["A cat sat.", "A kitten sat.", "Stocks fell by 3 %."])
    assert rows.shape == (3, model.embedding) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    each = model.embed_tokens("A cat sat.")
    mean = each.mean(axis=0)
    assert np.allclose(mean / np.linalg.norm(mean), rows[0], atol=1e-5)
    assert model.embed([]).shape == (0, model.embedding)
    assert model.embed("A cat sat.").shape == (1, model.embedding)


def test_errors_name_the_argument_and_what_is_possible(model, path, tmp_path):
    def refused(kind, match, call, *args, **options):
        with pytest.raises(kind, match=match):
            call(*args, **options)

    refused(FileNotFoundError, "no-such.gguf", Model.open, "no-such.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    refused(rope_cpu.Error, "broken.gguf", Model.open, broken)
    refused(ValueError, "ctx 0: must be from 1", Model.open, path, ctx=0)
    refused(ValueError, "cache|f16", Model.open, path, cache_type_k="f17")
    refused(ValueError, "spec_type .ngram.: must be some of auto, none", Model.open, path, spec_type="ngram")
    refused(ValueError, "`spec_type` none excludes", Model.open, path, spec_type=["none", "draft-mtp"])
    refused(ValueError, "give it with `spec_draft_model`", Model.open, path, spec_type="draft-simple")
    refused(ValueError, "sparse_attention .0.4.: must be a number above 0.5 and below 1", Model.open, path, sparse_attention=0.4)
    refused(ValueError, "must be one of none, linear, ntk", Model.open, path, rope="su")
    refused(ValueError, "`rope_scale` four: must be a number", Model.open, path, rope_scale="four")
    refused(TypeError, "'rope_scal': did you mean rope_scale?", Model.open, path, rope_scal=4)
    refused(TypeError, "'thread': did you mean threads?", Model, path, thread=4)
    refused(TypeError, "'temprature': did you mean temperature?", model.generate, PROMPT, temprature=1)
    refused(ValueError, "`top_p` 2: must be from 0 to 1", model.generate, PROMPT, top_p=2)
    refused(TypeError, "top_k: .* is neither a number", model.generate, PROMPT, top_k=[1])
    refused(ValueError, "must be from 0 to 49151", model.generate, PROMPT, logit_bias={49152: 1.0})
    refused(ValueError, "the prompt is empty", model.generate, [])
    refused(ValueError, "the call or Model.open a larger ctx", model.generate, [1] * 3000)
    refused(ValueError, "token 60000", model.logits, [60000])
    for call in (model.logits, model.generate, model.detokenize, model.perplexity, model.embed_tokens):
        refused(ValueError, "token -1: must be from 0 to 49151", call, [1, -1])
        refused(ValueError, "token 4294967296: must be from 0 to 49151", call, [2**32])
    refused(ValueError, "`logit_bias` -1: the token must be from 0 to 49151", model.generate, PROMPT, logit_bias={-1: 1.0})
    refused(ValueError, "max_tokens -2: must be at least 1, or None for no limit", model.generate, PROMPT, max_tokens=-2)
    refused(ValueError, "seed -1: must be from 0 to 4294967294", model.generate, PROMPT, seed=-1)
    for value in (math.nan, math.inf, -math.inf):
        refused(ValueError, "temperature|temp", model.generate, PROMPT, temperature=value)
    refused(ValueError, "top_k", model.generate, PROMPT, top_k=10**400)
    refused(ValueError, "reasoning_budget -1: must be at least 0", model.chat, PROMPT, reasoning_budget=-1)
    refused(ValueError, "stride 0: must be at least 1", model.perplexity, [1] * 64, stride=0)
    refused(ValueError, "ctx 0: must be from 1", model.generate, PROMPT, ctx=0)
    refused(ValueError, "must be one of none, linear, ntk", model.generate, PROMPT, rope="su")
    refused(TypeError, "'threads': it belongs to Model.open$", model.generate, PROMPT, threads=2)
    refused(TypeError, 'Model.open, or rope={"method": ..., "yarn_ramp": ...}', model.chat, PROMPT, yarn_ramp="turns")
    refused(ValueError, "messages: .*critic", model.chat, [{"role": "critic", "content": ""}])
    refused(ValueError, "slots 0: must be from 1 to 256", model.generate_batch, ["a"], slots=0)
    refused(TypeError, "prompts 'a': must be a list", model.generate_batch, "a")
    refused(ValueError, "prompt 1: the prompt of 3000 tokens", model.generate_batch, ["a", [1] * 3000])
    refused(TypeError, "lora 'a.gguf': must be a list", Model.open, path, lora="a.gguf")
    refused(TypeError, "max_tokens '8': must be a whole number", model.generate, PROMPT, max_tokens="8")
    refused(ValueError, "time_max -1.*at least 0", model.generate, PROMPT, time_max=-1)
    refused(ValueError, "width 0: must be at least 1", model.perplexity("A cat " * 40).by_position, 0)
    closed = Model.open(path, ctx=64, threads=1)
    closed.close()
    refused(ValueError, "the model is closed", closed.generate, PROMPT)
    # Nothing above has left the model unusable.
    model.generate(PROMPT, max_tokens=1)


def test_a_model_is_opened_by_its_class(path):
    with Model(path, ctx=64, threads=1) as one, Model.open(str(path), ctx=64, threads=1) as two:
        assert one.generate(PROMPT, max_tokens=2, temperature=0) == two.generate(PROMPT, max_tokens=2, temperature=0)


FORKED = """
import multiprocessing, rope_cpu, sys
model = rope_cpu.Model(sys.argv[1], ctx=64, threads=2)
unused = rope_cpu.Model(sys.argv[1], ctx=64, threads=2)
model.generate("A", max_tokens=1)
stream = model.stream("A", max_tokens=8)
next(stream)

def child(results):
    global model, stream
    for call in (lambda: model.generate("A", max_tokens=1), lambda: next(stream), lambda: stream.close()):
        try:
            call()
            results.put("no error")
        except rope_cpu.Error as error:
            results.put(str(error))
    # Their threads are not here, and nothing waits for them.
    stream = None
    model.close()
    model = None
    results.put(len(unused.generate("A", max_tokens=1).tokens))

context = multiprocessing.get_context("fork")
results = context.SimpleQueue()
process = context.Process(target=child, args=[results])
process.start()
print([results.get() for _ in range(4)])
process.join()
list(stream)
print(process.exitcode, len(model.generate("A", max_tokens=1).tokens))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_model_that_was_used_before_a_fork_is_refused_after_it(path):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, path], capture_output=True, text=True, timeout=300)
    refused = "the model was used before this process was forked: open it here, or start processes with spawn"
    assert done.stdout.splitlines() == [str([refused] * 3 + [1]), "0 1"], done.stderr


def test_ctrl_c_stops_a_generation(model):
    # Jobs in the background start with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.generate(PROMPT, ignore_eos=True)
    assert time.monotonic() - started < 10
    assert model.generate(PROMPT, max_tokens=1)


def test_ctrl_c_stops_embeddings_between_two_steps(path):
    code = f"""
import signal, threading, rope_cpu
model = rope_cpu.Model.open({str(path)!r}, ctx=8192, ubatch_size=64, threads=1)
signal.signal(signal.SIGINT, signal.default_int_handler)
timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
timer.start()
try:
    model.embed("hello world " * 3500)
except KeyboardInterrupt:
    print("stopped")
"""
    # In a new process, where no array has been made yet.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "stopped\n", done.stderr


def test_other_threads_run_while_a_model_computes(model):
    count = 0
    done = threading.Event()

    def work():
        nonlocal count
        while not done.is_set():
            count += 1
            time.sleep(0.001)

    worker = threading.Thread(target=work)
    worker.start()
    model.logits([1] * 512)
    done.set()
    worker.join()
    assert count > 5


def test_calls_from_threads_wait_for_each_other(model):
    answers = []
    def work():
        answers.append(model.generate(PROMPT, max_tokens=8, **GREEDY))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 3 and len(set(answers)) == 1


def test_memory_is_checked_before_it_is_allocated(path):
    with pytest.raises(MemoryError, match="needs .* but .* is available.*memory_check=False"):
        Model(path, ctx=4_194_304, rope="linear")
    with Model(path, ctx=2048) as model:
        assert model.memory > path.stat().st_size


def test_properties_and_metadata(model, path):
    assert (model.path, model.ctx, model.trained_ctx) == (str(path), 2048, 8192)
    assert (model.architecture, model.threads) == ("llama", 1)
    assert model.metadata["general.architecture"] == "llama"
    assert model.metadata["llama.context_length"] == 8192
    assert model.detokenize([model.eos], special=True) == "<|im_end|>"


def test_drafts_change_no_answer(model, path):
    prompt = "one two three one two three one two three one two"
    expected = model.generate(prompt, max_tokens=24, temperature=0)
    for drafts in ({"spec_type": ["ngram-simple"]}, {"spec_draft_model": path, "spec_draft_n_max": 4}):
        with Model(path, ctx=512, **drafts) as drafting:
            answer = drafting.generate(prompt, max_tokens=24, temperature=0)
            assert answer.tokens == expected.tokens, drafts


def test_options_have_the_names_of_the_library():
    own = {"ctx", "rope", "max_tokens", "time_max", "stop", "seed", "samplers", "logit_bias", "dry_sequence_breaker",
           "grammar", "regex", "json_schema", "ignore_eos", "special"}  # fmt: skip
    # A test of the library compares the samplers' settings.
    assert set(AnswerOptions.__annotations__) == set(SamplingOptions.__annotations__) | own
    assert set(RopeOptions.__annotations__) == set(rope_cpu.rope.settings())
    assert _OPENING == set(OpenOptions.__annotations__) - AnswerOptions.__annotations__.keys()
