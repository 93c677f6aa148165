"""Anthropic's Python client: messages, streaming, counting, errors."""

import os

from anthropic import Anthropic, BadRequestError

client = Anthropic(base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"], max_retries=0)
common = dict(model="model", max_tokens=8, extra_body={"temperature": 0}, system="You are brief.",
              messages=[{"role": "user", "content": "Say hello."}])

answer = client.messages.create(**common)
text = answer.content[0].text
assert text and answer.stop_reason in ("end_turn", "max_tokens"), answer
assert 0 < answer.usage.output_tokens <= 8

with client.messages.stream(**common) as stream:
    streamed = "".join(stream.text_stream)
assert streamed == text, (streamed, text)

count = client.messages.count_tokens(
    model="model", system=common["system"], messages=common["messages"]).input_tokens
assert count == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0), count

try:
    client.messages.create(**{**common, "messages": [{"role": "nobody", "content": "x"}]})
    raise SystemExit("an unknown role was accepted")
except BadRequestError as error:
    assert error.body["type"] == "error", error.body
