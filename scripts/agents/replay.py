"""The requests of the trace, trace.json: a conversation that grows, and what an agent does to it on the way."""
import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path

TRACE = json.loads((Path(__file__).parent / "trace.json").read_text())
THOUGHTS = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
CLEARED = "[old result cleared to save room]"


@dataclass
class Request:
    turn: int  # 0 for one on the side
    messages: list
    after_restart: bool
    tools: bool


def requests():
    """Yields the requests in order. Their assistant messages are the trace's, so all servers read the same text."""
    conversation, turn = [], 0
    for step in TRACE["steps"]:
        if "aside" in step:
            yield Request(0, step["aside"], False, tools=False)
            continue
        if step.get("drop_thoughts"):
            for message in conversation:
                if message["role"] == "assistant":
                    message["content"] = THOUGHTS.sub("", message["content"])
        results = [message for message in conversation if message["role"] == "tool"]
        for message in results[: step.get("clear_results", 0)]:
            message["content"] = CLEARED
        conversation += copy.deepcopy(step["messages"])
        turn += 1
        yield Request(turn, copy.deepcopy(conversation), step.get("restart", False), tools=True)


def body(request):
    """What is posted: a short answer, the likeliest one."""
    tools = {"tools": TRACE["tools"]} if request.tools else {}
    return {"model": "any", "messages": request.messages, **tools, "max_tokens": 32, "temperature": 0, "stream": True}
