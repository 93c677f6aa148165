"""Measures two models that answer at once, and embeddings during an answer."""
import concurrent.futures
import statistics
import time

import client
import workload
from server import MODEL, Server, program

CHATS = MODEL.stem, "qwen2.5-coder-1.5b-instruct-q4_k_m"
EMBEDDING = "all-MiniLM-L6-v2.F32"
TOKENS = 128


def check(arguments):
    """Two models take turns at the processors, at 85 % of their speed or more; an embedding waits for a step or two."""
    command = [program(), "serve", "--models-dir", MODEL.parent, "--ctx", str(workload.context(arguments.long)), "--cache-ram", "0"]
    with Server(command, model=None) as server, concurrent.futures.ThreadPoolExecutor() as clients:
        server.wait()

        def answers(models, seed):
            return [clients.submit(answer, server.base, model, seed) for model in models]

        def rates(models):
            """The tokens in a second of each model, in the median of three answers."""
            rounds = [[rate(found.result()) for found in answers(models, seed)] for seed in range(3)]
            return [statistics.median(of) for of in zip(*rounds)]

        # The first requests open the models.
        rates(CHATS)
        embed(server.base)
        alone = [rates([model])[0] for model in CHATS]
        both = rates(CHATS)
        embeddings_alone = [embed(server.base) for _ in range(20)]
        (running,), beside = answers(CHATS[:1], 3), []
        while not running.done():
            beside.append(embed(server.base))
        step = 1e3 / rate(running.result())
    shares = [with_other / by_itself for with_other, by_itself in zip(both, alone)]
    waits = statistics.median(beside) - statistics.median(embeddings_alone)
    for model, by_itself, with_other in zip(CHATS, alone, both):
        print(f"load: {model}: {by_itself:.0f} tokens/s alone, {with_other:.0f} beside the other model")
    print(f"load: both models have {100 * sum(shares):.0f} % of one speed")
    print(f"load: an embedding takes {statistics.median(embeddings_alone):.1f} ms alone, {statistics.median(beside):.1f} beside an answer "
          f"of {step:.1f} ms a token")  # fmt: skip
    failures = [f"two models have {100 * sum(shares):.0f} % of one speed, not 85 %"] if sum(shares) < 0.85 else []
    return failures + ([f"an embedding waited {waits:.1f} ms for steps of {step:.1f} ms"] if waits > 2 * step + 5 else [])


def answer(base, model, seed):
    found = client.chat(base, workload.body(workload.SHORT, TOKENS, seed) | {"model": model})
    if wrong := found.wrong(TOKENS):
        raise SystemExit(f"load: {model}: {wrong}")
    return found


def rate(found):
    return (len(found.parts) - 1) / (found.parts[-1] - found.parts[0])


def embed(base):
    """The milliseconds of an embedding of some words."""
    text = workload.body(workload.SHORT, 1, 0)["messages"][0]["content"]
    began = time.monotonic()
    status, found = client.post(base, "/v1/embeddings", {"model": EMBEDDING, "input": text})
    if status != 200:
        raise SystemExit(f"load: {EMBEDDING}: {status}: {found[:500]}")
    return 1e3 * (time.monotonic() - began)
