"""instructor: answers as validated objects, by a tool and by a JSON schema, whole and in parts."""

import os
from typing import Literal

import instructor
from instructor.core.exceptions import InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel, Field


class Weather(BaseModel):
    city: str = Field(max_length=20)
    sky: Literal["clear", "cloudy"]
    degrees: int = Field(ge=-40, le=50)


openai = OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key=os.environ["API_KEY"], max_retries=0)
common = dict(model="model", max_tokens=200, temperature=0, response_model=Weather, max_retries=0,
              messages=[{"role": "user", "content": "It is 21 degrees in Paris, with a clear sky."}])

for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(openai, mode=mode)
    weather, answer = client.create_with_completion(**common)
    assert isinstance(weather, Weather), weather
    assert answer.usage.completion_tokens > 0, answer
    *_, last = client.create_partial(**common)
    assert last.model_dump() == weather.model_dump(), (last, weather)

try:
    client.create(**{**common, "max_tokens": -2})
    raise SystemExit("a negative max_tokens was accepted")
except InstructorRetryException as error:
    assert "max_tokens" in str(error), error
