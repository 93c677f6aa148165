"""Downloads, from a server that imitates the Hugging Face Hub."""

import contextlib
import hashlib
import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import rope_cpu
from rope_cpu import Llama

REPO, COMMIT = "user/tiny-GGUF", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(path, tmp_path, monkeypatch):
    """The paths of the server's requests. It has one model in two quants."""
    data, requests = path.read_bytes(), []
    sha = hashlib.sha256(data).hexdigest()
    names = ["README.md", "tiny-Q4_1.gguf", "tiny-Q8_0.gguf"]
    files = [{"rfilename": name, "size": len(data), "lfs": {"sha256": sha, "size": len(data)}} for name in names]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            listing = json.dumps({"sha": COMMIT, "siblings": files}).encode()
            body = listing if self.path.startswith("/api/") else data
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if asked:
                first, last = int(asked[1]), int(asked[2] or len(body) - 1)
                body = body[first : last + 1]
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # A connection closes once another one has fetched the rest of its part.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield requests
    server.shutdown()
    server.server_close()


def test_a_model_is_downloaded_once(hub, path, tmp_path):
    seen = []
    found = rope_cpu.download(REPO, "*Q4_1.gguf", progress=lambda *event: seen.append(event))
    folder = tmp_path / "hub" / "models--user--tiny-GGUF"
    assert found == str(folder / "snapshots" / COMMIT / "tiny-Q4_1.gguf")
    size = path.stat().st_size
    assert seen[-1] == ("tiny-Q4_1.gguf", size, size)
    listing, model = f"/api/models/{REPO}/revision/main?blobs=true", f"/{REPO}/resolve/{COMMIT}/tiny-Q4_1.gguf"
    # Several connections fetch parts of a large file.
    assert hub[0] == listing and set(hub[1:]) == {model}
    hub.clear()
    with Llama.from_pretrained(REPO, "*Q4_1.gguf", n_ctx=64, n_threads=1, verbose=False) as llama:
        assert (llama.model_path, llama.n_ctx()) == (found, 64)
    assert hub == [listing]
    elsewhere = rope_cpu.download(REPO + ":q4_1", cache_dir=tmp_path / "cache")
    assert elsewhere.startswith(str(tmp_path / "cache"))


def test_errors_say_what_the_hub_has(hub, monkeypatch):
    with pytest.raises(ValueError, match=r"\*.gguf stands for several files of user/tiny-GGUF: name one of tiny-Q4_1.gguf, tiny-Q8"):
        rope_cpu.download(REPO, "*.gguf")
    with pytest.raises(ValueError, match="user/tiny-GGUF has no model of Q2_K"):
        rope_cpu.download(REPO + ":Q2_K")
    with pytest.raises(ValueError, match="is not the name of a model"):
        rope_cpu.download("tiny")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="run once without HF_HUB_OFFLINE"):
        rope_cpu.download(REPO)
    monkeypatch.setenv("HF_ENDPOINT", "nowhere")
    with pytest.raises(ValueError, match="HF_ENDPOINT is \"nowhere\": give the address of a hub"):
        rope_cpu.download(REPO)
