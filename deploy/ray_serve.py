"""rope-cpu under Ray Serve: each replica runs a server of its own, and passes requests on to it.

    pip install "ray[serve]" httpx
    cd deploy && ROPE_CPU_API_KEY=SECRET MODEL=/models/model.gguf serve run --working-dir . ray_serve:app

Ray places, counts and restarts replicas; it adds nothing else, and takes some milliseconds of each request.
"""
import os
import socket
import subprocess
import time

import httpx
from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

THREADS = int(os.environ.get("THREADS", "8"))
# These belong to one connection; httpx sets its own.
HOP = {"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}


@serve.deployment(
    # The requests that a server answers at a time, and as many waiting ones.
    max_ongoing_requests=8,
    autoscaling_config={"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 4},
    ray_actor_options={"num_cpus": THREADS},
    graceful_shutdown_timeout_s=310,
)
class RopeCpu:
    def __init__(self, model):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--port", str(port), "--parallel", "4", "--threads", str(THREADS), "--allowed-hosts", "*"]
        self.server = subprocess.Popen(["rope-cpu", "serve", "-m", model, *options])
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None)
        while self.server.poll() is None:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"rope-cpu ended with {self.server.returncode}")

    async def __call__(self, request: Request):
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        passed_on = self.client.build_request(
            request.method, request.url.path, params=request.query_params, headers=headers, content=await request.body()
        )
        answer = await self.client.send(passed_on, stream=True)
        headers = {name: value for name, value in answer.headers.items() if name not in HOP}
        return StreamingResponse(parts(answer), answer.status_code, headers)

    async def check_health(self):
        (await self.client.get("/livez", timeout=30)).raise_for_status()

    def __del__(self):
        self.server.terminate()
        self.server.wait()


async def parts(answer):
    """The parts of an answer. Where its client goes away, this connection closes, too, and the server drops it."""
    try:
        async for part in answer.aiter_raw():
            yield part
    finally:
        await answer.aclose()


app = RopeCpu.bind(os.environ["MODEL"])
