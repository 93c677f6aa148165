"""rope_cpu.Llama beside llama_cpp.Llama."""

import warnings

import numpy as np
import pytest

import reference
from rope_cpu import Llama, LlamaGrammar


@pytest.fixture(scope="module")
def ours(path):
    options = {"model_path": str(path), "n_ctx": 512, "n_threads": 1, "verbose": False, "seed": 1}
    with Llama(**options) as llama, Llama(**options, embedding=True, pooling_type=1) as embedder:
        yield reference.answers(llama, embedder)


def shape(value):
    """The keys of dictionaries, and the types of other values."""
    if isinstance(value, dict):
        return {key: shape(value) for key, value in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value)


@pytest.mark.parametrize("name", ["tokens", "texts", "sizes", "metadata"])
def test_the_tokenizer_the_sizes_and_the_metadata_are_the_same(ours, llama_cpp, name):
    assert ours[name] == llama_cpp[name]


def test_greedy_answers_are_the_same(ours, llama_cpp):
    for found, expected in zip(ours["completions"], llama_cpp["completions"]):
        assert found["choices"] == expected["choices"]
        assert found["usage"] == expected["usage"]
    assert ours["echo"]["choices"] == llama_cpp["echo"]["choices"]
    assert ours["chat"]["choices"] == llama_cpp["chat"]["choices"]
    assert ours["chat"]["usage"] == llama_cpp["chat"]["usage"]


def test_answers_have_the_same_keys(ours, llama_cpp):
    for name in ["completions", "echo", "chat", "embeddings"]:
        assert shape(ours[name]) == shape(llama_cpp[name]), name


def test_chunks_have_the_same_keys_and_texts(ours, llama_cpp):
    for name, text in [
        ("chunks", lambda choice: choice["text"]),
        ("chat_chunks", lambda choice: choice["delta"].get("content", "")),
    ]:
        found, expected = ours[name], llama_cpp[name]
        for index in (0, 1, -1):
            assert shape(found[index]) == shape(expected[index]), (name, index)
        texts = ["".join(text(chunk["choices"][0]) for chunk in chunks) for chunks in (found, expected)]
        assert texts[0] == texts[1]
        reasons = [chunks[-1]["choices"][0]["finish_reason"] for chunks in (found, expected)]
        assert reasons[0] == reasons[1] == "length"


def test_embeddings_agree(ours, llama_cpp):
    """The products of both have 8-bit activations, rounded to different groups: a relative error of
    1/256 in each of 30 layers, added in squares, is 2 %, and its effect on the cosine is below 0.001."""
    rows = [np.array([entry["embedding"] for entry in of["embeddings"]["data"]]) for of in (ours, llama_cpp)]
    rows[0] /= np.linalg.norm(rows[0], axis=1, keepdims=True)
    rows[1] /= np.linalg.norm(rows[1], axis=1, keepdims=True)
    assert ((rows[0] * rows[1]).sum(axis=1) > 0.999).all()
    assert np.dot(ours["embed"], llama_cpp["embed"]) > 0.999


def test_unknown_arguments_are_refused_by_name(path):
    with pytest.raises(TypeError, match="Llama: use_mlock is not supported: files are never locked"):
        Llama(str(path), use_mlock=True)
    with pytest.raises(TypeError, match="Llama: n_thread is not supported: did you mean n_threads?"):
        Llama(str(path), n_thread=1)
    with Llama(str(path), n_gpu_layers=0, use_mmap=True, n_threads=1, verbose=False) as llama:
        with pytest.raises(TypeError, match="create_completion: max_token is not supported: did you mean max_tokens?"):
            llama("Hi", max_token=1)
        with pytest.raises(ValueError, match="logprobs: open the model with logits_all=True"):
            llama("Hi", logprobs=1)
        with pytest.raises(TypeError, match="create_chat_completion: functions is not supported"):
            llama.create_chat_completion(reference.MESSAGES, functions=[])
        with pytest.raises(RuntimeError, match="embedding=True"):
            llama.embed("Hi")
        # The defaults of llama-cpp-python.
        usual = llama("Hi", suffix=None, logprobs=None, tfs_z=1.0, logits_processor=None, max_tokens=2)
        assert usual["usage"]["completion_tokens"] == 2
    usual = {"n_batch": 512, "offload_kqv": True, "flash_attn": False, "chat_format": None, "tensor_split": None}
    Llama(str(path), n_threads=1, verbose=False, **usual).close()


def test_arguments_that_change_no_answer_are_noted(path):
    usual = {"n_threads": 1, "n_ctx": 64}
    with pytest.warns(UserWarning, match="n_gpu_layers has no effect: rope_cpu computes on the CPU") as warned:
        Llama(str(path), n_gpu_layers=-1, chat_format="chatml", flash_attn=True, **usual).close()
    notes = [str(warning.message) for warning in warned if "has no effect" in str(warning.message)]
    assert len(notes) == 2 and "chat_format has no effect: the template of the file" in notes[1]
    assert all(warning.filename == __file__ for warning in warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Llama(str(path), n_gpu_layers=-1, verbose=False, **usual).close()


def test_log_probabilities_are_those_of_the_scores(path):
    with Llama(str(path), logits_all=True, n_ctx=256, n_threads=1, verbose=False) as llama:
        prompt = reference.PROMPTS[0]
        answer = llama(prompt, max_tokens=4, temperature=0.0, logprobs=3)["choices"][0]
        found = answer["logprobs"]
        assert "".join(found["tokens"]) == answer["text"] and len(found["tokens"]) == 4
        assert found["text_offset"][0] == len(prompt)
        assert found["text_offset"][1] == len(prompt) + len(found["tokens"][0])
        tokens = llama.tokenize(prompt.encode())
        tokens += llama.model.generate(tokens, max_tokens=4, temperature=0.0).tokens
        llama.eval(tokens)
        rows = llama.scores[-5:-1].astype(np.float64)
        expected = rows - np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) - rows.max(1, keepdims=True)
        expected = [row[token] for row, token in zip(expected, tokens[-4:])]
        assert np.allclose(found["token_logprobs"], expected, atol=1e-9)
        for token, logprob, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]):
            # The answer is greedy.
            assert len(top) == 3 and max(top, key=top.get) == token and top[token] == logprob
        echoed = llama(prompt, max_tokens=4, temperature=0.0, logprobs=1, echo=True)["choices"][0]
        scores = echoed["logprobs"]["token_logprobs"]
        assert scores[0] is None and np.allclose(scores[-4:], found["token_logprobs"], atol=1e-9)
        assert "".join(echoed["logprobs"]["tokens"]) == echoed["text"]
        with pytest.raises(ValueError, match="logprobs: not supported with stream=True"):
            llama(prompt, logprobs=1, stream=True)


def test_tokens_are_generated_one_at_a_time(path):
    with Llama(str(path), n_ctx=128, n_threads=1, verbose=False, seed=3) as llama:
        prompt = llama.tokenize(reference.PROMPTS[1].encode())
        expected = llama.tokenize(llama(reference.PROMPTS[1], max_tokens=6, temperature=0.0)["choices"][0]["text"].encode())
        tokens = llama.generate(prompt, temp=0.0)
        assert [next(tokens) for _ in range(6)] == expected
        state = llama.save_state()
        assert (state.n_tokens, state.input_ids.tolist()) == (len(prompt) + 5, [*prompt, *expected[:5]])
        # A token that is sent follows the last one.
        tokens.send([prompt[0]])
        assert llama.save_state().input_ids.tolist() == [*prompt, *expected, prompt[0]]
        llama.load_state(state)
        assert next(llama.generate([], temp=0.0, reset=False)) == expected[5]
        # A text ends with its end token, or at the end of the context.
        two = [list(zip(range(8), llama.generate(prompt, temp=2.0))) for _ in range(2)]
        assert two[0] == two[1] and len({token for _, token in two[0]}) > 1
        assert 1 <= len(list(llama.generate(prompt * 7, temp=0.0))) <= 128 - 7 * len(prompt)
        with pytest.raises(ValueError, match="does not fit"):
            next(llama.generate(prompt * 8))
        with pytest.raises(TypeError, match="generate: grammar is not supported"):
            llama.generate(prompt, grammar="root ::= [0-9]")


def test_a_grammar_is_a_text_or_an_object(path, tmp_path):
    gbnf = 'root ::= "yes" | "no"'
    (tmp_path / "a.gbnf").write_text(gbnf)
    schema = '{"type": "integer", "minimum": 4, "maximum": 4}'
    with Llama(str(path), n_ctx=128, n_threads=1, verbose=False) as llama:
        for grammar in (gbnf, LlamaGrammar.from_string(gbnf, verbose=False), LlamaGrammar.from_file(tmp_path / "a.gbnf")):
            assert llama("Is it?", grammar=grammar)["choices"][0]["text"] in ("yes", "no")
        grammar = LlamaGrammar.from_json_schema(schema)
        answer = llama.create_chat_completion(reference.MESSAGES, grammar=grammar, max_tokens=8)
        assert answer["choices"][0]["message"]["content"].strip() == "4"


def test_arguments_of_downloads_are_refused_before_they_start():
    with pytest.raises(TypeError, match="from_pretrained: local_dir is not supported: use cache_dir"):
        Llama.from_pretrained("user/tiny", "*.gguf", local_dir="models")


def test_rope_arguments_reach_the_plan(path):
    with Llama(str(path), n_ctx=16384, rope_scaling_type=2, rope_freq_scale=0.5, n_threads=1, verbose=False) as llama:
        plan = llama.model.rope
        assert (plan.method, plan.factor, llama.n_ctx()) == ("yarn", 2.0, 16384)
    with Llama(str(path), rope_freq_base=1e6, n_threads=1, verbose=False) as llama:
        assert llama.model.rope.base == 1e6


def test_scores_are_logits(path):
    with Llama(str(path), logits_all=True, n_threads=1, verbose=False) as llama:
        llama.eval([1, 2, 3])
        llama.eval([4])
        with pytest.raises(ValueError, match="token 60000"):
            llama.eval([60000])
        assert llama.scores.shape == (4, llama.n_vocab())
        assert (llama.scores == llama.model.logits([1, 2, 3, 4])).all()
        llama.reset()
        assert len(llama.scores) == 0


def test_an_answer_follows_a_schema(path):
    with Llama(str(path), n_threads=1, verbose=False) as llama:
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
        form = {"type": "json_object", "schema": schema}
        answer = llama.create_chat_completion(reference.MESSAGES, response_format=form, max_tokens=32)
        assert answer["choices"][0]["message"]["content"].startswith("{")
