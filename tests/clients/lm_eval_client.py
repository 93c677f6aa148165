"""lm-evaluation-harness: a task of its own with multiple choice, without a tokenizer but the server's; the
log-likelihoods are those of the interface, and greedy answers are recognised."""

import json
import os
import pathlib
import subprocess
import tempfile
import urllib.request

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]
capitals = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid"}
choices = list(capitals.values())


def request(path, body):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(base + path, json.dumps(body).encode(), headers)))


def likelihood(context, choice):
    """The sum of a choice's log-probabilities after a context, and whether each of its tokens is the most likely."""
    count = len(request("/tokenize", {"content": choice})["tokens"])
    body = {"prompt": context + choice, "echo": True, "logprobs": 1, "max_tokens": 0}
    likely = request("/v1/completions", body)["choices"][0]["logprobs"]
    of_tokens, best = likely["token_logprobs"][-count:], likely["top_logprobs"][-count:]
    return sum(of_tokens), all(one == max(top.values()) for one, top in zip(of_tokens, best))


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    (work / "data.json").write_text("\n".join(
        json.dumps({"country": country, "capital": choices.index(capital)}) for country, capital in capitals.items()))
    # JSON is YAML.
    (work / "task.yaml").write_text(json.dumps({
        "task": "capitals",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(work / "data.json")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "The capital of {{country}} is",
        "doc_to_choice": choices,
        "doc_to_target": "capital",
        "metric_list": [{"metric": "acc"}],
    }))
    run = subprocess.run(
        ["lm_eval", "--model", "local-completions", "--tasks", "capitals", "--include_path", work,
         "--model_args", f"model=any,base_url={base}/v1/completions,auth_token={key}",
         "--log_samples", "--output_path", work / "results"],
        env={**os.environ, "OPENAI_API_KEY": key, "HF_HOME": folder, "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    [samples] = work.glob("results/**/samples_*.jsonl")
    samples = [json.loads(line) for line in samples.read_text().splitlines()]

assert len(samples) == len(capitals), samples
greedy = 0
for sample in samples:
    country = sample["doc"]["country"]
    for choice, answer in zip(choices, sample["filtered_resps"]):
        expected = likelihood(f"The capital of {country} is", " " + choice)
        # The file has numbers as text.
        assert answer == [str(one) for one in expected], (country, choice, answer, expected)
        greedy += expected[1]
assert greedy > 0, "no choice is the model's own"
