"""The servers under load: rope-cpu and llama-server, as processes of their own."""
import json
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
from functools import cache

import client

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@cache
def program():
    return subprocess.check_output([ROOT / "scripts/program"], text=True).strip()


@cache
def llama_server_program():
    return subprocess.check_output([ROOT / "scripts/llama-server"], text=True).strip()


def rope_cpu(slots, context, *options):
    return [program(), "serve", "--ctx", str(context), "--cache-ram", "0", "-np", str(slots), *options]


def llama_server(slots, context, *options):
    """llama-server divides its context among the slots."""
    return [llama_server_program(), "-c", str(context * slots), "-cram", "0", "-np", str(slots), *options]


class Server:
    """A running server, ready for requests. Without `model`, it opens a model when a request names it."""

    def __init__(self, command, port=None, model=MODEL):
        self.port = port or free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile()
        command = [*command, *(["-m", model] if model else []), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.peak = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def wait(self, seconds=60):
        """Waits until the model is loaded."""
        for _ in range(seconds * 50):
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}:\n{self.output()}")
            try:
                if client.get(self.base, "/health")[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        raise SystemExit(f"the server was not ready after {seconds} s:\n{self.output()}")

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-4000:]

    def memory(self, field="RssAnon"):
        """MiB in memory: RssAnon without the mapped model, VmHWM the most of all."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) / 1024

    def files(self):
        """The number of open files, with connections."""
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def busy_slots(self):
        slots = json.loads(client.get(self.base, "/slots")[1])
        return sum(slot["is_processing"] for slot in slots)

    def terminate(self):
        """Sends SIGTERM and returns the status with which the server ends."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Samples(threading.Thread):
    """Takes samples of a server, such as its memory."""

    def __init__(self, measure):
        super().__init__(daemon=True)
        self.measure, self.samples, self.stopped = measure, [], threading.Event()

    def run(self):
        while not self.stopped.wait(0.2):
            self.samples.append((time.monotonic(), self.measure()))

    def stop(self):
        """Takes no more samples. To be called before the server ends."""
        self.stopped.set()
        self.join()

    def between(self, begin, end):
        return [value for at, value in self.samples if begin <= at < end]

    def most(self, begin, end):
        return max(self.between(begin, end), default=0)
