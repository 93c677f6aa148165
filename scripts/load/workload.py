"""What the clients ask: short and long prompts, answers that are not waited for, and hostile requests."""
import itertools
import random
import socket
import threading
import time

# Each is one token with the blank before it, so that prompts have known lengths.
WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand part "
    "place case week company system program question work government number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father power"
).split()
SHORT, SHORT_ANSWER, LONG_ANSWER = 24, 48, 16
# Of 16 requests: well-formed ones, and those whose clients leave, at once, while the prompt is read, or in the answer.
BLOCK = ["short"] * 11 + ["long"] * 2 + ["leaves at once", "leaves while reading", "leaves in the answer"]


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
    """An endless list of (kind, seed), the same for every server, from which all clients take the next one."""

    def __init__(self, hostile):
        self.lock = threading.Lock()
        self.requests = self.endless(BLOCK + ["hostile"] * 3 if hostile else BLOCK)

    @staticmethod
    def endless(block):
        order = random.Random(1)
        seeds = itertools.count(1)
        while True:
            kinds = block[:]
            order.shuffle(kinds)
            yield from ((kind, next(seeds)) for kind in kinds)

    def next(self):
        with self.lock:
            return next(self.requests)


def post(text, path="/v1/chat/completions", headers=""):
    data = text if isinstance(text, bytes) else text.encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def asking(fields):
    return post('{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, ' + fields + "}")


# Each has to be refused with a status from 400 to 499.
REFUSED = {
    "cut JSON": post('{"messages": [{"role": "user", '),
    "deep JSON": post("[" * 200_000),
    "no UTF-8": post(b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'),
    "an empty body": post(""),
    "an empty chat": post('{"messages": []}'),
    "messages that are a number": post('{"messages": 5}'),
    "content that is an object": post('{"messages": [{"role": "user", "content": {"a": 1}}]}'),
    "an unknown role": post('{"messages": [{"role": "nobody", "content": "Hi"}]}'),
    "NaN": asking('"temperature": NaN'),
    "a number beyond all": asking('"temperature": 1e999'),
    "a huge n": asking('"n": 1000000000'),
    "a text for max_tokens": asking('"max_completion_tokens": "many"'),
    "a bad schema": asking('"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}'),
    "a bad grammar": asking('"grammar": "root ::= ("'),
    "a grammar without end": asking('"grammar": "root ::= root"'),
    "a prompt beyond the context": post('{"messages": [{"role": "user", "content": "' + "time " * 20_000 + '"}]}'),
    "an empty prompt": post('{"prompt": "", "max_tokens": 4}', "/v1/completions"),
    "a token that is none": post('{"prompt": [99999999], "n_predict": 4}', "/completion"),
    "an unknown path": post("{}", "/v1/nothing"),
    "a wrong method": b"DELETE /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "another host": post("{}").replace(b"localhost", b"evil.example"),
    "a huge header": post("{}", headers=f"X-Long: {'x' * 1_000_000}\r\n"),
    "a body beyond the limit": post("{}").replace(b"Content-Length: 2", b"Content-Length: 99999999999"),
}
# Each is no whole request: that the server stays as it is suffices.
BROKEN = {
    "no HTTP": b"\x16\x03\x01\x02\x00" * 50,
    "a wrong chunk": b"POST /completion HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a body that ends early": post("{}").replace(b"Content-Length: 2", b"Content-Length: 2000"),
    "a slow body": None,
}


def hostile(port, seed):
    """Sends a hostile request. Returns its name, and what is wrong with the server's reaction or None."""
    names = [*REFUSED, *BROKEN]
    name = names[seed % len(names)]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            if name == "a slow body":
                for byte in post('{"messages": 5}')[:100]:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.02)
                return name, None
            connection.sendall(REFUSED.get(name) or BROKEN[name])
            if name in BROKEN:
                connection.shutdown(socket.SHUT_WR)
            status = connection.makefile("rb").readline()
    except (BrokenPipeError, ConnectionResetError):
        # The server need not read all of it.
        return name, None if name in ("a huge header", *BROKEN) else "the connection broke"
    except OSError as error:
        return name, f"{type(error).__name__}: {error}"
    refused = status.startswith(b"HTTP/1.1 4")
    return name, None if refused or name in BROKEN else f"answered with {status!r}"
