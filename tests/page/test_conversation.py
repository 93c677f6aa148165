"""Conversations with a model."""

import json
import subprocess

import pytest
from conftest import BINARY, LESS_FAST, LONG, MODEL, SLOWLY, Chat, document, drop, expect, statistics


def test_a_document_that_was_read_in_advance_is_found(serve, visit, tmp_path):
    file, folder = document(600), tmp_path / "kv"
    path = tmp_path / file["name"]
    path.write_text(file["text"])
    subprocess.run([BINARY, "read", "-m", MODEL, "--ctx", "2048", "-o", folder, path], check=True)
    page = visit(serve("--ctx", "2048", "--cache-disk", str(folder)).url)
    chat = Chat(page).ready().limit(2)
    drop(page, file["name"], file["text"])
    expect(page.locator("#composer .chip")).to_contain_text("tokens")
    read, cached = statistics(chat.ask("Summarise."))
    assert cached > 400 and read < 100, (read, cached)


def test_a_long_document_is_read_once(serve, visit):
    server = serve("--ctx", "16384", "--rope-freq-scale", "0.5", "-t", "2")
    page = visit(server.url)
    chat = Chat(page).ready().limit(24)
    drop(page, **document(9_000))
    chip = page.locator("#composer .chip")
    expect(chip).to_contain_text("tokens")
    # The gauge has the message before it is sent.
    expect(page.locator("#gauge")).to_contain_text("more in this message")
    chat.send("What is this text about?")
    progress = page.get_by_role("progressbar", name="Reading the prompt")
    expect(progress).to_be_visible()
    expect(page.locator(".reading")).to_contain_text("left", timeout=30_000)
    first = chat.complete()
    read, cached = statistics(first)
    assert read > 8_500 and cached == 0
    gauge = page.get_by_role("meter", name="Context")
    used = int(gauge.get_attribute("aria-valuenow"))
    assert used > 8_500 and "trained for 8,192, extended to 16,384" in gauge.get_attribute("aria-valuetext")

    for question in ["Name one word of it.", "Who wrote it?"]:
        read, cached = statistics(chat.ask(question))
        assert read < 100 and cached > 8_500, question

    # Another answer to the last question, which the first one stays beside.
    before = chat.answers.last.locator(".body").inner_text()
    chat.limit(24, seed=2)
    chat.answers.last.get_by_role("button", name="Regenerate the answer").click()
    again = chat.complete()
    read, cached = statistics(again)
    assert read < 100 and cached > 8_500
    expect(again.locator(".versions")).to_contain_text("2 / 2")
    again.get_by_role("button", name="Previous version").click()
    expect(chat.answers.last.locator(".body")).to_have_text(before, use_inner_text=True)

    # The page is loaded anew: the conversation is there, and goes on from the cache.
    texts = chat.answers.locator(".body").all_inner_texts()
    chat.kept()
    page.reload()
    chat.ready()
    expect(chat.answers).to_have_count(3)
    assert chat.answers.locator(".body").all_inner_texts() == texts
    expect(page.locator("#gauge")).to_contain_text("extended to 16,384")
    read, cached = statistics(chat.ask("Is it old?"))
    assert read < 100 and cached > 8_500


def test_a_message_is_edited_and_an_answer_stopped_and_continued(serve, visit):
    page = visit(serve("--ctx", "4096").url)
    chat = Chat(page).ready().limit(8, temperature=0)
    chat.ask("Say yes.")
    page.get_by_role("button", name="Edit the message").click()
    field = page.get_by_label("The edited message")
    expect(field).to_be_focused()
    field.fill(LONG)
    chat.limit(2000, temperature=0)
    field.press("Enter")
    expect(page.locator(".message.user .body")).to_have_text(LONG)
    expect(chat.answers.last.locator(".body")).not_to_be_empty()
    page.keyboard.press("Escape")
    stopped = chat.complete()
    expect(stopped.locator(".notice")).to_contain_text("stopped")
    text = stopped.locator(".body").inner_text()
    chat.limit(8, temperature=0)
    stopped.get_by_role("button", name="Continue").click()
    continued = chat.complete().locator(".body").inner_text()
    assert continued.startswith(text[:40]) and len(continued) > len(text)
    expect(chat.answers.last).to_contain_text("has reached the most tokens")
    # The first version is still there, with its own answer.
    page.locator(".message.user").get_by_role("button", name="Previous version").click()
    expect(page.locator(".message.user .body")).to_have_text("Say yes.")


def test_an_edited_message_is_not_sent_during_an_answer(serve, visit):
    page = visit(serve("--ctx", "4096", *SLOWLY).url)
    chat = Chat(page).ready().limit(2, temperature=0)
    chat.ask("Say yes.")
    page.get_by_role("button", name="Edit the message").click()
    field = page.get_by_label("The edited message")
    field.fill("Say no.")
    chat.limit(2000, temperature=0).send(LONG)
    expect(chat.answers.last.locator(".body")).not_to_be_empty()
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("An answer is being written")
    page.get_by_role("button", name="Stop", exact=True).click()
    chat.complete()
    field.press("Enter")
    expect(page.locator(".message.user .body")).to_have_text(["Say no."])


def test_conversations_are_kept_renamed_exported_and_deleted(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4)
    page.get_by_label("What the model is told").fill("You answer in one word.")
    chat.ask("Which color has the sky?")
    page.keyboard.press("Control+Shift+O")
    expect(page.locator(".message")).to_have_count(0)
    chat.ask("Which color has grass?")
    list_of = page.locator("#conversations .conversation")
    expect(list_of).to_have_text(["Which color has grass?", "Which color has the sky?"])

    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Grass")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Grass")).to_be_visible()

    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="as JSON").click()
    assert download.value.suggested_filename == "Grass.json"
    exported = json.loads(download.value.path().read_text())
    # The system prompt is another conversation's.
    assert exported["system"] == ""
    assert [node["role"] for node in exported["nodes"]] == ["user", "assistant"]
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="as Markdown").click()
    assert "## User\n\nWhich color has grass?" in download.value.path().read_text()

    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(list_of).to_have_text(["Which color has the sky?"])
    page.reload()
    expect(list_of).to_have_text(["Which color has the sky?"])
    list_of.click()
    expect(page.locator(".message.user .body")).to_have_text("Which color has the sky?")


def test_an_exported_conversation_is_imported(serve, visit):
    url = serve("--ctx", "2048").url
    page = visit(url)
    chat = Chat(page).ready().limit(4)
    chat.ask("Which color has the sky?")
    chat.answers.last.get_by_role("button", name="Regenerate the answer").click()
    chat.complete()
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="as JSON").click()
    exported = download.value.path().read_text()

    # In another browser, and beside the same conversation.
    for other, count in [(visit(url), 1), (page, 2)]:
        chosen = other.locator("#import-file")
        with other.expect_file_chooser():
            other.get_by_role("button", name="Import").click()
        chosen.set_input_files({"name": "sky.json", "mimeType": "", "buffer": exported.encode()})
        expect(other.locator("#conversations .conversation")).to_have_text(["Which color has the sky?"] * count)
        expect(other.locator(".message.assistant .versions")).to_contain_text("2 / 2")
        other.reload()
        expect(other.locator(".message.assistant .versions")).to_contain_text("2 / 2")
    assert Chat(other).ready().limit(4).ask("Is it always blue?")

    nodes = json.loads(exported)["nodes"]
    wrong = ["{", "[]", "{}", json.dumps({"title": "a", "nodes": [{**nodes[0], "parent": "x"}]})]
    wrong.append(json.dumps({"title": "a", "nodes": [{**nodes[0], "content": 1}]}))
    wrong.append(json.dumps({"title": "a", "nodes": [nodes[0], {**nodes[1], "answer": {"timings": {"cache_n": "x"}}}]}))
    for text in wrong:
        chosen.set_input_files({"name": "wrong.json", "mimeType": "", "buffer": text.encode()})
        expect(page.locator("#composer .notice")).to_contain_text("wrong.json is not a conversation")
        expect(page.locator("#conversations .conversation")).to_have_count(2)
        page.evaluate("document.querySelector('#composer .notice').textContent = ''")


def test_two_tabs_have_the_same_conversations(serve, visit):
    url = serve("--ctx", "4096", *LESS_FAST).url
    page = visit(url)
    chat = Chat(page).ready().limit(300, temperature=0)
    second = page.context.new_page()
    second.faults = []
    second.on("pageerror", lambda error: second.faults.append(str(error)))
    second.goto(url)
    other = Chat(second).ready()
    chat.send(LONG)
    # The other tab shows the answer while it is written, and adds to the conversation meanwhile.
    second.locator("#conversations .conversation").click()
    expect(other.answers.last.locator(".body")).not_to_be_empty()
    expect(other.answers.last.locator(".notice")).to_have_count(0)
    other.limit(4)
    second.locator(".message.user").get_by_role("button", name="Edit the message").click()
    second.get_by_label("The edited message").fill("Say yes.")
    second.keyboard.press("Enter")
    short = other.complete().locator(".body").inner_text()
    page.get_by_role("button", name="Stop", exact=True).wait_for(state="detached", timeout=60_000)
    for tab in [chat, other]:
        # What the other tab has chosen last has arrived.
        page.wait_for_timeout(500)
        tab.page.reload()
        user = tab.page.locator(".message.user")
        expect(user.locator(".versions")).to_contain_text("/ 2")
        texts = {}
        for step in ["Previous version", "Next version"]:
            button = user.get_by_role("button", name=step)
            if button.is_enabled():
                button.click()
            texts[user.locator(".body").inner_text()] = tab.answers.last.locator(".body").inner_text()
        assert texts["Say yes."] == short and len(texts[LONG]) > 200, texts

    second.get_by_role("button", name="Rename").click()
    second.get_by_label("Title").fill("Kings")
    second.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Kings")).to_be_visible()
    second.get_by_role("button", name="Delete", exact=True).click()
    second.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#conversations .conversation")).to_have_count(0)
    expect(page.locator(".message")).to_have_count(0)
    page.reload()
    expect(page.locator("#conversations .conversation")).to_have_count(0)


def test_two_conversations_are_answered_at_a_time(serve, visit):
    page = visit(serve("--ctx", "2048", *LESS_FAST).url)
    chat = Chat(page).ready().limit(300, temperature=0)
    chat.send(LONG)
    expect(chat.answers.last.locator(".body")).not_to_be_empty()
    page.get_by_role("button", name="New conversation").click()
    chat.limit(4)
    chat.ask("Say yes.")
    expect(page.locator("#conversations").get_by_role("img", name="is being answered")).to_have_count(1)
    page.locator("#conversations .conversation").filter(has_text="Write a long story").click()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    chat.complete()
    expect(page.locator("#conversations").get_by_role("img", name="is being answered")).to_have_count(0)


def test_each_conversation_has_its_own_system_prompt(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4)
    system = page.get_by_label("What the model is told")
    default = page.get_by_role("button", name="Make this the default")
    expect(default).to_be_disabled()
    # It is kept before the first message, and belongs to that conversation alone.
    system.fill("You answer in one word.")
    page.reload()
    expect(system).to_have_value("You answer in one word.")
    chat.ready().ask("Which color has the sky?")
    page.keyboard.press("Control+Shift+O")
    expect(system).to_have_value("")
    system.fill("You are a poet.")
    default.click()
    expect(default).to_be_disabled()
    chat.ask("Which color has grass?")
    page.keyboard.press("Control+Shift+O")
    expect(system).to_have_value("You are a poet.")
    # The default of another conversation may be none.
    system.fill("")
    page.reload()
    expect(system).to_have_value("")
    for title, prompt in [("sky", "You answer in one word."), ("grass", "You are a poet.")]:
        page.locator("#conversations .conversation").filter(has_text=title).click()
        expect(system).to_have_value(prompt)
    page.reload()
    expect(system).to_have_value("You are a poet.")
