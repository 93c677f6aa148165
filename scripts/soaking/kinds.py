"""Kinds of requests beyond those of scripts/load. Each is a function of the server and a seed, and returns what is wrong
with the answer or None."""
import http.client
import json
import random
import re
import socket
import struct
import time

import client
import workload
from probes import PERSON

# Prompts that come back when their conversation is on the disk.
DOCUMENTS, DOCUMENT = 24, 500
CHAT = "/v1/chat/completions"


def post(server, path, body, refusals=()):
    """The answer as JSON, and what is wrong with it or None. It may also be an error with one of the texts `refusals`."""
    try:
        status, text = client.post(server.base, path, body)
    except (OSError, http.client.HTTPException) as error:
        return {}, f"{path}: {type(error).__name__}: {error}"
    fine = status == 200 or any(refusal in text for refusal in refusals)
    return json.loads(text), None if fine else f"{path}: status {status}: {text[:300]}"


def chat(server, seed, fields, words=workload.SHORT):
    """The text of a chat's answer and why it ended, and what is wrong or None."""
    body = {name: value for name, value in workload.body(words, 48, seed).items() if not name.startswith("stream")}
    answer, wrong = post(server, CHAT, body | fields)
    if wrong:
        return "", "", wrong
    choice = answer["choices"][0]
    return choice["message"]["content"] or "", choice["finish_reason"], None


def schema(server, seed):
    text, finish, wrong = chat(server, seed, {
        "ignore_eos": False, "max_tokens": 120, "temperature": 1, "seed": seed,
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
    })  # fmt: skip
    if wrong or finish == "length":
        return wrong
    person = json.loads(text)
    fits = [*person] == ["name", "age"] and len(person["name"]) <= 12 and 0 <= person["age"] <= 99
    return None if fits else f"{text} is no person"


def expression(server, seed):
    pattern = "[a-f]{3,9} is (not )?[0-9]+"
    field = ("regex", pattern) if seed % 2 else ("grammar", 'root ::= [a-f]{3,9} " is " "not "? [0-9]+')
    text, finish, wrong = chat(server, seed, {"ignore_eos": False, "temperature": 1.5, "seed": seed, field[0]: field[1]})
    if wrong or finish == "length":
        return wrong
    return None if re.fullmatch(pattern, text) else f"{text!r} does not match"


def adapter(server, seed):
    scales = [{"id": 0, "scale": (0, 0.5, 1, -1)[seed % 4]}]
    text, finish, wrong = chat(server, seed, {"lora": scales})
    return wrong or (None if text and finish == "length" else f"{finish} after {text!r}")


def drafts(server, seed):
    """Texts that repeat themselves, so that many drafts are accepted, and some refused."""
    text = " ".join(random.Random(seed).choices(workload.WORDS, k=4) * 12)
    fields = {"messages": [{"role": "user", "content": f"Repeat: {text}"}], "speculative.n_max": (0, 1, 4, 15)[seed % 4]}
    return chat(server, seed, fields)[2]


def sampled(server, seed):
    samplers = [{"mirostat": 2}, {"dry_multiplier": 0.8}, {"xtc_probability": 0.5}, {"typical_p": 0.9}, {"dynatemp_range": 0.5}]
    return chat(server, seed, {"temperature": 1.3, "seed": seed, "n": 1 + seed % 3} | samplers[seed % 5])[2]


def conversation(server, seed):
    """Three turns, with the answers sent back."""
    messages = []
    for turn in range(3):
        messages += workload.body(workload.SHORT, 0, seed + turn)["messages"]
        text, _, wrong = chat(server, seed, {"messages": messages, "ignore_eos": False, "max_tokens": 24})
        if wrong:
            return wrong
        messages += [{"role": "assistant", "content": text}]
    return None


def document(server, seed):
    """A long prompt that was asked before, and has left the memory since."""
    return chat(server, seed % DOCUMENTS, {"max_tokens": 4}, DOCUMENT)[2]


def other_interface(server, seed):
    text = " ".join(random.Random(seed).choices(workload.WORDS, k=20))
    messages = [{"role": "user", "content": text}]
    return post(server, *[
        ("/v1/messages", {"model": "any", "max_tokens": 16, "messages": messages}),
        ("/v1/responses", {"model": "any", "max_output_tokens": 16, "input": text}),
        ("/api/chat", {"model": "any", "stream": False, "options": {"num_predict": 16}, "messages": messages}),
        ("/v1/completions", {"max_tokens": 8, "prompt": [text, text[::-1]], "logprobs": 2, "echo": True}),
        ("/tokenize", {"content": text, "with_pieces": True}),
        ("/apply-template", {"messages": messages}),
    ][seed % 6])[1]  # fmt: skip


def reset(server, seed):
    """A client that goes away at random, without the end of its connection."""
    choice = random.Random(seed)
    data = json.dumps(workload.body(choice.choice([24, 500]), 200, seed)).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        connection.sendall((head + data)[: choice.choice([50, len(head) + 50, None])])
        time.sleep(choice.expovariate(2))
    return None


def saved_slot(server, seed):
    """Saves and restores a slot, if it is not in use, and the file is of the same adapters."""
    action = random.Random(seed).choice(["save", "restore"])
    refusals = ["is in use"] if action == "save" else ["is in use", "No such file", "other scales of adapters"]
    return post(server, f"/slots/{seed % 4}?action={action}", {"filename": f"slot{seed % 3}"}, refusals)[1]


def status(server, seed):
    for path in ("/health", "/props", "/slots", "/metrics", "/v1/models"):
        if (status := client.get(server.base, path)[0]) != 200:
            return f"{path}: status {status}"
    return None


KINDS = {
    "schema": schema, "expression": expression, "adapter": adapter, "drafts": drafts, "sampled": sampled,
    "conversation": conversation, "document": document, "other interface": other_interface, "reset": reset,
    "saved slot": saved_slot, "status": status,
}  # fmt: skip
