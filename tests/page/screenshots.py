"""The pictures of docs/page.md: scripts/page-test --screenshots. They show what a model did."""

import re

from conftest import PATIENCE, ROOT, Chat, document, drop, expect

DOCS = ROOT / "docs"
SIZE = {"width": 1240, "height": 800}


def picture(page, name):
    page.wait_for_timeout(400)
    path = DOCS / f"page-{name}.png"
    page.screenshot(path=path)
    assert path.stat().st_size < 150_000, f"{path} is too large"


def test_pictures_of_a_long_document(serve, visit):
    server = serve("--ctx", "16384", "--rope-scaling", "yarn")
    page = visit(server.url, viewport=SIZE)
    chat = Chat(page).ready().limit(200, temperature=0)
    drop(page, **document(12_000))
    expect(page.locator("#composer .chip")).to_contain_text("tokens")
    chat.send("What is this text about? Answer in one sentence.")
    reading = page.locator(".reading .label")
    expect(reading).to_contain_text(re.compile(r"Reading [6-9],\d+ of"), timeout=PATIENCE)
    picture(page, "reading")
    chat.complete()
    chat.ask("What is the Jargon File?")
    chat.ask("Show a program in Python that prints a greeting.")
    page.emulate_media(color_scheme="dark")
    page.evaluate("document.querySelector('#panel').scrollTop = 640")
    picture(page, "dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 760})
    page.evaluate("document.querySelector('#scroller').scrollTop = 1e6")
    picture(page, "narrow")
