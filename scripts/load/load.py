"""The load: clients that take the next request as soon as they have an answer."""
import collections
import dataclasses
import threading
import time

import client
import hostile
import workload


@dataclasses.dataclass
class Result:
    """What came of a load. Times are in seconds."""

    seconds: float
    # The answers by the kind of the request, and how many requests there were of each.
    answers: dict
    counts: dict
    failures: list

    @property
    def whole(self):
        return self.answers["short"] + self.answers["long"]

    def tokens(self):
        return sum(answer.usage.get("completion_tokens", 0) for answer in self.whole)


def run(server, seconds, clients, long, with_hostile, others=None):
    """Loads a server for some seconds; requests that began by then are answered still. One more client is hostile.
    `others` are more kinds of requests: functions of the server and a seed, which return what is wrong or None."""
    others = others or {}
    requests = workload.Requests(others)
    began = time.monotonic()
    result = Result(0, collections.defaultdict(list), collections.Counter(), [])

    def ask():
        while time.monotonic() < began + seconds:
            kind, seed = requests.next()
            result.counts[kind] += 1
            if kind in others:
                wrong = others[kind](server, seed)
            else:
                answer, wrong = well_formed(server.base, kind, seed, long)
                result.answers[kind].append(answer)
            if wrong:
                result.failures.append(f"{kind} {seed}: {wrong}")

    def attack():
        while time.monotonic() < began + seconds:
            name, wrong = hostile.send(server.port, result.counts["hostile"])
            result.counts["hostile"] += 1
            if wrong:
                result.failures.append(f"{name}: {wrong}")
            time.sleep(0.1)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    if with_hostile:
        threads.append(threading.Thread(target=attack))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.seconds = time.monotonic() - began
    return result


def well_formed(base, kind, seed, long):
    """An answer, and what is wrong with it or None."""
    if kind == "short":
        answer = client.chat(base, workload.body(workload.SHORT, workload.SHORT_ANSWER, seed))
        return answer, answer.wrong(workload.SHORT_ANSWER)
    if kind == "long":
        answer = client.chat(base, workload.body(long, workload.LONG_ANSWER, seed))
        return answer, answer.wrong(workload.LONG_ANSWER)
    # These clients do not wait for what would be the longest answer of all.
    words, stop_after = {
        "leaves at once": (workload.SHORT, 0),
        "leaves while reading": (long, 0),
        "leaves in the answer": (workload.SHORT, 8),
    }[kind]
    answer = client.chat(base, workload.body(words, 1000, seed), stop_after=stop_after)
    return answer, answer.error or (answer.text if answer.status not in (0, 200) else None)
