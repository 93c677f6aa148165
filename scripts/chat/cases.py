"""The cases of llama.cpp's tests/test-chat.cpp that are written as literals: `tst.test("...").tools({...})...run()`.

Enough of C++ is read for this: strings, names, lists, and calls of functions and methods.
"""
import dataclasses
import json
import pathlib
import re

TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"
  | "(?P<text>(?:[^"\\]|\\.)*)"
  | (?P<char>'(?:[^'\\]|\\.)+')
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*(?:::[A-Za-z_][A-Za-z_0-9]*)*)
  | (?P<number>[0-9][0-9a-zA-Z.]*)
  | (?P<sign>->|.)
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}


@dataclasses.dataclass
class Case:
    """An answer with what it is expected to be."""

    template: str
    line: int
    answer: str
    tools: list
    messages: list
    arguments: dict
    add_generation_prompt: bool
    is_partial: bool
    reasons: bool
    text: str
    reasoning: str
    # Name and arguments of each.
    calls: list


class Unknown(Exception):
    """An expression that is not a literal."""


def unescape(text):
    def character(match):
        escape = match[1]
        if escape[0] in "xuU":
            return chr(int(escape[1:], 16))
        return ESCAPES[escape]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", character, text, flags=re.DOTALL)


def tokens(source):
    """(kind, value, line) of each token."""
    line, found = 1, []
    for match in TOKEN.finditer(source):
        if match["space"] is None:
            for kind in ("raw", "text", "char", "name", "number", "sign"):
                if match[kind] is not None:
                    value = unescape(match["text"]) if kind == "text" else match[kind]
                    found.append(("text" if kind == "raw" else kind, value, line))
                    break
        line += match[0].count("\n")
    return found


class Reader:
    """Expressions from tokens."""

    def __init__(self, found, names):
        self.tokens, self.at, self.names = found, 0, names

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead][:2] if self.at + ahead < len(self.tokens) else (None, None)

    def take(self, value=None):
        kind, found = self.peek()
        if value is not None and found != value:
            raise Unknown(f"{found!r} instead of {value!r}")
        self.at += 1
        return kind, found

    def expression(self):
        value = self.operand()
        while self.peek() == ("sign", "+"):
            self.take()
            other = self.operand()
            if not isinstance(value, str) or not isinstance(other, str):
                raise Unknown("a sum")
            value += other
        return value

    def operand(self):
        kind, value = self.take()
        if kind == "text":
            while self.peek()[0] == "text":
                value += self.take()[1]
            return value
        if kind == "number":
            return int(value, 0)
        if kind == "name" and value in ("true", "false"):
            return value == "true"
        if (kind, value) == ("sign", "{"):
            return self.list("}")
        if kind == "name" and self.peek() == ("sign", "("):
            self.take()
            return call(value, self.list(")"))
        if kind == "name" and self.peek() == ("sign", "{"):
            self.take()
            return call(value, self.list("}"))
        if kind == "name":
            if value in self.names:
                return self.names[value]
            if "::" in value or value.isupper():
                return value
        raise Unknown(f"{value!r}")

    def list(self, end):
        values = []
        while self.peek() != ("sign", end):
            values.append(self.expression())
            if self.peek() == ("sign", ","):
                self.take()
        self.take()
        return values


def message(text="", reasoning="", name="", arguments="", _id=""):
    calls = [(name, arguments)] if name else []
    return {"text": text, "reasoning": reasoning, "calls": calls}


def several(reasoning, text, calls):
    return {"text": text, "reasoning": reasoning, "calls": [tuple(call[:2]) for call in calls]}


FUNCTIONS = {
    "std::string": lambda text: text,
    "simple_assist_msg": message,
    "message_with_tool_calls": lambda name, arguments: message("", "", name, arguments),
    "message_with_tool_calls_and_reasoning": lambda name, arguments, why: message("", why, name, arguments),
    "message_with_content_and_tool_call": lambda text, name, arguments: message(text, "", name, arguments),
    "message_with_reasoning_and_tool_call": lambda why, name, arguments: message("", why, name, arguments),
    "message_with_reasoning_content_and_multiple_tool_calls": several,
}


def call(name, arguments):
    if name not in FUNCTIONS:
        raise Unknown(name)
    return FUNCTIONS[name](*arguments)


def tool(name, description, parameters=""):
    parameters = json.loads(parameters) if parameters else {}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def definitions(found):
    """The tools, messages and texts of the file, by name."""
    names = {}
    types = ("common_chat_tool", "common_chat_msg", "std::string", "*")
    for at, (_, value, _) in enumerate(found[:-2]):
        (kind, name, _), (_, sign, _) = found[at + 1], found[at + 2]
        if value not in types or kind != "name" or sign not in ("{", "="):
            continue
        reader = Reader(found, names)
        reader.at = at + 3
        try:
            if sign == "=":
                names[name] = reader.expression()
            elif value == "common_chat_tool":
                names[name] = tool(*reader.list("}"))
        except (Unknown, TypeError):
            continue
    return names


USER = {"role": "user", "content": "Hey there!"}


def cases(path):
    """The cases, and the number of tests that are not written as literals."""
    found = tokens(path.read_text())
    names = {**definitions(found), "message_user": USER}
    loops = values_of_loops(found)
    result, others, templates = [], 0, {}
    for at, (kind, value, line) in enumerate(found[:-4]):
        next_signs = [token[1] for token in found[at + 1 : at + 4]]
        if value == "peg_tester" and next_signs[0] == "(" and found[at - 1][1] == "=":
            kind, argument, _ = found[at + 2]
            paths = [argument] if kind == "text" else loops.get(argument, [])
            templates[found[at - 2][1]] = [pathlib.PurePath(path).name for path in paths]
        if kind == "name" and value in templates and next_signs == [".", "test", "("]:
            reader = Reader(found, names)
            reader.at = at + 1
            try:
                steps = chain(reader)
                result += [case(template, line, steps) for template in templates[value]]
            except (Unknown, TypeError, ValueError):
                others += 1
    return result, others


def values_of_loops(found):
    """The texts of `for (auto & name : { "a", "b" })`, and of the functions called with `name`."""
    values = {}
    for at, (kind, value, _) in enumerate(found[:-3]):
        if kind == "name" and [found[at + 1][1], found[at + 2][1]] == [":", "{"]:
            reader = Reader(found, {})
            reader.at = at + 3
            try:
                values[value] = reader.list("}")
            except Unknown:
                continue
    # The parameter of test_lfm2_parser.
    values.setdefault("template_path", values.get("tmpl", []))
    return values


def chain(reader):
    """The methods that a test calls, each with its arguments."""
    steps = []
    while reader.peek() == ("sign", "."):
        reader.take()
        _, method = reader.take()
        reader.take("(")
        steps.append((method, reader.list(")")))
    return steps


def case(template, line, steps):
    expected = {"text": "", "reasoning": "", "calls": []}
    fields = dict(
        tools=[], messages=[USER], add_generation_prompt=True, is_partial=False, reasons=False
    )
    thinks = True
    for method, arguments in steps:
        value = arguments[0] if arguments else None
        match method:
            case "test":
                fields["answer"] = value
            case "tools":
                fields[method] = [tool(*given) if isinstance(given, list) else given for given in value]
            case "messages" | "add_generation_prompt" | "is_partial":
                fields[method] = value
            case "enable_thinking":
                thinks = value
            case "reasoning_format":
                fields["reasons"] = not value.endswith("NONE")
            case "expect":
                expected = dict(value)
            case "expect_content":
                expected["text"] = value
            case "expect_reasoning":
                expected["reasoning"] = value
            case "expect_tool_calls":
                expected["calls"] = [tuple(call[:2]) for call in value]
            case "run" | "expect_reconstruction" | "parallel_tool_calls" | "tool_choice" | "json_schema":
                pass
            case _:
                # Such as continue_final_message: what the server adds is not part of an answer.
                raise Unknown(method)
    return Case(template, line, arguments={"enable_thinking": thinks}, **fields, **expected)
