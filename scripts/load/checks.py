"""What must hold under load."""
import concurrent.futures
import statistics
import threading
import time

import client
import load
import several
import workload
from server import Samples, Server, rope_cpu

# MiB that the memory may grow by. Allocators keep what is freed, in parts; a leak of 1 kB for each token of a prompt
# would be more than that after eight long prompts.
GROWTH = 32
# Of an answer where speed is measured.
TOKENS = 96


def run(arguments):
    failures = []
    for number in arguments.only.split(","):
        began = time.monotonic()
        found = CHECKS[number](arguments)
        failures += [f"check {number}: {failure}" for failure in found]
        print(f"load: check {number} took {time.monotonic() - began:.0f} s", flush=True)
    for failure in failures:
        print(f"load: failed: {failure}")
    print(f"load: {'failed' if failures else 'all of ' + arguments.only + ' passed'}")
    return 1 if failures else 0


def slots(arguments):
    """Four slots generate at least twice as many tokens in a second as one."""
    rates = {1: [], 4: []}
    with Server(rope_cpu(1, workload.context(arguments.long))) as one, Server(rope_cpu(4, workload.context(arguments.long))) as four:
        servers = {1: one.wait(), 4: four.wait()}
        # In turns, since other programs also run. The first turn warms up.
        for turn in range(4):
            for count, server in servers.items():
                bodies = [workload.body(workload.SHORT, TOKENS, 100 * turn + index) for index in range(4)]
                began = time.monotonic()
                with concurrent.futures.ThreadPoolExecutor(4) as clients:
                    answers = list(clients.map(lambda body: client.complete(server.base, body), bodies))
                rates[count].append(TOKENS * len(bodies) / (time.monotonic() - began))
                wrong = [answer.wrong(TOKENS) for answer in answers if answer.wrong(TOKENS)]
                if wrong:
                    return wrong
    one, four = (statistics.median(rates[count][1:]) for count in (1, 4))
    print(f"load: {one:.0f} tokens/s by one slot, {four:.0f} by four: {four / one:.2f} times as many")
    return [f"four slots are {four / one:.2f} times as fast as one, not twice"] if four < 2 * one else []


def first_token(arguments):
    """While a long prompt is processed, a short one gets its first token within two micro-batches."""
    steps = []
    with Server(rope_cpu(4, workload.context(arguments.long))) as server:
        server.wait()
        for seed in range(3):
            long = client.Answer(0)
            body = workload.body(arguments.long, 1, seed) | {"return_progress": True}
            reading = threading.Thread(target=client.chat, args=(server.base, body), kwargs={"answer": long})
            reading.start()
            while not long.progress and reading.is_alive():
                time.sleep(0.001)
            short = client.chat(server.base, workload.body(workload.SHORT, 1, 1000 + seed))
            if not long.parts:
                # Reports come at the end of a micro-batch: those between the request and the first token.
                steps.append(sum(short.sent < at < short.parts[0] for at, _ in long.progress))
            reading.join()
    print(f"load: micro-batches until the first token of a short prompt beside a long one: {steps}")
    return [f"{steps} micro-batches, not at most 2"] if not steps or max(steps) > 2 else []


def under_load(arguments):
    """No well-formed request fails, what is hostile is refused, and memory does not grow."""
    with Server(rope_cpu(4, workload.context(arguments.long))) as server:
        server.wait()
        memory = Samples(server.memory)
        memory.start()
        # Long prompts that need more than all contexts, so that all memory for keys and values is in use.
        with concurrent.futures.ThreadPoolExecutor(4) as clients:
            bodies = [workload.body(arguments.long, 1, 10**6 + index) for index in range(8)]
            list(clients.map(lambda body: client.chat(server.base, body), bodies))
        began = time.monotonic()
        result = load.run(server, arguments.seconds, arguments.clients, arguments.long, with_hostile=True)
        ended, middle = time.monotonic(), began + arguments.seconds / 2
        memory.stop()
        before, after = memory.most(0, middle), memory.most(middle, ended)
        failures = result.failures[:]
        time.sleep(1)
        if busy := server.busy_slots():
            failures.append(f"{busy} slots are in use when all clients are gone")
        status = server.terminate()
        if status:
            failures.append(f"the server ended with {status}:\n{server.output()}")
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(result.counts.items()))
    print(f"load: {counts}; {result.tokens() / result.seconds:.0f} tokens/s; {len(result.failures)} failed")
    print(f"load: memory without the model: {before:.0f} MiB at most in the first half, {after:.0f} in the second")
    if after > before + GROWTH:
        failures.append(f"memory grew from {before:.0f} to {after:.0f} MiB")
    return failures


def cancellation(arguments):
    """A client that goes away frees its slot."""
    with Server(rope_cpu(4, workload.context(arguments.long))) as server:
        times = release_times(server.wait(), arguments.long, 5)
    print("load: ms until the slot of a client that went away is free: " + ", ".join(f"{1e3 * t:.0f}" for t in times))
    # A micro-batch takes less on any machine; reading the prompt to its end does not.
    return [f"slots were free after {max(times):.1f} s"] if max(times) > 2 else []


def release_times(server, long, count):
    """Seconds from the end of a connection, while its prompt is read, until no slot is in use."""
    times = []
    for seed in range(count):
        body = workload.body(long, 16, 2 * 10**6 + seed) | {"return_progress": True}
        client.chat(server.base, body, stop_at_progress=True)
        began = time.monotonic()
        while server.busy_slots():
            time.sleep(0.002)
        times.append(time.monotonic() - began)
    return times


CHECKS = {"1": slots, "2": first_token, "3": under_load, "4": cancellation, "5": several.check}
