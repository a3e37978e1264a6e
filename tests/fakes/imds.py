"""
A fake of EC2's instance metadata service, tokens (v2) only.

It answers what the agent asks for: PUT /latest/api/token, then the instance identity
document. It fails on request: `delay_s` before each answer, `document` None for 404,
`tokens` False for a service that is switched off.
"""

from __future__ import annotations

import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Dict, List, Optional, Set, Type

from agent import identity


def document(instance_id: str = "i-0abc", account: str = "123456789012", region: str = "eu-west-1", kind: str = "p5.48xlarge") -> str:
    return json.dumps({"accountId": account, "region": region, "instanceId": instance_id, "instanceType": kind, "version": "2017-09-30"})


class FakeImds:
    """Use as a context manager; `endpoint` is its address, `asked` what was asked for (method and path)."""

    def __init__(self, text: Optional[str] = None) -> None:
        self.document: Optional[str] = document() if text is None else text
        self.delay_s = 0.0
        self.tokens = True
        self.asked: List[str] = []
        self._issued: Set[str] = set()
        self._hurry = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = "http://127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> FakeImds:
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._hurry.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, path: str, headers: Dict[str, str]) -> "tuple[int, str]":
        ttl = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if path != "/latest/api/token" or not self.tokens:
            return 403, ""
        if not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
            return 400, ""
        token = secrets.token_urlsafe(16)
        self._issued.add(token)
        return 200, token

    def get(self, path: str, headers: Dict[str, str]) -> "tuple[int, str]":
        if headers.get("x-aws-ec2-metadata-token") not in self._issued:
            return 401, ""
        if path != "/latest/dynamic/instance-identity/document" or self.document is None:
            return 404, ""
        return 200, self.document

    def _handler(self) -> Type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, method: Any) -> None:
                fake.asked.append("%s %s" % (self.command, self.path))
                fake._hurry.wait(fake.delay_s)
                status, body = method(self.path, {k.lower(): v for k, v in self.headers.items()})
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body.encode())
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up waiting, as it should

            def do_PUT(self) -> None:
                self.answer(fake.put)

            def do_GET(self) -> None:
                self.answer(fake.get)

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler


PATIENCE_S = 20.0
"""A machine that runs many tests at once lets a thread wait for longer than a host ever does."""


def ask_metadata(endpoint: str, timeout_s: float = PATIENCE_S, made_by: Optional[str] = None) -> identity.Identity:
    """The agent's own, with more patience."""
    return identity.ask_metadata(endpoint, timeout_s, made_by)
