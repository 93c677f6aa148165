"""A client of chat completions that streams, and notes when each part arrives."""
import dataclasses
import http.client
import json
import time
import urllib.parse


@dataclasses.dataclass
class Answer:
    """What came back for a request, with times in seconds."""

    sent: float
    status: int = 0
    headers: dict = dataclasses.field(default_factory=dict)
    text: str = ""
    usage: dict = dataclasses.field(default_factory=dict)
    timings: dict = dataclasses.field(default_factory=dict)
    finish: str | None = None
    done: bool = False
    # When each part of the answer arrived, and each report of progress with the tokens read by then.
    parts: list = dataclasses.field(default_factory=list)
    progress: list = dataclasses.field(default_factory=list)
    ended: float = 0.0
    error: str | None = None

    @property
    def first(self):
        """From the request to the first text."""
        return self.parts[0] - self.sent

    @property
    def between(self):
        """Between two parts of the text."""
        return [later - earlier for earlier, later in zip(self.parts, self.parts[1:])]

    def wrong(self, tokens):
        """Why this is not a whole answer of `tokens` tokens, or None if it is."""
        if self.error or self.status != 200:
            return self.error or f"status {self.status}: {self.text[:200]}"
        if not self.done or self.finish != "length":
            return f"the stream ended early (finish_reason {self.finish}) after {len(self.parts)} parts"
        if self.usage.get("completion_tokens") != tokens or not self.text:
            return f"{self.usage} in place of {tokens} tokens"
        return None


def chat(base, body, stop_after=None, stop_at_progress=False, answer=None, timeout=300):
    """Posts a chat completion and reads its stream, into `answer` if it is given. With `stop_after`, closes the connection
    after as many parts (0: soon after the request); with `stop_at_progress`, after the first report of progress."""
    answer = answer or Answer(0)
    answer.sent = time.monotonic()
    url = urllib.parse.urlparse(base)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        if stop_after == 0:
            time.sleep(0.05)
            return answer
        response = connection.getresponse()
        answer.status, answer.headers = response.status, response.headers
        if response.status != 200:
            answer.text = response.read().decode(errors="replace")
            return answer
        while line := response.readline():
            if line.startswith(b"data: ") and take(answer, line[6:].strip()):
                break
            if stop_after and len(answer.parts) >= stop_after or stop_at_progress and answer.progress:
                break
    except (OSError, http.client.HTTPException) as error:
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
        answer.ended = time.monotonic()
    return answer


def complete(base, body):
    """Posts a chat completion and waits for the whole answer: of the client, this takes next to no time."""
    answer = Answer(time.monotonic())
    body = {name: value for name, value in body.items() if not name.startswith("stream")}
    answer.status, answer.text = post(base, "/v1/chat/completions", body)
    if answer.status == 200:
        whole = json.loads(answer.text)
        answer.done, answer.usage, answer.finish = True, whole["usage"], whole["choices"][0]["finish_reason"]
    return answer


def take(answer, data):
    """Adds an event to an answer; returns whether it was the last one."""
    now = time.monotonic()
    if data == b"[DONE]":
        answer.done = True
        return True
    event = json.loads(data)
    if "error" in event:
        answer.error = f"error in the stream: {event['error']}"
        return True
    if progress := event.get("prompt_progress"):
        answer.progress.append((now, progress["processed"]))
    answer.usage = event.get("usage") or answer.usage
    answer.timings = event.get("timings") or answer.timings
    for choice in event.get("choices", []):
        answer.finish = choice.get("finish_reason") or answer.finish
        delta = choice.get("delta", {})
        answer.text += delta.get("content") or ""
        if any(delta.get(part) for part in ("content", "reasoning_content", "tool_calls")):
            answer.parts.append(now)
    return False


def get(base, path, timeout=60):
    """The status and the body of a GET request."""
    return request(base, "GET", path, None, timeout)


def post(base, path, body, timeout=300):
    """The status and the text of the answer to a body of JSON."""
    status, text = request(base, "POST", path, json.dumps(body), timeout)
    return status, text.decode()


def request(base, method, path, body, timeout):
    url = urllib.parse.urlparse(base)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
