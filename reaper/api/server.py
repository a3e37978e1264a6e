"""
The HTTP server around the door: uvicorn in a thread of its own, without signal handlers and access log.

Around its parser stand the bounds it lacks: of a request's head in bytes and time, and of connections.
"""

import asyncio
import resource
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reaper.api.app import App
from reaper.errors import ReaperError

MOST_HEAD_BYTES = 16 * 1024
HEAD_WITHIN_S = 10.0
BODY_WITHIN_S = 30.0
"""Seconds. The application answers a slow body earlier; this is for one that it did not want to read."""

MOST_CONNECTIONS = 4096
"""More than that many agents never send in the same moment; a kept connection that stands idle is closed first."""

_OTHER_FILES = 128

KEEP_ALIVE_S = 75
_START_WITHIN_S = 10.0
_STOP_WITHIN_S = 5


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the certificate with its chain, and its key."""

    certificate: Path
    key: Path


class _Protocol(HttpToolsProtocol):
    """uvicorn's, with a request's head bounded in bytes, head and body in time, and connections in number."""

    most_connections: ClassVar[int] = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most_connections:
            self._close_an_idle_one()
        self._within(HEAD_WITHIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._timer is None:
                self._within(HEAD_WITHIN_S)
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._within(BODY_WITHIN_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._unset_timer()
        super().on_message_complete()
        if self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # Answered before the body was there, whose arrival then took the idle timer away.
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _within(self, seconds: float) -> None:
        self._unset_timer()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _close_an_idle_one(self) -> None:
        for other in self.connections:
            if isinstance(other, _Protocol) and other is not self and other.timeout_keep_alive_task is not None:
                other.transport.close()
                return
        self.transport.close()  # all are at work: the newest has to come again


class Server:
    """``port`` 0 takes a free one; ``port`` then says which. Raises ReaperError when it cannot listen or start."""

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = 8080, tls: Tls | None = None) -> None:
        self._app, self._host, self._wanted = app, host, port
        self._config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_WITHIN_S,
            ssl_certfile=str(tls.certificate) if tls is not None else None,
            ssl_keyfile=str(tls.key) if tls is not None else None,
        )
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._failed: BaseException | None = None

    @property
    def port(self) -> int:
        if self._socket is None:
            raise ReaperError(f"the report door on {self._host}:{self._wanted} is not open")
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Returns when connections are taken."""
        try:
            self._config.load()  # reads the certificate, before anybody is let in
        except OSError as error:
            raise ReaperError(f"the report door's certificate or key cannot be read: {error}") from error
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._socket = socket.create_server((self._host, self._wanted), family=family, backlog=2048)
        except OSError as error:
            remedy = "is another reaper running? choose another address"
            raise ReaperError(f"the report door cannot listen on {self._host}:{self._wanted}: {error.strerror}; {remedy}") from error
        _Protocol.most_connections = _most_connections()
        self._server = uvicorn.Server(self._config)
        self._thread = threading.Thread(target=self._run, name="report door", daemon=True)
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(_START_WITHIN_S / 0.01)):
            if self._server.started or not self._thread.is_alive():
                break
            waited.wait(0.01)
        if not self._server.started:
            self.stop()
            raise ReaperError(f"the report door on {self._host}:{self._wanted} did not start: {self._failed}")

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 uvicorn ends with SystemExit; start() tells of it
            self._failed = error

    def stop(self) -> None:
        """Takes nothing new, lets what runs end (seconds), closes the rest. May be repeated."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_WITHIN_S + 5.0)
        if self._socket is not None:
            self._socket.close()
        self._server = self._thread = None
        self._socket = None
        self._app.close()


def _most_connections() -> int:
    """As many as the process may have open files, less those it needs otherwise."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(min(MOST_CONNECTIONS, allowed - _OTHER_FILES), allowed // 2)
