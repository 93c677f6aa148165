"""Requests that are malformed, or meant to harm."""
import socket
import time


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
    "messages that are a number": post('{"messages": 5}'),
    "content that is an object": post('{"messages": [{"role": "user", "content": {"a": 1}}]}'),
    "an unknown role": post('{"messages": [{"role": "nobody", "content": "Hi"}]}'),
    "NaN": asking('"temperature": NaN'),
    "a number beyond all": asking('"temperature": 1e999'),
    "a number of tokens beyond 64 bits": asking('"n_predict": 1e30'),
    "a seed of a thousand digits": asking('"seed": ' + "9" * 1000),
    "a bias of a token that is none": asking('"logit_bias": {"99999999": 1}'),
    "an adapter that is none": asking('"lora": [{"id": 99, "scale": 1}]'),
    "a bad regular expression": asking('"regex": "a{2,1}("'),
    "a tool that is a number": asking('"tools": [7]'),
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


def send(port, index):
    """Sends one of the hostile requests. Returns its name, and what is wrong with the server's reaction or None."""
    names = [*REFUSED, *BROKEN]
    name = names[index % len(names)]
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
    except OSError as error:
        # The server need not read all of what it refuses.
        may_break = name == "a huge header" or name in BROKEN
        return name, None if may_break and not isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
    refused = status.startswith(b"HTTP/1.1 4")
    return name, None if refused or name in BROKEN else f"answered with {status!r}"
