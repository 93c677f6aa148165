"""LangChain with each of its three packages: answers, streams, tool calls, objects, counts, errors."""

import os
from typing import Literal

import anthropic
import ollama
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]


class Weather(BaseModel):
    """The weather of a place."""

    city: str = Field(max_length=20)
    sky: Literal["clear", "cloudy"]


@tool
def temperature(city: Literal["Paris", "Rome"]) -> int:
    """The temperature of a city, in degrees."""
    return {"Paris": 21, "Rome": 28}[city]


def openai_model(**settings):
    return ChatOpenAI(model="model", base_url=base + "/v1", api_key=key, temperature=0, max_tokens=60, max_retries=0,
                      stream_usage=True, **settings)


def responses_model(**settings):
    return openai_model(use_responses_api=True, **settings)


def anthropic_model(**settings):
    return ChatAnthropic(model="model", base_url=base, api_key=key, temperature=0, max_tokens=60, max_retries=0, **settings)


def ollama_model(**settings):
    return ChatOllama(model="model", base_url=base, temperature=0, num_predict=60,
                      client_kwargs={"headers": {"Authorization": f"Bearer {key}"}}, **settings)


for model, refusal in [
    (openai_model, openai.BadRequestError),
    (responses_model, openai.BadRequestError),
    (anthropic_model, anthropic.BadRequestError),
    (ollama_model, ollama.ResponseError),
]:
    name = model.__name__
    answer = model().invoke("Say hello.")
    whole = None
    for part in model().stream("Say hello."):
        whole = part if whole is None else whole + part
    assert answer.text and whole.text == answer.text, (name, whole, answer)
    for counted in ("input_tokens", "output_tokens"):
        count = answer.usage_metadata[counted]
        assert whole.usage_metadata[counted] == count > 0, (name, whole.usage_metadata, answer.usage_metadata)

    weather = model().with_structured_output(Weather).invoke("Paris has a clear sky.")
    assert isinstance(weather, Weather) and weather.city, (name, weather)

    # ollama's interface has no choice of tools, and so small a model seldom calls one by itself.
    if model is not ollama_model:
        question = HumanMessage("How warm is it in Rome?")
        call = model().bind_tools([temperature], tool_choice="any").invoke([question])
        assert [call["name"] for call in call.tool_calls] == ["temperature"], (name, call)
        result = temperature.invoke(call.tool_calls[0])
        assert isinstance(result, ToolMessage) and result.content in ("21", "28"), (name, result)
        assert model().invoke([question, call, result]).text, name

    try:
        model(top_p=7).invoke("Say hello.")
        raise SystemExit(f"{name}: a top_p of 7 was accepted")
    except refusal as error:
        assert "top_p" in str(error), (name, error)
