"""The list of conversations: search, deletion, and an address for each."""

import re

from conftest import Chat, drop, expect


def conversations(chat, *questions):
    for question in questions:
        chat.page.keyboard.press("Control+Shift+O")
        expect(chat.page.locator(".message")).to_have_count(0)
        chat.ask(question)


def test_conversations_are_searched(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(2)
    drop(page, "whales.txt", "Call me Ishmael.")
    chat.ask("Which color has the sky?")
    conversations(chat, "A question of several words in front of it, about " + "long " * 20 + "Grass\nand trees")
    rows = page.locator("#conversations .conversation")
    search = page.get_by_label("Search conversations")
    page.keyboard.press("Control+K")
    expect(search).to_be_focused()
    for query, shown in [("SKY?", "Which color has the sky?"), ("whales", "whales.txt"), ("grass and", "… ")]:
        search.fill(query)
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(shown)
    expect(rows.locator(".excerpt")).to_contain_text("long Grass and trees")
    expect(page.get_by_role("status")).to_have_text("1 conversation")
    search.fill("nothing of it")
    expect(page.locator("#conversations")).to_have_text("No conversation has “nothing of it”.")
    # Esc shows all of them again, and a second time it is the page's key.
    search.press("Escape")
    expect(rows).to_have_count(2)
    search.press("Escape")
    expect(chat.field).to_be_focused()


def test_a_conversation_is_deleted_from_the_list(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(2)
    conversations(chat, "First?", "Second?", "Third?")
    rows = page.locator("#conversations .conversation")
    expect(rows).to_have_text(["Third?", "Second?", "First?"])
    chat.field.fill("A draft")
    for button, left in [("Keep", 3), ("Delete", 2)]:
        page.get_by_role("button", name="Delete “Second?”").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("“Second?” is deleted")
        dialog.get_by_role("button", name=button).click()
        expect(rows).to_have_count(left)
    # The shown one is another, and stays with its draft; the focus is at the next one.
    expect(page.locator(".message.user .body")).to_have_text("Third?")
    expect(chat.field).to_have_value("A draft")
    expect(page.get_by_role("button", name="Delete “First?”")).to_be_focused()
    page.get_by_role("button", name="Delete “Third?”").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".message")).to_have_count(0)
    chat.kept()
    page.reload()
    expect(rows).to_have_text(["First?"])


def test_each_conversation_has_an_address(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(2)
    start = page.url
    chat.ask("First?")
    first = page.url
    assert first.startswith(f"{start}#c=")
    conversations(chat, "Second?")
    second = page.url
    assert second.startswith(f"{start}#c=") and second != first
    user = page.locator(".message.user .body")
    # Back and forward, with the new conversation between the two.
    for way, address, text in [
        (page.go_back, first, ["First?"]),
        (page.go_forward, second, ["Second?"]),
        (lambda: page.goto(first), first, ["First?"]),
        (lambda: page.goto(start + "#"), start, []),
    ]:
        way()
        expect(user).to_have_text(text)
        expect(page).to_have_url(re.compile(re.escape(address.rstrip("#")) + "#?$"))
    # Another tab shows another conversation, also after a reload.
    other = page.context.new_page()
    other.faults = []
    for address, text in [(first, "First?"), (second, "Second?")]:
        other.goto(address)
        Chat(other).kept()
        other.reload()
        expect(other.locator(".message.user .body")).to_have_text(text)
    # The link to the message leaves the conversation alone.
    other.get_by_role("link", name="Skip to the message").focus()
    other.keyboard.press("Enter")
    expect(other.locator(".message.user .body")).to_have_text("Second?")
    # A link of the list opens another tab with the browser's key for it.
    with page.context.expect_page() as opened:
        other.locator("#conversations .conversation").filter(has_text="First?").click(modifiers=["ControlOrMeta"])
    opened.value.faults = []
    expect(opened.value.locator(".message.user .body")).to_have_text("First?")
    expect(other.locator(".message.user .body")).to_have_text("Second?")


def test_an_address_without_its_conversation(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(2)
    chat.ask("First?")
    start = page.url.split("#")[0]
    page.goto(start + "#c=nothing")
    notice = page.locator("#composer .notice")
    expect(notice).to_contain_text("This browser does not have the conversation of this address")
    expect(page.locator(".message")).to_have_count(0)
    page.goto("about:blank")
    page.goto(start + "#c=nothing")
    expect(notice).to_contain_text("This browser does not have the conversation of this address")
    chat.ready().ask("Second?")
    expect(notice).to_be_hidden()
    expect(page.locator("#conversations .conversation")).to_have_text(["Second?", "First?"])
