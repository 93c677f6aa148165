"""A server that imitates the Hugging Face Hub: it lists the files of repositories, and can wait in the middle of one."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """`files` are paths by repository and name. While it is held, it sends no more than half of a file."""

    def __init__(self, files):
        self.files = {key: path.read_bytes() for key, path in files.items()}
        self.sums = {key: hashlib.sha256(content).hexdigest() for key, content in self.files.items()}
        self.free = threading.Event()
        self.free.set()
        self.sent = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hold(self):
        self.sent = 0
        self.free.clear()

    def release(self):
        self.free.set()

    def stop(self):
        self.release()
        self.server.shutdown()
        self.server.server_close()

    def send(self, content, out):
        """Sends bytes in pieces."""
        most = max(map(len, self.files.values())) // 2
        for start in range(0, len(content), 1 << 16):
            piece = content[start : start + (1 << 16)]
            self.sent += len(piece)
            if self.sent > most:
                self.free.wait()
            out.write(piece)

    def listing(self, repository):
        """The answer for a repository, None if there is no such one."""
        siblings = [
            {"rfilename": name, "size": len(content), "lfs": {"sha256": self.sums[owner, name], "size": len(content)}}
            for (owner, name), content in self.files.items()
            if owner == repository
        ]
        return json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode() if siblings else None


def handler(hub):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            listed = re.match(r"/api/models/(.+)/revision/main\?blobs=true$", self.path)
            if listed:
                content = hub.listing(listed[1])
                return self.answer(200, content) if content else self.answer(404, b"{}")
            file = re.match(rf"/(.+)/resolve/{COMMIT}/(.+)$", self.path)
            content = hub.files[file[1], file[2]]
            wanted = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
            if not wanted:
                return self.answer(200, content)
            start, end = int(wanted[1]), int(wanted[2] or len(content) - 1) + 1
            self.answer(206, content[start:end], f"bytes {start}-{end - 1}/{len(content)}")

        def answer(self, status, content, content_range=None):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            try:
                hub.send(content, self.wfile)
            except OSError:
                pass  # the client has left

        def log_message(self, *_):
            pass

    return Handler
