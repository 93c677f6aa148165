"""The conversations that every template renders."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the weather of a place; \"now\" <or> later.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, é or 語"},
                "days": {"type": "integer"},
                "units": {"type": "string", "enum": ["metric", "imperial"]},
            },
            "required": ["place"],
        },
    },
}
TIME = {
    "type": "function",
    "function": {"name": "get_time", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, TIME]


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text="", **others):
    return {"role": "assistant", "content": text, **others}


def call(name, arguments, number=1):
    # Templates of Mistral models require nine letters and digits.
    return {"id": f"abcdef00{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, number=1, name="get_weather"):
    return {"role": "tool", "content": text, "tool_call_id": f"abcdef00{number}", "name": name}


ONE = call("get_weather", {"place": "Zürich \"x\" <y>\n2", "days": 3})
TWO = call("get_time", {}, 2)
DEEP = call("get_weather", {"place": "a", "days": 1.5, "flag": True, "none": None, "list": [1, {"b": "c"}]})

# Messages, tools, whether the answer begins, arguments.
CONVERSATIONS = {
    "user": ([user("Hello!")], [], True, {}),
    "no prompt": ([user("Hello!"), assistant("Hi.")], [], False, {}),
    "system": ([system("Be brief."), user("Hello!")], [], True, {}),
    "turns": (
        [system("Be brief.\n"), user(" One "), assistant("\n1\n"), user("Two"), assistant("2"), user("<b>&'é\u2028")],
        [],
        True,
        {},
    ),
    "developer": ([{"role": "developer", "content": "Be brief."}, user("Hello!")], [], True, {}),
    "two users": ([user("a"), user("b")], [], True, {}),
    "assistant first": ([assistant("I begin")], [], True, {}),
    "no thinking": ([user("Hello!")], [], True, {"enable_thinking": False}),
    "thinking": ([user("Hello!")], [], True, {"enable_thinking": True}),
    "thoughts": (
        [user("Why?"), assistant("So.", reasoning_content="Hm.\nYes."), user("And?"),
         assistant("Thus.", reasoning_content="Again.")],
        [],
        False,
        {},
    ),
    "thoughts in text": (
        [user("Why?"), assistant("<think>\nHm.\n</think>\n\nSo."), user("And?")], [], True, {}
    ),
    "tools": ([user("Weather?")], TOOLS, True, {}),
    "tools, system": ([system("Be brief."), user("Weather?")], TOOLS, True, {}),
    "call": ([user("Weather?"), assistant(tool_calls=[ONE])], TOOLS, False, {}),
    "call, result": ([user("Weather?"), assistant(tool_calls=[ONE]), result("sunny")], TOOLS, True, {}),
    "call without arguments": (
        [user("Time?"), assistant(tool_calls=[TWO]), result("noon", 2, "get_time")], TOOLS, True, {}
    ),
    "call, deep": ([user("Weather?"), assistant(tool_calls=[DEEP]), result('{"a": 1}')], TOOLS, True, {}),
    "calls": (
        [user("Both?"), assistant(tool_calls=[ONE, TWO]), result("sunny"), result("noon", 2, "get_time"),
         assistant("Sunny noon."), user("Thanks!")],
        TOOLS,
        True,
        {},
    ),
    "call, text": (
        [user("Weather?"), assistant("Let me see.", tool_calls=[ONE]), result("sunny")], TOOLS, True, {}
    ),
    "call, thoughts": (
        [user("Weather?"), assistant(reasoning_content="I must ask.", tool_calls=[ONE]), result("sunny")],
        TOOLS,
        True,
        {},
    ),
    "call without tools": ([user("Weather?"), assistant(tool_calls=[ONE]), result("sunny")], [], True, {}),
}
