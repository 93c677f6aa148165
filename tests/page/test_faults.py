"""What can go wrong is said in one sentence, with what to do, and the text so far is kept."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from conftest import LONG, ROOT, Chat, expect


def test_a_server_that_goes_away_in_the_middle_of_an_answer(serve, visit):
    server = serve("--ctx", "4096")
    page = visit(server.url)
    chat = Chat(page).ready().limit(2000, temperature=0)
    chat.send(LONG)
    body = chat.answers.last.locator(".body")
    expect(body).to_have_text(re.compile(".{40}", re.S))
    server.kill()
    answer = chat.complete()
    notice = answer.locator(".notice")
    expect(notice).to_contain_text("The server went away in the middle of the answer. The text so far is kept")
    text = body.inner_text()
    assert len(text) > 3
    expect(page.locator("#model")).to_contain_text("The server is gone")
    # Without a server, the page says so again, and keeps the text.
    notice.get_by_role("button", name="Continue").click()
    expect(chat.complete().locator(".notice")).to_contain_text("cannot be reached")
    assert body.inner_text() == text
    server.start()
    chat.ready().limit(8, temperature=0)
    answer.get_by_role("button", name="Continue").click()
    continued = chat.complete().locator(".body").inner_text()
    assert continued.startswith(text[:20]) and len(continued) > len(text)
    expect(chat.answers.last.locator(".fault")).to_have_count(0)


def test_a_page_that_is_left_in_the_middle_of_an_answer(serve, visit):
    page = visit(serve("--ctx", "4096").url)
    chat = Chat(page).ready().limit(2000, temperature=0)
    chat.send(LONG)
    expect(chat.answers.last.locator(".body")).to_have_text(re.compile(".{200}", re.S))
    # The text is kept each second.
    page.wait_for_timeout(1500)
    page.reload()
    chat.ready().limit(8, temperature=0)
    answer = chat.answers.last
    expect(answer.locator(".notice")).to_contain_text("The page was left before the answer was complete.")
    text = answer.locator(".body").inner_text()
    assert len(text) > 20
    answer.get_by_role("button", name="Continue").click()
    continued = chat.complete().locator(".body").inner_text()
    assert continued.startswith(text[:20]) and len(continued) > len(text)


def test_a_message_that_does_not_fit_is_not_sent(serve, visit):
    page = visit(serve("--ctx", "512").url)
    chat = Chat(page).ready().limit(4)
    chat.ask("Say yes.")
    text = (ROOT / "tests/data/jargon.txt").read_text()[:3900]
    chat.field.fill(text)
    expect(page.locator("#gauge")).to_contain_text(re.compile(r"about \d+ too many: the message does not fit"))
    chat.field.press("Enter")
    notice = page.locator("#composer .notice")
    expect(notice).to_contain_text(re.compile(r"The message was not sent: it has \d+ tokens too many for the context of 512."))
    # The options with which it fits, and a button that copies them.
    expect(notice).to_contain_text(re.compile(r"restart the server with -c 2k, which needs [\d.]+ MiB of memory\."))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notice.get_by_role("button", name="Copy -c 2k").click()
    page.wait_for_function("navigator.clipboard.readText().then((text) => text === '-c 2k')")
    excess = int(re.search(r"\d+", notice.inner_text())[0])
    expect(page.locator(".message")).to_have_count(2)
    expect(chat.field).to_have_value(text)
    # The number is exact: the message fits without so many tokens.
    cut = """async ({ text, excess }) => {
        const post = async (path, body) => (await fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) })).json();
        const { tokens } = await post('tokenize', { content: text });
        return (await post('detokenize', { tokens: tokens.slice(0, tokens.length - excess) })).content;
    }"""
    for less, fits in [(excess - 3, False), (excess, True)]:
        chat.field.fill(page.evaluate(cut, {"text": text, "excess": less}))
        chat.field.press("Enter")
        if not fits:
            expect(notice).to_contain_text("it has 3 tokens too many")
    expect(page.locator(".message")).to_have_count(4)
    expect(chat.complete().locator(".fault")).to_have_count(0)
    # An edited message is checked, too.
    page.get_by_role("button", name="Edit the message").first.click()
    page.get_by_label("The edited message").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".edit .notice")).to_contain_text("too many for the context of 512")
    page.get_by_label("The edited message").fill("Say no.")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user .body")).to_have_text("Say no.")
    expect(chat.complete().locator(".fault")).to_have_count(0)


def test_a_context_that_rolls_takes_any_message(serve, visit):
    page = visit(serve("--ctx", "512", "--attention-sinks", "4").url)
    chat = Chat(page).ready().limit(4)
    answer = chat.ask((ROOT / "tests/data/jargon.txt").read_text()[:3900])
    expect(answer.locator(".fault")).to_have_count(0)
    expect(answer.locator(".body")).not_to_be_empty()


def test_a_context_that_an_answer_fills(serve, visit):
    server = serve("--ctx", "256")
    page = visit(server.url)
    chat = Chat(page).ready().limit(2000, temperature=0)
    answer = chat.ask(LONG)
    expect(answer.locator(".notice")).to_contain_text("The context of 256 tokens is full, and the answer ends here.")
    assert len(answer.locator(".body").inner_text()) > 400
    expect(page.get_by_role("meter", name="Context")).to_have_attribute("aria-valuenow", "256")
    # The options of a server with more of it, and a button that copies them.
    expect(answer.locator(".notice")).to_contain_text(re.compile(r"restart the server with -c 2k, which needs [\d.]+ MiB"))
    expect(answer.locator(".notice").get_by_role("button", name="Copy -c 2k")).to_be_visible()
    chat.field.fill("More.")
    chat.field.press("Enter")
    notice = page.locator("#composer .notice")
    expect(notice).to_contain_text("The message was not sent")
    # With such a server, neither notice is true any more, and the answer goes on.
    server.kill()
    server.options = ("--ctx", "2048")
    server.start()
    expect(notice).to_be_hidden()
    expect(answer.locator(".notice")).to_contain_text("The context of 256 tokens was full. The server now has 2,048: continue the answer.")
    chat.ready().limit(8, temperature=0)
    answer.get_by_role("button", name="Continue").click()
    expect(chat.complete().locator(".notice")).to_contain_text("has reached the most tokens")


def test_an_earlier_answer_asks_for_nothing(serve, visit):
    page = visit(serve("--ctx", "2048").url)
    chat = Chat(page).ready().limit(4, temperature=0)
    first = chat.ask(LONG)
    expect(first.locator(".notice")).to_contain_text("has reached the most tokens")
    chat.ask("Say yes.")
    earlier = chat.answers.first
    expect(earlier.locator(".notice")).to_have_count(0)
    expect(earlier.locator(".statistics")).to_contain_text("cut off")
    page.reload()
    expect(earlier.locator(".statistics")).to_contain_text("cut off")


def test_a_notice_is_gone_with_what_it_is_about(serve, visit):
    page = visit(serve("--ctx", "256").url)
    chat = Chat(page).ready().limit(4)
    chat.ask("Say yes.")
    notice = page.locator("#composer .notice")
    text = "A long message. " * 100
    for other in ["another text", "another conversation"]:
        chat.field.fill(text)
        chat.field.press("Enter")
        expect(notice).to_contain_text("The message was not sent")
        if other == "another text":
            chat.field.fill("Say no.")
        else:
            page.keyboard.press("Control+Shift+O")
        expect(notice).to_be_hidden()
    page.locator("#conversations .conversation").click()
    page.get_by_role("button", name="Edit the message").click()
    field = page.get_by_label("The edited message")
    field.fill(text)
    field.press("Enter")
    expect(page.locator(".edit .notice")).to_contain_text("The message was not sent")
    field.fill("Say no.")
    expect(page.locator(".edit .notice")).to_be_hidden()


def test_a_key_is_asked_for(serve, visit):
    page = visit(serve("--ctx", "512", "--api-key", "secret").url)
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    page.get_by_label("Key", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(dialog).to_be_visible()
    page.get_by_label("Key", exact=True).fill("secret")
    page.keyboard.press("Enter")
    chat = Chat(page).ready().limit(4)
    chat.ask("Say yes.")
    page.reload()
    chat.ready()
    expect(dialog).to_be_hidden()


def test_the_page_is_used_without_the_key_that_is_not_given(serve, visit):
    page = visit(serve("--ctx", "512", "--api-key", "secret").url)
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    # More than one look at the server later.
    page.wait_for_timeout(4000)
    expect(dialog).to_be_hidden()
    expect(page.locator("#model")).to_contain_text("An API key is required")


class Loading(BaseHTTPRequestHandler):
    """A server whose model is being loaded, with the files of the page in the sources."""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1] or "index.html"
        file = ROOT / "src/server/page" / name
        if file.is_file():
            kind = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}[file.suffix]
            self.reply(200, kind, file.read_bytes())
        else:
            self.reply(503, "application/json", b'{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}')

    do_POST = do_GET

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_model_that_is_being_loaded_and_fails(visit):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Loading)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever).start()
    page = visit(f"http://127.0.0.1:{server.server_port}")
    state = page.locator("#model")
    expect(state).to_contain_text("The model is being loaded")
    chat = Chat(page)
    chat.send("Say yes.")
    answer = chat.complete()
    expect(answer.locator(".notice")).to_contain_text("still loading the model: try again when it is ready")
    expect(page.locator(".message.user .body")).to_have_text("Say yes.")
    server.shutdown()
    server.server_close()
    expect(state).to_contain_text("The server ended while it loaded the model: its terminal has the reason.")
