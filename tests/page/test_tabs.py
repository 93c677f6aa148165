"""A tab shows the answers that others write."""

import re

from conftest import LESS_FAST, LONG, Chat, document, drop, expect


def tab(page):
    """Opens another tab of the same browser."""
    other = page.context.new_page()
    other.faults = []
    other.on("pageerror", lambda error: other.faults.append(str(error)))
    other.goto(page.url)
    return Chat(other).ready()


def test_a_tab_that_is_opened_during_an_answer_shows_it(serve, visit):
    page = visit(serve("--ctx", "4096", *LESS_FAST).url)
    chat = Chat(page).ready().limit(2000, temperature=0)
    chat.send(LONG)
    expect(chat.answers.last.locator(".body")).to_have_text(re.compile(".{40}", re.S))
    other = tab(page)
    answer = other.answers.last
    expect(answer).to_have_attribute("aria-busy", "true")
    expect(answer.locator(".notice")).to_have_count(0)
    expect(other.page.locator("#conversations").get_by_role("img", name="is being answered")).to_have_count(1)
    length = len(answer.locator(".body").inner_text())
    expect(answer.locator(".body")).to_have_text(re.compile(".{%d}" % (length + 100), re.S))
    # A message waits in this tab, too, and Esc stops the answer from here.
    other.send("Say yes.")
    expect(other.page.get_by_role("list", name="Messages that wait")).to_contain_text("Say yes.")
    other.page.keyboard.press("Escape")
    for one in [chat, other]:
        expect(one.complete().locator(".notice")).to_contain_text("The answer was stopped.")
    expect(other.field).to_have_value("Say yes.")
    assert chat.answers.last.locator(".body").inner_text() == answer.locator(".body").inner_text()


def test_a_tab_that_is_closed_leaves_its_answer(serve, visit):
    page = visit(serve("--ctx", "4096", *LESS_FAST).url)
    chat = Chat(page).ready().limit(2000, temperature=0)
    chat.send(LONG)
    expect(chat.answers.last.locator(".body")).to_have_text(re.compile(".{40}", re.S))
    other = tab(page)
    expect(other.answers.last).to_have_attribute("aria-busy", "true")
    page.close()
    expect(other.complete().locator(".notice")).to_contain_text("The page was left before the answer was complete.")
    other.limit(8, temperature=0)
    other.answers.last.get_by_role("button", name="Continue").click()
    expect(other.complete().locator(".fault")).to_have_count(0)


def test_a_message_that_waits_in_another_tab_is_sent(serve, visit):
    page = visit(serve("--ctx", "4096", *LESS_FAST).url)
    chat = Chat(page).ready().limit(150, temperature=0)
    chat.send(LONG)
    expect(chat.answers.last.locator(".body")).not_to_be_empty()
    other = tab(page)
    expect(other.answers.last).to_have_attribute("aria-busy", "true")
    other.send("Say yes.")
    for one in [chat, other]:
        expect(one.page.locator(".message.user .body")).to_have_text([LONG, "Say yes."], timeout=60_000)
        expect(one.complete().locator(".body")).not_to_be_empty()


def test_another_tab_shows_the_progress_of_reading(serve, visit):
    page = visit(serve("--ctx", "8192").url)
    chat = Chat(page).ready().limit(8, temperature=0)
    other = tab(page)
    drop(page, **document(5000))
    chat.send("What is this text about?")
    other.page.locator("#conversations .conversation").click()
    expect(other.page.locator(".reading .label")).to_contain_text(re.compile(r"Reading [1-9][\d,]* of"), timeout=60_000)
    assert other.complete().locator(".body").inner_text() == chat.complete().locator(".body").inner_text()
