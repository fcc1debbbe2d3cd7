"""The publisher: a web app of the standard library. ``python web.py 8000``. It imports no encoder.

POST /videos/NAME    the body is the video: answers with the job that encodes it; the same video twice is one job
GET /jobs/ID         state, progress and log lines
DELETE /jobs/ID      cancels it
"""

import hashlib
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mainspring import Mainspring
from mainspring.errors import JobNotFound

HOME = Path(os.environ.get("VIDEO_HOME", Path(__file__).parent))

app = Mainspring()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        video = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = Path(self.path).name
        digest = hashlib.sha256(video).hexdigest()
        (HOME / name).write_bytes(video)
        call = app.call("encoding.encode", name=name).options(queue="video", key=digest, tags=["upload"])
        job = call.enqueue()
        self.answer(202, {"job": str(job.id), "new": job.created})

    def do_GET(self) -> None:
        try:
            job = app.jobs.get(Path(self.path).name)
        except JobNotFound:
            self.answer(404, {"error": "no such job"})
            return
        info = job.info()
        lines = [line.text for line in job.logs()]
        self.answer(200, {"state": info.state, "progress": info.progress, "attempts": len(info.attempts), "log": lines})

    def do_DELETE(self) -> None:
        cancelled = app.jobs.get(Path(self.path).name).cancel("by the uploader")
        self.answer(200, {"cancelled": cancelled})

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        """Quiet."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
