"""ollama's Python client: list, show, chat, streaming, generate, errors."""

import os

from ollama import Client, ResponseError

client = Client(os.environ["BASE_URL"], headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
model = client.list().models[0].model
assert client.show(model).details.format == "gguf"
options = {"temperature": 0, "num_predict": 8}
messages = [{"role": "user", "content": "Say hello."}]

answer = client.chat(model, messages, options=options)
text = answer.message.content
assert text and answer.done and answer.eval_count <= 8, answer
streamed = "".join(part.message.content or "" for part in client.chat(model, messages, options=options, stream=True))
assert streamed == text, (streamed, text)
assert client.generate(model, "The sun is", options=options).response

try:
    client.chat(model, messages, options={"num_ctx": 1 << 20})
    raise SystemExit("a context larger than the server's was accepted")
except ResponseError as error:
    assert error.status_code == 400, error
