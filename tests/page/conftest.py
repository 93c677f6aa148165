"""A server with SmolLM2, and its page in headless Chromium."""

import mimetypes
import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BINARY = Path(os.environ.get("ROPE_CPU", ROOT / "target/release/rope-cpu"))
CHROMIUM = Path(os.environ["CHROMIUM"])
AXE = Path(os.environ["AXE"])

# The time that reading a long document may take.
PATIENCE = 600_000

# Options of a server that is still writing when the next step of a test comes, on a fast machine too.
SLOWLY = ("--power", "10")
LESS_FAST = ("--power", "25")
# What has a long answer.
LONG = "Write a long story about a king who lost his way."

expect.set_options(timeout=20_000)


class Server:
    """A running server. It listens on the same port each time that it is started."""

    def __init__(self, *options, folder=None, hub=None):
        self.options = options
        # With a folder of models, it serves all of them.
        self.model = ["--models-dir", folder] if folder else ["-m", MODEL]
        others = re.compile(r"HF_|XDG_|LLAMA_|.*_proxy$", re.IGNORECASE)
        rest = {name: value for name, value in os.environ.items() if not others.match(name)}
        ours = {"HF_ENDPOINT": hub.url, "HF_HOME": f"{folder}-hub"} if hub else {}
        self.environment = {**rest, **ours, "HOME": str(folder)} if folder else None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None
        self.start()

    def start(self):
        """Starts the server, and waits until it has loaded the model."""
        self.log = tempfile.TemporaryFile("w+")
        command = [BINARY, "serve", *self.model, "--port", str(self.port), *self.options]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=subprocess.DEVNULL, env=self.environment)
        for _ in range(600):
            self.log.seek(0)
            text = self.log.read()
            if "listening on" in text:
                return
            assert self.process.poll() is None, text
            time.sleep(0.1)
        raise AssertionError(text)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def serve():
    """Starts servers, which end with the test."""
    servers = []

    def start(*options, **more):
        servers.append(Server(*options, **more))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Opens the page of a server in a browser of its own, in which nothing may go wrong unseen."""
    contexts = []

    def open_page(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **options})
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: inside(page, request.url, url))
        if os.environ.get("PAGE_FILES"):
            context.route(f"{url}/page/*", from_disk)
            context.route(f"{url}/", from_disk)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            # The browser reports every answer that is an error, which tests of faults expect.
            faults = [fault for fault in page.faults if not fault.startswith("Failed to load resource")]
            assert faults == []
        context.close()


def inside(page, requested, url):
    if not requested.startswith((url, "data:", "blob:")):
        page.faults.append(f"a request to {requested}")


def from_disk(route):
    """With PAGE_FILES, the files of the page are those in the sources, also new ones, so that nothing is to be compiled."""
    name = route.request.url.rsplit("/", 1)[1] or "index.html"
    root = route.fetch(url=route.request.url.split("/page/")[0])
    headers = {name: value for name, value in root.headers.items() if name != "content-encoding"}
    headers["content-type"] = f"{mimetypes.guess_type(name)[0]}; charset=utf-8"
    route.fulfill(status=200, headers=headers, body=(ROOT / "src/server/page" / name).read_bytes())


class Chat:
    """What a user does with the page."""

    def __init__(self, page):
        self.page = page
        self.answers = page.locator(".message.assistant")
        self.field = page.get_by_label("Message", exact=True)

    def ready(self):
        expect(self.page.locator("#model")).to_have_attribute("data-state", "ready")
        return self

    def kept(self):
        """Waits until the browser has kept what was changed: a later transaction waits for earlier ones."""
        self.page.evaluate("""() => new Promise((done) => {
            const request = indexedDB.open('rope-cpu');
            request.onsuccess = () => {
                const transaction = request.result.transaction('conversations', 'readwrite');
                transaction.objectStore('conversations').count();
                transaction.oncomplete = () => (request.result.close(), done());
            };
        })""")
        return self

    def send(self, text):
        """Sends a message, which may be counted first, or lets it wait for the present answer."""
        self.field.fill(text)
        self.field.press("Enter")
        expect(self.field).to_have_value("")

    def complete(self):
        """Waits until the last answer is complete. Returns it."""
        expect(self.page.get_by_role("button", name="Stop", exact=True)).to_have_count(0, timeout=PATIENCE)
        last = self.answers.last
        expect(last).to_have_attribute("aria-busy", "false", timeout=PATIENCE)
        return last

    def ask(self, text):
        self.send(text)
        return self.complete()

    def limit(self, tokens, **settings):
        """Sets the longest answer, and other settings."""
        settings = {"max_tokens": tokens, "seed": 1, **settings}
        self.page.evaluate("settings => localStorage.setItem('rope-cpu.sampling', JSON.stringify(settings))", settings)
        return self


def document(tokens):
    """A text of about so many tokens, as a file that is dropped."""
    text = (ROOT / "tests/data/jargon.txt").read_text()
    # SmolLM2 has about 4.5 letters in a token of it.
    text = (text * 9)[: int(4.5 * tokens)]
    return {"name": "jargon.txt", "text": text}


def drop(page, name, text):
    """Drops a file onto the page, as a user does with the mouse."""
    data = page.evaluate_handle(
        """({ name, text }) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name, { type: 'text/plain' }));
            return data;
        }""",
        {"name": name, "text": text},
    )
    for event in ["dragenter", "dragover", "drop"]:
        page.dispatch_event("body", event, {"dataTransfer": data})


def statistics(answer):
    """The numbers below an answer: tokens read, and those that were in the cache."""
    text = answer.locator(".statistics").inner_text()
    read = re.search(r"([\d,]+) read in", text)
    cached = re.search(r"([\d,]+) from the cache", text)
    number = lambda match: int(match[1].replace(",", "")) if match else 0
    return number(read), number(cached)
