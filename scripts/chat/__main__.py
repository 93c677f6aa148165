"""Compares templates and answers with llama.cpp's corpus: see scripts/chat-conformance."""
import argparse
import datetime
import itertools
import json
import os
import pathlib
import subprocess
import sys

from cases import cases
from conversations import CONVERSATIONS
from original import Refused, environment

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LISTED = ROOT / "crates/chat/tests/data/conformance.txt"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BOS, EOS = "<s>", "</s>"
# Dates that both sides write.
DATES = {"date_string": "26 Nov 2026", "datetime": "Nov 26 2026"}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--verbose", action="store_true", help="print both sides of each difference")
    options.add_argument("--formats", action="store_true", help="print the format of calls of each template")
    options.add_argument("templates", nargs="*")
    options = options.parse_args()
    fetch = [ROOT / "scripts/fetch-llama-cpp", "models/templates/*", "tests/test-chat.cpp"]
    source = pathlib.Path(subprocess.check_output(fetch, text=True).strip())
    wanted = lambda name: not options.templates or any(part in name for part in options.templates)
    templates = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((source / "models/templates").glob("*.jinja"))
        if wanted(path.name)
    }
    found = []
    formats, differences = compare_renders(templates)
    found += differences
    answers, others = cases(source / "tests/test-chat.cpp")
    answers = [case for case in answers if case.template in templates]
    found += compare_answers(templates, answers)
    if options.formats:
        for name, form in sorted(formats.items()):
            print(f"{form:12} {name}")
    listed = listing()
    unlisted = [difference for difference in found if listed.isdisjoint(keys(difference))]
    present = {key for difference in found for key in keys(difference)}
    stale = [key for key in sorted(listed) if key not in present and wanted(key[0])]
    for name, what, expected, have in unlisted:
        print(f"{name}: {what}")
        if options.verbose:
            print(f"  want {expected}\n  have {have}")
    for name, what in stale:
        print(f"{name}: {what}: listed, but the same")
    renders = len(templates) * len(CONVERSATIONS)
    print(
        f"{len(templates)} templates, {renders} texts, {len(answers)} answers ({others} others are not literals): "
        f"{len(found)} differ, {len(unlisted)} of them unlisted"
    )
    sys.exit(bool(unlisted or stale))


# Conversations with tools or calls, as one: templates without tools differ in all of them.
WITH_TOOLS = "tools and calls"


def keys(difference):
    """The names that a difference may have in the list."""
    name, what = difference[:2]
    messages, tools = CONVERSATIONS.get(what, ([], []))[:2]
    with_tools = tools or any("tool_calls" in message for message in messages)
    return {(name, what), (name, WITH_TOOLS)} if with_tools else {(name, what)}


def listing():
    """The listed differences: `template: what, or what: reason`."""
    found = set()
    for line in LISTED.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, what, _ = line.split(": ", 2)
            found |= {(name, part) for part in what.split("; ")}
    return found


def ours(jobs):
    program = TARGET / "debug/examples/conformance"
    done = subprocess.run([program], input=json.dumps(jobs), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def job(source, messages, tools, prompt, arguments, **others):
    return {
        "template": source,
        "bos": BOS,
        "eos": EOS,
        "arguments": {**DATES, **arguments},
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": prompt,
        "answer": None,
        "is_partial": False,
        "reasons": True,
        **others,
    }


def compare_renders(templates):
    """The format of each template, and the conversations with another text."""
    formats, differences = {}, []
    pairs = list(itertools.product(templates.items(), CONVERSATIONS.items()))
    results = ours([job(source, *conversation) for (_, source), (_, conversation) in pairs])
    shapes = {name: shape(source) for name, source in templates.items()}
    for ((name, source), (what, conversation)), have in zip(pairs, results):
        formats[name] = have.pop("format", "none")
        expected = original(source, shapes[name], *conversation)
        # An error of the engine has other words in Python.
        if "fails" in have and "fails" in expected:
            continue
        if have != expected:
            differences.append((name, what, expected, have))
    return formats, differences


def shape(source):
    """How a template reads messages: whether arguments are objects, and texts are lists of parts."""
    _, tools, prompt, arguments = CONVERSATIONS["call"]
    messages = CONVERSATIONS["call"][0]
    for objects, parts in itertools.product((True, False), (False, True)):
        text = original(source, (objects, parts), messages, tools, prompt, arguments).get("text", "")
        if "Weather?" in text and "Z" in text and "'place'" not in text:
            return objects, parts
    return True, False


def original(source, form, messages, tools, prompt, arguments):
    """What Python's Jinja renders."""
    objects, parts = form
    env = environment()
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    messages = [shaped(message, source, objects, parts) for message in messages]
    try:
        template = env.from_string(source)
        text = template.render(
            messages=messages,
            tools=tools or None,
            documents=None,
            add_generation_prompt=prompt,
            bos_token=BOS,
            eos_token=EOS,
            **DATES,
            **arguments,
        )
        return {"text": text}
    except Refused as refused:
        return {"refused": str(refused)}
    except Exception as error:
        return {"fails": f"{type(error).__name__}: {error}"}


def shaped(message, source, objects, parts):
    message = dict(message)
    if message["role"] == "developer" and "developer" not in source:
        message["role"] = "system"
    if "message.thinking" in source and "reasoning_content" in message:
        message["thinking"] = message["reasoning_content"]
    if parts:
        message["content"] = [{"type": "text", "text": message["content"]}]
    if "tool_calls" in message and not objects:
        message["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return message


def compare_answers(templates, answers):
    jobs = [
        job(
            templates[case.template],
            case.messages,
            case.tools,
            case.add_generation_prompt,
            case.arguments,
            answer=case.answer,
            is_partial=case.is_partial,
            reasons=case.reasons,
        )
        for case in answers
    ]
    differences = []
    for case, have in zip(answers, ours(jobs)):
        answer = have.get("answer")
        expected = {
            "text": case.text.strip(),
            "reasoning": case.reasoning.strip(),
            "calls": [[name, plain(arguments)] for name, arguments in case.calls],
        }
        if answer and "calls" in answer:
            have = {
                "text": answer["text"].strip(),
                "reasoning": answer["reasoning"].strip(),
                "calls": [[name, plain(arguments)] for name, _, arguments in answer["calls"]],
            }
        if have != expected:
            what = f"line {case.line}"
            differences.append((case.template, what, {"answer": case.answer, **expected}, have))
    return differences


def plain(arguments):
    """Arguments as a value; as in llama.cpp's tests, incomplete ones are not compared."""
    try:
        return json.loads(arguments)
    except ValueError:
        return ""


main()
