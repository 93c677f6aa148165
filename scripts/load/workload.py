"""The clients' requests: short and long prompts, some of them cancelled."""
import itertools
import random
import threading

# Each is one token with the blank before it, so that prompts have known lengths.
WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand part "
    "place case week company system program question work government number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father power"
).split()
SHORT, SHORT_ANSWER, LONG_ANSWER = 24, 48, 16
# Of 16 requests: well-formed ones, and ones with clients that disconnect: at once, during prompt processing, or in
# the answer.
BLOCK = ["short"] * 11 + ["long"] * 2 + ["leaves at once", "leaves while reading", "leaves in the answer"]


def context(long):
    """The context in which every request of the load fits."""
    return long + 1120


def body(words, tokens, seed):
    """A chat whose prompt has about `words` tokens that no other seed's prompt begins with."""
    text = " ".join(random.Random(seed).choices(WORDS, k=words))
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class Requests:
    """An endless list of (kind, seed), the same for every server, from which all clients take the next one. `others` are
    more kinds, one of each for a block of requests."""

    def __init__(self, others=()):
        self.lock = threading.Lock()
        self.requests = self.endless(others)

    @staticmethod
    def endless(others):
        order = random.Random(1)
        seeds = itertools.count(1)
        while True:
            kinds = [*BLOCK, *others]
            order.shuffle(kinds)
            yield from ((kind, next(seeds)) for kind in kinds)

    def next(self):
        with self.lock:
            return next(self.requests)
