"""OpenAI's Agents SDK over both of OpenAI's interfaces: an agent calls a tool and answers with its result; errors."""

import asyncio
import os
from typing import Literal

from agents import (
    Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, ToolCallItem,
    ToolCallOutputItem, function_tool, set_tracing_disabled)
from openai import AsyncOpenAI, BadRequestError

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key=os.environ["API_KEY"], max_retries=0)
question = "How warm is it in Rome?"


def guide(model, **settings):
    settings = ModelSettings(temperature=0, max_tokens=60, tool_choice="required", include_usage=True, **settings)

    # So small a model would call a tool for ever: after a call there is none, and the answer's form is given.
    @function_tool(is_enabled=lambda context, agent: not settings.extra_body)
    def temperature(city: Literal["Paris", "Rome"]) -> str:
        """The temperature of a city."""
        settings.extra_body = {"regex": r"It is [0-9]+ degrees in (Paris|Rome)\."}
        return f"28 degrees in {city}"

    return Agent(name="guide", tools=[temperature], model=model("model", client), model_settings=settings)


async def main():
    for model in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        run = await Runner.run(guide(model), question)
        assert run.final_output == "It is 28 degrees in Rome.", run.final_output
        kinds = [type(item) for item in run.new_items]
        assert kinds[:2] == [ToolCallItem, ToolCallOutputItem], kinds
        usage = run.context_wrapper.usage
        assert usage.requests == 2 and usage.input_tokens > 0 and usage.output_tokens > 0, usage

        streamed = Runner.run_streamed(guide(model), question)
        text = ""
        async for event in streamed.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        assert text == streamed.final_output == run.final_output, text
        of_stream = streamed.context_wrapper.usage
        assert of_stream.input_tokens == usage.input_tokens, (of_stream, usage)
        assert of_stream.output_tokens == usage.output_tokens, (of_stream, usage)

        try:
            await Runner.run(guide(model, top_p=7), question)
            raise SystemExit("a top_p of 7 was accepted")
        except BadRequestError as error:
            assert "top_p" in error.message, error


asyncio.run(main())
