"""LiteLLM, as its proxy sends requests to an OpenAI-compatible server."""

import os

# Its table of prices comes with the package: nothing is downloaded.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

litellm.telemetry = False
common = dict(
    model="openai/model", api_base=os.environ["BASE_URL"] + "/v1", api_key=os.environ["API_KEY"],
    messages=[{"role": "user", "content": "Say hello."}], max_tokens=8, temperature=0)
text = litellm.completion(**common).choices[0].message.content
assert text
streamed = "".join(
    chunk.choices[0].delta.content or "" for chunk in litellm.completion(**common, stream=True))
assert streamed == text, (streamed, text)
