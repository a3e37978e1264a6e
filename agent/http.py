"""
One kept HTTP/1.1 connection, with TLS where the address says https.

The standard client brings the mail parser along: 4 MiB and 30 ms that a host lends us
for one small POST a minute. This one does what the agent needs and refuses the rest:
bounded answers, no proxies, no redirects, no compression.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from typing import Callable, Dict, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

MOST_ANSWER_BYTES = 64 * 1024
_MOST_LINE_BYTES = 8 * 1024
_MOST_HEADERS = 100


class HttpError(Exception):
    """The other side does not speak HTTP, or says more than we listen to."""


class Response(NamedTuple):
    """``headers`` by their names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def tls_context(ca_file: Optional[str], whole: bool) -> ssl.SSLContext:
    """
    What verifies the other side: ``ca_file``, else the system's authorities. Those are
    looked up one by one in the system's folder of hashed names where there is one;
    ``whole`` loads all of them (30 ms, 2 MiB), for an authority that stands in the
    bundle alone.
    """
    paths = ssl.get_default_verify_paths()
    folder = paths.capath
    if ca_file is None and not whole and folder is not None and paths.openssl_cafile_env not in os.environ and _is_hashed(folder):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(capath=folder)
        return context
    return ssl.create_default_context(cafile=ca_file)


def _is_hashed(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".0") for entry in entries)
    except OSError:
        return False


class Connection:
    """
    To one origin (scheme, host, port of ``url``). Opened by the first request and kept
    while the other side keeps it. Not safe for two threads. Raises OSError (ssl's errors
    are such) and HttpError.
    """

    def __init__(
        self, url: str, connect_s: float, read_s: float, ca_file: Optional[str] = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "https"
        host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        # As bytes: of a text Python makes an international name, even of "localhost", with 2 MiB of Unicode tables.
        self._name = host.encode("ascii" if host.isascii() else "idna")
        shown = "[%s]" % host if ":" in host else host
        self._authority = shown if parts.port is None else "%s:%d" % (shown, parts.port)
        self._connect_s, self._read_s, self._ca_file = connect_s, read_s, ca_file
        self._clock = clock
        self._context: Optional[ssl.SSLContext] = None
        self._whole = False
        self._socket: Optional[socket.socket] = None

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Response:
        """One exchange. ``path`` and ``headers`` are ASCII. After any error the connection is closed."""
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: " + self._authority, "Accept-Encoding: identity"]
        if body or method in ("POST", "PUT"):
            lines.append("Content-Length: %d" % len(body))
        lines += ["%s: %s" % header for header in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise HttpError("a line end in a request header")
        try:
            if self._socket is None:
                self._socket = self._open()
            self._socket.sendall("\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body)
            answer = _Answer(self._socket, self._clock() + self._read_s, self._clock).read(method)
        except BaseException:
            self.close()
            raise
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def _open(self) -> socket.socket:
        plain = socket.create_connection((self._name, self._port), self._connect_s)  # type: ignore[arg-type]  # it takes bytes
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made: socket.socket = self._secured(plain) if self._tls else plain
            made.settimeout(self._read_s)
        except BaseException:
            plain.close()
            raise
        return made

    def _secured(self, plain: socket.socket) -> ssl.SSLSocket:
        if self._context is None:
            self._context = tls_context(self._ca_file, self._whole)
        try:
            return self._context.wrap_socket(plain, server_hostname=self._name)
        except ssl.SSLCertVerificationError:
            self._context, self._whole = None, True  # the file may be renewed, or the authority stand in the bundle alone
            raise


class _Answer:
    """Reads one answer off a socket, bounded in bytes and, by ``until``, in time as a whole."""

    def __init__(self, sock: socket.socket, until: float, clock: Callable[[], float]) -> None:
        self._socket, self._until, self._clock = sock, until, clock
        self._left = b""

    def read(self, method: str) -> Response:
        status = 100
        while 100 <= status < 200:  # "continue" and early hints come before the answer
            status, headers = self._head()
        if method == "HEAD" or status in (204, 304):
            return Response(status, headers, b"")
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return Response(status, headers, self._chunks())
        length = headers.get("content-length")
        if length is None:
            headers["connection"] = "close"
            return Response(status, headers, self._to_the_end())
        if not length.isdigit():
            raise HttpError("Content-Length is %r" % length[:32])
        return Response(status, headers, self._exactly(int(length)))

    def _head(self) -> "tuple[int, Dict[str, str]]":
        words = self._line().split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (len(words[1]) == 3 and words[1].isdigit()):
            raise HttpError("not an HTTP answer")
        headers: Dict[str, str] = {"connection": "close"} if words[0] == "HTTP/1.0" else {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if not line:
                return int(words[1]), headers
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raise HttpError("more than %d headers" % _MOST_HEADERS)

    def _chunks(self) -> bytes:
        body = b""
        while True:
            text = self._line().partition(";")[0].strip()
            try:
                size = int(text, 16)
            except ValueError:
                raise HttpError("a chunk without a size") from None
            if size == 0:
                while self._line():
                    pass
                return body
            if size < 0 or len(body) + size > MOST_ANSWER_BYTES:
                raise HttpError("an answer of more than %d bytes" % MOST_ANSWER_BYTES)
            body += self._exactly(size)
            if self._line():
                raise HttpError("a chunk longer than its size")

    def _to_the_end(self) -> bytes:
        while self._more():
            if len(self._left) > MOST_ANSWER_BYTES:
                raise HttpError("an answer of more than %d bytes" % MOST_ANSWER_BYTES)
        return self._left

    def _exactly(self, size: int) -> bytes:
        if size > MOST_ANSWER_BYTES:
            raise HttpError("an answer of more than %d bytes" % MOST_ANSWER_BYTES)
        while len(self._left) < size:
            if not self._more():
                raise HttpError("the answer was cut off")
        body, self._left = self._left[:size], self._left[size:]
        return body

    def _line(self) -> str:
        while b"\n" not in self._left:
            if len(self._left) > _MOST_LINE_BYTES:
                raise HttpError("a line of more than %d bytes" % _MOST_LINE_BYTES)
            if not self._more():
                raise HttpError("the connection was closed" if not self._left else "the answer was cut off")
        line, _, self._left = self._left.partition(b"\n")
        return line.rstrip(b"\r").decode("latin-1")

    def _more(self) -> bool:
        if self._clock() > self._until:  # one that drips may not hold us for ever
            raise HttpError("the answer came too slowly")
        piece = self._socket.recv(16384)
        self._left += piece
        return bool(piece)
