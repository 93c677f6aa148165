"""smolagents: an agent that calls tools and one that writes code, with and without a stream; errors."""

import os

from openai import BadRequestError
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool
from smolagents.monitoring import LogLevel


def model(**settings):
    return OpenAIModel("model", api_base=os.environ["BASE_URL"] + "/v1", api_key=os.environ["API_KEY"],
                       client_kwargs={"max_retries": 0}, temperature=0, max_tokens=60, **settings)


@tool
def temperature(city: str) -> str:
    """The temperature of a city.

    Args:
        city: The city.
    """
    return f"28 degrees in {city}"


def only_once(step, agent):
    """So small a model would call a tool for ever: after a call, the final answer is the only tool left."""
    agent.tools.pop("temperature", None)


def run(agent, model, **settings):
    agent = agent([temperature], model, max_steps=2, verbosity_level=LogLevel.OFF, **settings)
    return agent.run("How warm is it in Rome?", return_full_result=True)


# The form of the code is given: the model chooses the city.
form = r'Thought: I ask\.\n<code>\nfinal_answer\(temperature\("(Paris|Rome)"\)\)\n</code>'
for answer in [
    run(ToolCallingAgent, model(), step_callbacks=[only_once]),
    run(ToolCallingAgent, model(), step_callbacks=[only_once], stream_outputs=True),
    run(CodeAgent, model(extra_body={"regex": form}), stream_outputs=True),
]:
    assert answer.state == "success", answer
    assert answer.output == "28 degrees in Rome", answer.output
    assert answer.token_usage.input_tokens > 0 and answer.token_usage.output_tokens > 0, answer.token_usage

try:
    model(top_p=7).generate([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}])
    raise SystemExit("a top_p of 7 was accepted")
except BadRequestError as error:
    assert "top_p" in error.message, error
