"""Pulling a model from the page, on a server of many models."""

import re

import pytest

from conftest import MODEL, Chat, expect
from hub import Hub
from test_accessibility import SMALL, violations

NAME = "user/Smol-GGUF"
PULLED = "user/Smol-GGUF:Q4_K_M"
# Wider than a phone.
FILE = "Smol-LM-2-Instruct-with-a-name-that-has-all-of-its-training-Q4_K_M.gguf"


@pytest.fixture
def hub():
    hub = Hub({(NAME, FILE): MODEL})
    yield hub
    hub.stop()


@pytest.fixture
def shelf(serve, tmp_path, hub):
    """Starts a server without any model."""
    return lambda *options: serve("--ctx", "2048", *options, folder=tmp_path, hub=hub)


class Pull:
    """What a user does with the dialog."""

    def __init__(self, page):
        self.page = page
        self.dialog = page.get_by_role("dialog", name="Pull a model")
        self.open = page.get_by_role("button", name="Pull a model")
        self.name = self.dialog.get_by_label("Repository")
        self.notice = self.dialog.get_by_role("alert")
        self.progress = self.dialog.get_by_role("progressbar", name="Progress of the pull")

    def start(self, name=NAME):
        if not self.dialog.is_visible():
            self.open.click()
        self.name.fill(name)
        self.name.press("Enter")
        return self

    def half(self):
        """Waits until half of the model has come."""
        expect(self.dialog.locator(".pulling .muted")).to_have_text(re.compile(r"MiB of .* MiB \(4\d %\)"))
        return self


def test_a_first_model_is_pulled_and_answers(shelf, visit, hub):
    page = visit(shelf().url)
    chat = Chat(page).ready().limit(4)
    expect(page.get_by_role("heading", name="There is no model yet")).to_be_visible()
    offered = page.get_by_role("group", name="Models that fit in memory").get_by_role("button")
    expect(offered.first).to_have_text(re.compile(r"^bartowski/.*-GGUF[\d.]+ .iB$"))
    assert offered.count() <= 3
    hub.hold()
    page.get_by_role("button", name="Pull another model").click()
    pull = Pull(page)
    expect(pull.name).to_be_focused()
    pull.start(f"https://huggingface.co/{NAME}/").half()
    expect(pull.dialog.get_by_role("status")).to_have_text(f"40 % of {FILE}")
    hub.release()
    expect(pull.dialog).to_be_hidden()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value(PULLED)
    expect(page.get_by_role("heading", name="What is it about?")).to_be_visible()
    chat.ask("Say yes.")


def test_an_offered_model_is_pulled_with_one_click(shelf, visit, hub):
    page = visit(shelf().url)
    Chat(page).ready()
    page.get_by_role("group", name="Models that fit in memory").get_by_role("button").first.click()
    pull = Pull(page)
    expect(pull.name).to_have_value(re.compile("^bartowski/"))
    # The hub of this test does not have it.
    expect(pull.notice).to_contain_text("404")
    expect(pull.notice).to_contain_text("bartowski/")


def test_a_pull_goes_on_without_its_dialog_and_is_cancelled(shelf, visit, hub):
    page = visit(shelf().url)
    Chat(page).ready()
    hub.hold()
    pull = Pull(page).start().half()
    page.keyboard.press("Escape")
    expect(pull.dialog).to_be_hidden()
    expect(pull.open).to_have_text(re.compile("4. %"))
    pull.open.click()
    expect(pull.progress).to_be_visible()
    pull.dialog.get_by_role("button", name="Cancel the pull").click()
    expect(pull.notice).to_have_text(f"The pull of {NAME} was cancelled. What has come is kept: the next pull goes on from there.")
    expect(pull.progress).to_be_hidden()
    expect(pull.open).to_have_text("Pull")
    hub.release()
    pull.start()
    expect(pull.dialog).to_be_hidden()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value(PULLED)


def test_what_cannot_be_pulled_has_a_sentence(shelf, visit, hub):
    server = shelf()
    page = visit(server.url)
    Chat(page).ready()
    pull = Pull(page).start("llama3")
    expect(pull.notice).to_have_text("“llama3” is no repository of the Hub: write USER/MODEL, or USER/MODEL:QUANT.")
    pull.start(" ")
    expect(pull.notice).to_have_text("Write the name of a repository: USER/MODEL, or USER/MODEL:QUANT.")
    pull.start("user/none")
    expect(pull.notice).to_have_text(re.compile("^user/none was not pulled: .*404"))
    expect(pull.name).to_be_focused()
    hub.hold()
    pull.start().half()
    server.kill()
    expect(pull.notice).to_have_text("The server ended the pull before the model was complete: pull it again to go on from there.")
    pull.start()
    expect(pull.notice).to_have_text(re.compile("^The server cannot be reached"))


def test_the_right_to_pull_is_asked_for(shelf, visit):
    page = visit(shelf("--manage-key", "secret").url)
    Chat(page).ready()
    pull = Pull(page).start()
    expect(pull.notice).to_contain_text("enter the key that was given to it with --manage-key")
    key = pull.dialog.get_by_label("Management key")
    expect(key).to_be_focused()
    key.fill("wrong")
    key.press("Enter")
    expect(pull.notice).to_contain_text("does not accept this management key")
    key.fill("secret")
    key.press("Enter")
    expect(pull.dialog).to_be_hidden()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value(PULLED)


def test_a_conversation_keeps_its_model_while_another_is_pulled(serve, visit, tmp_path, hub):
    (tmp_path / "mine.gguf").symlink_to(MODEL)
    page = visit(serve("--ctx", "2048", folder=tmp_path, hub=hub).url)
    chat = Chat(page).ready().limit(4)
    hub.hold()
    pull = Pull(page).start().half()
    pull.dialog.get_by_role("button", name="Close").click()
    chat.ask("Say yes.")
    hub.release()
    picker = page.get_by_role("combobox", name="Model", exact=True)
    expect(picker.locator("option")).to_have_count(2)
    expect(picker).to_have_value("mine")


def test_one_model_cannot_be_exchanged(serve, visit):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    expect(Pull(page).open).to_be_hidden()
    expect(page.get_by_role("heading", name="What is it about?")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1360, 390])
def test_axe_finds_no_violation(shelf, visit, hub, scheme, width):
    page = visit(shelf().url, color_scheme=scheme, viewport={"width": width, "height": 844}, bypass_csp=True)
    Chat(page).ready()
    assert violations(page) == [], "without a model"
    pull = Pull(page).start("llama3")
    expect(pull.notice).to_be_visible()
    assert violations(page) == [], "an error"
    hub.hold()
    pull.start().half()
    assert violations(page) == [], "a pull"


@pytest.mark.parametrize("width", [390, 320])
def test_it_fits_a_phone(shelf, visit, hub, width):
    page = visit(shelf("--manage-key", "secret").url, viewport={"width": width, "height": 640}, has_touch=True, is_mobile=True)
    Chat(page).ready()
    wide = "Math.max(...[document.documentElement, ...document.querySelectorAll('dialog')].map((one) => one.scrollWidth))"
    assert page.evaluate(wide) <= width and page.evaluate(SMALL) == []
    pull = Pull(page).start()
    expect(pull.notice).to_be_visible()
    assert page.evaluate(wide) <= width and page.evaluate(SMALL) == []
    hub.hold()
    key = pull.dialog.get_by_label("Management key")
    key.fill("secret")
    key.press("Enter")
    pull.half()
    assert page.evaluate(wide) <= width and page.evaluate(SMALL) == []
    hub.release()
    expect(pull.dialog).to_be_hidden()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_be_visible()
    assert page.evaluate(wide) <= width and page.evaluate(SMALL) == []
