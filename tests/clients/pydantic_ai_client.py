"""pydantic-ai over both of OpenAI's interfaces: objects by a tool and by a schema, an agent's tool, a stream, errors."""

import asyncio
import os
from typing import Literal

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

client = AsyncOpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key=os.environ["API_KEY"], max_retries=0)
provider = OpenAIProvider(openai_client=client)
question = "How warm is it in Rome?"


class Warmth(BaseModel):
    city: Literal["Paris", "Rome"]
    degrees: int


def agent(model, output, **settings):
    return Agent(model("model", provider=provider), output_type=output, retries=0,
                 model_settings=dict(temperature=0, max_tokens=60, **settings))


async def objects(model):
    for output in (ToolOutput(Warmth), NativeOutput(Warmth)):
        run = await agent(model, output).run(question)
        assert run.output.city == "Rome", run.output
        usage = run.usage
        assert usage.requests == 1 and usage.input_tokens > 0 and 0 < usage.output_tokens <= 60, usage
        async with agent(model, output).run_stream(question) as stream:
            assert await stream.get_output() == run.output
            assert stream.usage.output_tokens == usage.output_tokens, (stream.usage, usage)


async def tool(model):
    """The first answer is a call, and the form of the second one is given."""
    def settings(context):
        if context.run_step == 1:
            return dict(temperature=0, max_tokens=60, tool_choice="required")
        form = {"regex": r"It is [0-9]+ degrees in (Paris|Rome)\."}
        return dict(temperature=0, max_tokens=60, tool_choice="none", extra_body=form)

    guide = Agent(model("model", provider=provider), retries=0, model_settings=settings)

    @guide.tool_plain
    def temperature(city: Literal["Paris", "Rome"]) -> str:
        """The temperature of a city."""
        return f"28 degrees in {city}"

    run = await guide.run(question)
    returned = [part for message in run.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in returned] == ["28 degrees in Rome"], run.all_messages()
    assert run.output == "It is 28 degrees in Rome." and run.usage.requests == 2, run.output


async def main():
    for model in (OpenAIChatModel, OpenAIResponsesModel):
        await objects(model)
        await tool(model)
        try:
            await agent(model, str, top_p=7).run(question)
            raise SystemExit("a top_p of 7 was accepted")
        except ModelHTTPError as error:
            assert error.status_code == 400 and "top_p" in str(error), error


asyncio.run(main())
