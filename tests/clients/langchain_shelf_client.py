"""langchain-ollama and a server of many models: a model by its name, tools, embeddings, an unknown name."""

import os

import ollama
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]
access = {"base_url": base, "client_kwargs": {"headers": {"Authorization": f"Bearer {key}"}}}


@tool
def temperature(city: str) -> int:
    """The temperature of a city, in degrees."""
    return {"Paris": 21, "Rome": 28}[city]


def model(name="smollm2", **settings):
    return ChatOllama(model=name, temperature=0, num_predict=40, **access, **settings)


question = HumanMessage("How warm is it in Rome? Call the tool temperature.")
with_tools = model(keep_alive="1m").bind_tools([temperature])
answer = with_tools.invoke([question])
# So small a model seldom calls a tool by itself: whichever it does, the answer has one of both.
assert answer.text or [call["name"] for call in answer.tool_calls] == ["temperature"], answer
assert answer.response_metadata["model"] == "smollm2", answer
call = AIMessage("", tool_calls=[{"id": "1", "name": "temperature", "args": {"city": "Rome"}}])
result = temperature.invoke(call.tool_calls[0])
assert isinstance(result, ToolMessage) and result.content == "28", result
last = with_tools.invoke([question, call, result])
assert last.text or last.tool_calls, last
whole = None
for part in with_tools.stream([question, call, result]):
    whole = part if whole is None else whole + part
assert whole.text == last.text, (whole, last)

embedded = OllamaEmbeddings(model="smollm2", **access).embed_documents(["one", "two"])
assert len(embedded) == 2 and len(embedded[0]) == len(embedded[1]) > 0
try:
    model("none").invoke("Say hello.")
    raise SystemExit("a model that does not exist answered")
except ollama.ResponseError as error:
    assert error.status_code == 404, error
