"""Files in any encoding, and PDF."""

import base64
import json

import pytest
from conftest import Chat, drop, expect

TEXT = "Café, naïve, Zoë – £5 for a cliché.\n" * 3


def attach(page, content, name="brief.txt"):
    page.locator("#composer input[type=file]").set_input_files({"name": name, "mimeType": "", "buffer": content})


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"\x89PNG\r\n\x00\x00\xff", "file is not text"),
        (b"  \n", "file is empty"),
        (bytes(range(256)) * 40, "file is not text"),
        (b"a control \x01 character", "file is not text"),
        (b"a byte \x81 that Latin-1 lacks", "file is not text"),
        ("\ufeffa".encode("utf-16-le") + b"\x00\xd8", "file is not text"),
    ],
)
def test_files_that_are_no_text_are_refused(serve, visit, content, reason):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    attach(page, content, "file")
    expect(page.locator("#composer .notice")).to_contain_text(reason)
    expect(page.locator("#composer .chip")).to_have_count(0)


@pytest.mark.parametrize(
    "encoding, mark, shown",
    [
        ("utf-8", b"", None),
        ("utf-8", b"\xef\xbb\xbf", None),
        ("cp1252", b"", "Latin-1"),
        ("utf-16-le", b"\xff\xfe", "UTF-16"),
        ("utf-16-be", b"\xfe\xff", "UTF-16"),
        ("utf-16-le", b"", "UTF-16"),
        ("utf-16-be", b"", "UTF-16"),
    ],
)
def test_files_are_text_in_any_common_encoding(serve, visit, encoding, mark, shown):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(2)
    attach(page, mark + TEXT.encode(encoding))
    chip = page.locator("#composer .chip .muted")
    expect(chip).to_contain_text("tokens")
    assert chip.inner_text().partition(" · ")[2] == (shown or "")
    chat.ask("What is it?")
    page.locator(".message.user .file summary").click()
    expect(page.locator(".message.user .file pre")).to_have_text(TEXT, use_inner_text=True)


def test_a_pdf_is_read_by_the_server(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(2)
    notice = page.locator("#composer .notice")
    pdf = b"%PDF-1.7\n\xff\x00 its bytes"
    answers = [
        (501, {"error": {"message": "pdftotext was not found: install it", "type": "not_supported_error"}}),
        (200, {"text": " \n"}),
        (200, {"text": "The text of the paper."}),
    ]
    sent = []

    def convert(route):
        sent.append(base64.b64decode(route.request.post_data_json["data"]))
        status, body = answers[len(sent) - 1]
        route.fulfill(status=status, content_type="application/json", body=json.dumps(body))

    page.route("**/pdf", convert)
    attach(page, pdf, "paper.pdf")
    expect(notice).to_contain_text("paper.pdf was not attached. The server refused the request: pdftotext was not found")
    attach(page, pdf, "paper.pdf")
    expect(notice).to_contain_text("paper.pdf has no text, only pictures")
    expect(page.locator("#composer .chip")).to_have_count(0)
    attach(page, pdf, "paper.pdf")
    expect(page.locator("#composer .chip")).to_contain_text("tokens")
    expect(notice).to_be_hidden()
    assert sent == [pdf] * 3
    chat.ask("What is it about?")
    expect(page.locator(".message.user .file pre")).to_have_text("The text of the paper.")


def test_every_file_that_is_refused_is_named(serve, visit):
    page = visit(serve("--ctx", "512").url)
    Chat(page).ready()
    files = [("a.bin", b"\0"), ("b.txt", b""), ("c.txt", b"text")]
    chosen = [{"name": name, "mimeType": "", "buffer": content} for name, content in files]
    page.locator("#composer input[type=file]").set_input_files(chosen)
    expect(page.locator("#composer .chip")).to_contain_text("c.txt")
    notice = page.locator("#composer .notice")
    expect(notice).to_contain_text("a.bin is not text")
    expect(notice).to_contain_text("b.txt is empty")
    # It is gone with the next file, and with another text.
    drop(page, "d.txt", "More text.")
    expect(notice).to_be_hidden()
    attach(page, b"\0")
    expect(notice).to_be_visible()
    page.get_by_label("Message", exact=True).fill("Another text")
    expect(notice).to_be_hidden()
