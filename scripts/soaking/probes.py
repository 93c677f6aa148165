"""Fixed requests: their answers must have the same bits at any time and under any load."""
import json
import random

import client
import workload

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SAMPLED = {"temperature": 1.1, "seed": 7}
PROBES = {
    "greedy": {"temperature": 0},
    "without the cache": {"temperature": 0, "cache_prompt": False},
    "sampled": SAMPLED | {"top_k": 50, "min_p": 0.02, "repeat_penalty": 1.1},
    "schema": SAMPLED | {"json_schema": PERSON},
    "grammar": SAMPLED | {"grammar": 'root ::= ("yes" | "no") " " [0-9]{1,4} ("." root)?'},
    "adapter": {"temperature": 0, "lora": [{"id": 0, "scale": 1.0}]},
    "half an adapter": {"temperature": 0, "lora": [{"id": 0, "scale": 0.5}]},
}
TOKENS = 24
# Of an answer, what may not depend on the time: its text, its tokens, and all digits of their probabilities.
FIELDS = "content", "tokens", "completion_probabilities", "stop_type", "tokens_evaluated"


def ask(server):
    """The answers by name. The cache on the disk keeps prompts of 256 tokens or more."""
    return {f"{name}, {words} words": answer(server, words, fields) for name, fields in PROBES.items() for words in (12, 300)}


def answer(server, words, fields):
    prompt = " ".join(random.Random(words).choices(workload.WORDS, k=words))
    body = {"prompt": prompt, "n_predict": TOKENS, "n_probs": 4, "return_tokens": True} | fields
    status, text = client.post(server.base, "/completion", body)
    if status != 200:
        return {"status": status, "text": text}
    whole = json.loads(text)
    return {field: whole[field] for field in FIELDS}


def differences(before, now):
    """Which answers differ, and how."""
    return [f"probe {name}: {json.dumps(now[name])[:300]}\n  instead of {json.dumps(first)[:300]}"
            for name, first in before.items() if now[name] != first]  # fmt: skip
