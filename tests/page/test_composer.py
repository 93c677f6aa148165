"""Messages before they are sent: drafts, long pastes, messages that wait for an answer."""

import pytest
from conftest import LONG, SLOWLY, Chat, drop, expect


def paste(page, text):
    """Pastes a text into the field. Returns whether it is for the browser to insert."""
    return page.evaluate(
        """(text) => {
            const clipboardData = new DataTransfer();
            clipboardData.setData('text/plain', text);
            const event = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true });
            return document.querySelector('#field').dispatchEvent(event);
        }""",
        text,
    )


def test_drafts_survive_a_reload(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4)
    chip = page.locator("#composer .chip")
    chat.field.fill("A message that nobody has sent")
    drop(page, "notes.txt", "Notes.")
    expect(chip).to_contain_text("tokens")
    # What was typed last is kept when the page is left.
    chat.field.press_sequentially(" yet")
    page.reload()
    chat.ready()
    expect(chat.field).to_have_value("A message that nobody has sent yet")
    expect(chip).to_contain_text("notes.txt")
    chat.field.press("Enter")
    chat.complete()
    expect(chat.field).to_have_value("")

    # Each conversation has its own.
    chat.field.fill("More of it")
    page.keyboard.press("Control+Shift+O")
    expect(chat.field).to_have_value("")
    chat.field.fill("Another")
    page.locator("#conversations .conversation").click()
    expect(chat.field).to_have_value("More of it")
    page.reload()
    expect(chat.field).to_have_value("More of it")
    page.keyboard.press("Control+Shift+O")
    expect(chat.field).to_have_value("Another")
    chat.field.fill("")
    page.wait_for_timeout(500)
    page.reload()
    chat.ready()
    expect(chat.field).to_have_value("")


def test_a_draft_is_deleted_with_its_conversation(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4)
    chat.ask("Say yes.")
    chat.field.fill("A secret")
    page.wait_for_timeout(500)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(chat.field).to_have_value("")
    page.wait_for_timeout(500)
    kept = """async () => {
        const { openTable } = await import('/page/table.js');
        return (await openTable('rope-cpu-drafts', 'drafts'))('readonly', (table) => table.getAll());
    }"""
    assert page.evaluate(kept) == []


def test_a_message_is_not_sent_to_a_conversation_that_is_shown_meanwhile(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4)
    chat.ask("Say yes.")
    held = []
    page.route("**/apply-template", lambda route: held.append(route))
    text = "A long message. " * 150
    chat.field.fill(text)
    chat.field.press("Enter")
    page.wait_for_timeout(300)
    page.keyboard.press("Control+Shift+O")
    expect(chat.field).to_have_value("")
    assert len(held) == 1
    held[0].continue_()
    page.wait_for_timeout(500)
    expect(page.locator(".message")).to_have_count(0)
    page.locator("#conversations .conversation").click()
    expect(chat.field).to_have_value(text)
    expect(page.locator(".message.user")).to_have_count(1)


def test_a_message_waits_for_the_answer(serve, visit):
    page = visit(serve("--ctx", "4096", *SLOWLY).url)
    chat = Chat(page).ready().limit(60, temperature=0)
    waiting = page.get_by_role("list", name="Messages that wait")
    chat.send(LONG)
    chat.send("Say yes.")
    expect(waiting).to_contain_text("After this answer:Say yes.")
    expect(chat.field).to_have_value("")
    chat.field.fill("Say no.")
    page.get_by_role("button", name="Send after this answer").click()
    expect(waiting.get_by_role("listitem")).to_have_count(2)
    expect(page.locator(".message.user .body")).to_have_text([LONG])
    expect(page.locator(".message.user .body")).to_have_text([LONG, "Say yes.", "Say no."], timeout=60_000)
    chat.complete()
    expect(waiting).to_be_hidden()
    assert len(chat.answers.all()) == 3


def test_a_message_that_waits_is_sent_in_a_conversation_that_is_not_shown(serve, visit):
    page = visit(serve("--ctx", "4096", *SLOWLY).url)
    chat = Chat(page).ready().limit(100, temperature=0)
    chat.send(LONG)
    chat.send("Say yes.")
    page.keyboard.press("Control+Shift+O")
    expect(page.locator("#conversations").get_by_role("img", name="is being answered")).to_have_count(0, timeout=60_000)
    expect(page.locator(".message")).to_have_count(0)
    page.locator("#conversations .conversation").click()
    expect(page.locator(".message.user .body")).to_have_text([LONG, "Say yes."])
    expect(chat.complete().locator(".body")).not_to_be_empty()


def test_messages_that_wait_fit_on_a_narrow_screen(serve, visit):
    page = visit(serve("--ctx", "4096", *SLOWLY).url, viewport={"width": 320, "height": 640})
    chat = Chat(page).ready().limit(1000, temperature=0)
    chat.send(LONG)
    for _ in range(2):
        chat.send(LONG * 3)
    box = page.get_by_role("button", name="Take back the messages that wait").bounding_box()
    assert box["x"] + box["width"] <= 320, box
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("way", ["stopped", "taken back", "reloaded"])
def test_messages_that_wait_become_the_draft_again(serve, visit, way):
    page = visit(serve("--ctx", "4096", *SLOWLY).url)
    chat = Chat(page).ready().limit(1000, temperature=0)
    chat.send(LONG)
    chat.send("First.")
    chat.send("Second.")
    chat.field.fill("Third.")
    if way == "stopped":
        page.keyboard.press("Escape")
    elif way == "taken back":
        page.get_by_role("button", name="Take back the messages that wait").click()
    else:
        page.wait_for_timeout(500)
        page.reload()
    expect(chat.field).to_have_value("First.\n\nSecond.\n\nThird.")
    expect(page.get_by_role("list", name="Messages that wait")).to_be_hidden()
    expect(page.locator(".message.user")).to_have_count(1)


def test_a_file_that_cannot_be_counted_has_its_size(serve, visit):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    page.route("**/tokenize", lambda route: route.fulfill(status=413, body="{}"))
    drop(page, "long.txt", "word " * 1024)
    expect(page.locator("#composer .chip")).to_contain_text("5 KiB")


def test_a_long_paste_becomes_a_file(serve, visit):
    page = visit(serve("--ctx", "4096").url)
    chat = Chat(page).ready().limit(4)
    chip = page.locator("#composer .chip")
    assert paste(page, "short"), "the browser inserts it"
    text = "A line of a long text.\n" * 300
    assert not paste(page, text)
    assert not paste(page, text)
    expect(chip).to_have_count(2)
    expect(chip.first).to_contain_text("pasted-1.txt")
    expect(chip.last).to_contain_text("pasted-2.txt")
    expect(chip.last).to_contain_text("tokens")
    expect(chat.field).to_have_value("")
    # It is put into the message on request.
    chat.field.fill("Before: ")
    page.get_by_role("button", name="Put pasted-2.txt into the message").click()
    expect(chip).to_have_count(1)
    expect(chat.field).to_have_value("Before: " + text)
    chat.send("What is it?")
    chat.complete()
    expect(page.locator(".message.user .file")).to_contain_text("pasted-1.txt")
