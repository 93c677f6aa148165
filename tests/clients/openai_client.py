"""OpenAI's Python client: models, chat, streaming, text completions, errors."""

import os

from openai import AuthenticationError, BadRequestError, OpenAI

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]
client = OpenAI(base_url=base + "/v1", api_key=key)
model = client.models.list().data[0].id
messages = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": [{"type": "text", "text": "Say hello."}]},
]

answer = client.chat.completions.create(model=model, messages=messages, max_tokens=8, temperature=0)
text = answer.choices[0].message.content
assert text and answer.choices[0].finish_reason in ("stop", "length")
assert 0 < answer.usage.completion_tokens <= 8

stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=8, temperature=0, stream=True,
    stream_options={"include_usage": True}, logprobs=True, top_logprobs=2)
streamed, usage, likely = "", None, 0
for chunk in stream:
    for choice in chunk.choices:
        streamed += choice.delta.content or ""
        if choice.logprobs:
            likely += len(choice.logprobs.content[0].top_logprobs)
    usage = chunk.usage or usage
assert streamed == text, (streamed, text)
assert usage.completion_tokens == answer.usage.completion_tokens and likely > 0

several = client.chat.completions.create(model=model, messages=messages, max_tokens=4, n=3, seed=1)
assert [choice.index for choice in several.choices] == [0, 1, 2]

completion = client.completions.create(model=model, prompt="The sun is", max_tokens=4, temperature=0)
assert completion.choices[0].text

try:
    client.chat.completions.create(model=model, messages=[{"role": "nobody", "content": "x"}])
    raise SystemExit("an unknown role was accepted")
except BadRequestError as error:
    assert "role" in str(error)

try:
    client.completions.create(model=model, prompt="word " * 10000)
    raise SystemExit("a prompt longer than the context was accepted")
except BadRequestError as error:
    assert error.body["n_ctx"] == 8192 and error.body["n_prompt_tokens"] > 8192, error.body

try:
    OpenAI(base_url=base + "/v1", api_key="wrong", max_retries=0).models.list()
    raise SystemExit("a wrong key was accepted")
except AuthenticationError:
    pass
