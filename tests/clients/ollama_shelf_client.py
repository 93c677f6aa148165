"""ollama's Python client and a server of many models: list, show, ps, pull, copy, create, chat, embed, unload, delete."""

import os
import time

from ollama import Client, ResponseError

client = Client(os.environ["BASE_URL"], headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
messages = [{"role": "user", "content": "Say hello."}]


def names():
    return sorted(model.model for model in client.list().models)


def running():
    return [model.model for model in client.ps().models]


def wait_until_closed(name):
    for _ in range(100):
        if name not in running():
            return
        time.sleep(0.1)
    raise SystemExit(f"{name} is still open: {running()}")


assert names() == ["smollm2"] and running() == [], (names(), running())
shown = client.show("smollm2")
assert shown.details.family == "llama" and "completion" in shown.capabilities, shown

*steps, last = client.pull("local/SmolLM2-GGUF", stream=True)
assert last.status == "success" and any(step.total and step.completed is not None for step in steps), steps
pulled = "local/SmolLM2-GGUF:Q4_1"
assert pulled in names(), names()
assert client.pull(pulled).status == "success"

client.copy(pulled, "other")
*_, last = client.create(
    "brief", from_="smollm2", system="You answer briefly.", parameters={"num_predict": 4, "temperature": 0}, stream=True,
)
assert last.status == "success", last
shown = client.show("brief")
assert "num_predict 4" in shown.parameters, shown
assert names() == sorted(["brief", "other", pulled, "smollm2"]), names()

answer = client.chat("brief", messages)
assert answer.model == "brief" and answer.message.content and answer.eval_count <= 4, answer
parts = list(client.chat("brief", messages, stream=True))
assert parts[-1].done and "".join(part.message.content or "" for part in parts) == answer.message.content, parts
assert len(client.embed("smollm2", ["one", "two"]).embeddings) == 2
assert sorted(running()) == ["brief", "smollm2"], running()
assert client.generate("brief", keep_alive=0).done_reason == "unload"
wait_until_closed("brief")
client.chat("smollm2", messages, options={"num_predict": 1}, keep_alive=0)
wait_until_closed("smollm2")

for name in ("other", "brief", pulled):
    client.delete(name)
assert names() == ["smollm2"], names()
for refused, status in [
    (lambda: client.chat("none", messages), 404),
    (lambda: client.delete("none"), 404),
    (lambda: client.create("x", from_="smollm2", template="{{ .Prompt }}"), 400),
    (lambda: client.pull("none"), 400),
]:
    try:
        refused()
        raise SystemExit(f"the status {status} is missing")
    except ResponseError as error:
        assert error.status_code == status, error
