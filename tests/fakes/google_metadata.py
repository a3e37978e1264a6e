"""
A fake of Google's metadata server: it refuses what does not carry its header, and puts it on all that it answers.

It fails on request: `answers` are its words by path (None: 404), `flavor` False leaves its header out, `both` makes it
answer EC2's questions, too, as a proxy for everything would.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from tests.fakes.imds import document

PATH = "/computeMetadata/v1/"


class FakeGoogleMetadata:
    """Use as a context manager; `endpoint` is its address, `asked` what was asked for (method and path)."""

    def __init__(self, project: str = "ml-research", zone: str = "us-central1-a", number: str = "5000000000000000001", kind: str = "g2-standard-8") -> None:
        self.answers: Dict[str, Optional[str]] = {
            "instance/id": number,
            "project/project-id": project,
            "instance/zone": "projects/123456789012/zones/%s" % zone,
            "instance/machine-type": "projects/123456789012/machineTypes/%s" % kind,
        }
        self.flavor = True
        self.both = False
        self.asked: List[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = "http://127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> FakeGoogleMetadata:
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, headers: Dict[str, str]) -> "tuple[int, str, bool]":
        """Status, body, and whether Google's header goes with it."""
        if self.both and path.startswith("/latest/"):
            return 200, "token" if method == "PUT" else document(), False
        if not path.startswith(PATH) or method != "GET":
            return 404, "", self.flavor
        if headers.get("metadata-flavor") != "Google":
            return 403, "Missing Metadata-Flavor:Google header.", self.flavor
        body = self.answers.get(path[len(PATH) :])
        return (404, "", self.flavor) if body is None else (200, body, self.flavor)

    def _handler(self) -> Type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.asked.append("%s %s" % (self.command, self.path))
                status, body, flavor = fake.answer(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if flavor:
                    self.send_header("Metadata-Flavor", "Google")
                self.end_headers()
                self.wfile.write(body.encode())

            do_PUT = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler
