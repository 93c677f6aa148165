"""The choice of a model, if the server has many."""

import re
import shutil

import pytest

from conftest import MODEL, Chat, expect


@pytest.fixture
def folder(tmp_path):
    """A folder with two models, which are the same but for their names."""
    for name in ["one", "two"]:
        shutil.copy(MODEL, tmp_path / f"{name}.gguf")
    return tmp_path


def test_each_conversation_has_its_model(serve, visit, folder):
    page = visit(serve("--ctx", "2048", folder=folder).url)
    chat = Chat(page).ready().limit(4)
    picker = page.get_by_role("combobox", name="Model", exact=True)
    expect(picker.locator("option")).to_have_text([
        re.compile(r"^one · .* MiB · context 8.?192 · unloaded$"),
        re.compile(r"^two · "),
    ])
    picker.select_option("two")
    chat.ask("Say yes.")
    expect(page.locator("#model .name")).to_have_text("open")
    page.get_by_role("button", name="New conversation").first.click()
    picker.select_option("one")
    chat.ask("Say no.")
    expect(picker).to_have_value("one")
    # The first conversation goes on with its own model, also after a reload.
    chat.kept()
    page.locator("#conversations .conversation").last.click()
    expect(picker).to_have_value("two")
    page.reload()
    chat.ready()
    expect(picker).to_have_value("two")
