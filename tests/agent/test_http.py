"""The small HTTP client, against a server that says any bytes."""

from __future__ import annotations

import contextlib
import gzip
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest

from agent.http import Connection, HttpError, Response, tls_context
from agent.sender import Post, takes_gzip
from tests.agent.doubles import ManualClock
from tests.agent.doubles import settings as make_settings

ROOT = Path(__file__).resolve().parents[2]


class Says:
    """Answers each connection with the next bytes of ``answers``, piece by piece, and then hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self.heard: List[bytes] = []
        self._answers = list(answers)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Says:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        for answer in self._answers:
            try:
                line, _ = self._server.accept()
            except OSError:
                return  # the client had enough before it was heard
            with line:
                heard = b""
                while b"\r\n\r\n" not in heard:
                    heard += line.recv(65536)
                self.heard.append(heard)
                with contextlib.suppress(ConnectionError):  # the client may have heard enough
                    for at in range(0, len(answer), 7):
                        line.sendall(answer[at : at + 7])


def ask(answer: bytes, method: str = "GET") -> Response:
    with Says(answer) as server:
        connection = Connection(server.url, 5.0, 5.0)
        try:
            return connection.request(method, "/x", {"Name": "value"})
        finally:
            connection.close()


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more", 200, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", 202, b""),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", 200, b"to the end"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n", 200, b"abc0123456789"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 1\r\n\r\nb", 503, b"b"),
    ],
    ids=["length", "no_content", "no_reason", "to_the_end", "bare_line_ends", "chunked", "interim_answers"],
)
def test_answers_are_read(answer: bytes, status: int, body: bytes) -> None:
    got = ask(answer)

    assert (got.status, got.body) == (status, body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 70000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 9000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    ],
    ids=[
        "hung_up", "another_protocol", "no_status", "cut_off_in_the_head", "negative_length", "cut_off_in_the_body", "announced_too_long",
        "too_long", "endless_line", "endless_headers", "chunk_without_size", "negative_chunk", "huge_chunk", "chunk_longer_than_said",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises((HttpError, OSError)):
        ask(answer)


def test_request_says_what_it_must() -> None:
    with Says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as server:
        connection = Connection(server.url, 5.0, 5.0)
        connection.request("POST", "/v1/reports", {"Authorization": "Bearer t"}, b"{}")
        connection.close()

    lines = server.heard[0].split(b"\r\n")
    assert lines[0] == b"POST /v1/reports HTTP/1.1"
    assert {b"Host: " + server.url[7:].encode(), b"Content-Length: 2", b"Authorization: Bearer t", b"Accept-Encoding: identity"} <= set(lines)
    assert lines[-1] == b"{}"


def test_line_end_in_a_header_is_not_sent() -> None:
    with pytest.raises(HttpError, match="line end"):
        Connection("http://127.0.0.1:9", 5.0, 5.0).request("GET", "/", {"X": "a\r\nY: b"})


def test_server_that_drips_is_left_in_the_end() -> None:
    moments = iter(range(0, 10_000, 10))
    with Says(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500) as server:
        connection = Connection(server.url, 5.0, 5.0, clock=lambda: float(next(moments)))

        with pytest.raises(HttpError, match="too slowly"):
            connection.request("GET", "/", {})
        assert not connection.is_open


@pytest.mark.parametrize("hashed", [True, False])
def test_authorities_are_looked_up_one_by_one_where_the_system_has_them_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: bool) -> None:
    import ssl

    paths = ssl.get_default_verify_paths()
    (tmp_path / ("0.0" if hashed else "readme")).write_text("")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(capath=str(tmp_path)))
    context = tls_context(None, whole=False)

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    if hashed:
        assert context.cert_store_stats()["x509"] == 0
        assert tls_context(None, whole=True).cert_store_stats() == ssl.create_default_context().cert_store_stats()


def test_plain_host_name_loads_no_unicode_tables() -> None:
    """They would stay in memory for good on every host."""
    code = (
        "import socket, sys, threading; from agent.http import Connection, HttpError\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "def hang_up():\n"
        "    for _ in range(2):\n"
        "        line = server.accept()[0]; line.recv(1); line.close()\n"
        "thread = threading.Thread(target=hang_up); thread.start()\n"
        "for scheme in ('http', 'https'):\n"
        "    try: Connection('%s://localhost:%d' % (scheme, server.getsockname()[1]), 5.0, 5.0).request('GET', '/', {})\n"
        "    except (OSError, HttpError): print('no answer')\n"
        "thread.join(); server.close()\n"
        "print(sorted({'stringprep', 'encodings.idna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines() == ["no answer", "no answer", "[]"]


class Reply:
    """A door in front of `Post`: keeps bodies and answers by a list of (status, headers)."""

    def __init__(self, *answers: Any) -> None:
        self.bodies: List[Any] = []
        self._answers = list(answers)

    is_open = False

    def request(self, method: str, path: str, headers: Any, body: bytes = b"") -> Response:
        self.bodies.append((headers.get("Content-Encoding"), body))
        status, said = self._answers.pop(0)
        return Response(status, said, b'{"seq": 1}')

    def close(self) -> None:
        return


GZIP = {"accept-encoding": "br;q=0, gzip"}


def test_bodies_are_compressed_once_the_reaper_said_that_it_takes_that(tmp_path: Path) -> None:
    post, door = Post(make_settings(tmp_path), ManualClock()), Reply((202, {}), (202, GZIP), (202, GZIP), (202, {}), (202, {}))
    post._connection = door  # type: ignore[assignment]
    body = b'{"gpus": []}' * 50
    outcomes = [post(body).kind for _ in range(5)]

    assert outcomes == ["sent"] * 5
    assert [coding for coding, _ in door.bodies] == [None, None, "gzip", "gzip", None]
    assert gzip.decompress(door.bodies[2][1]) == body
    assert len(door.bodies[2][1]) < len(body) / 5


@pytest.mark.parametrize("refusal", [(415, {}), (415, GZIP), (400, {})], ids=["not_this_coding", "says_so_all_the_same", "knows_of_no_codings"])
def test_reaper_that_takes_it_no_longer_gets_the_same_report_plain(tmp_path: Path, refusal: Any) -> None:
    post, door = Post(make_settings(tmp_path), ManualClock()), Reply((202, GZIP), refusal, (202, {}))
    post._connection = door  # type: ignore[assignment]

    assert [post(b"{}").kind, post(b"{}").kind] == ["sent", "sent"]
    assert [coding for coding, _ in door.bodies] == [None, "gzip", None]


@pytest.mark.parametrize(("status", "said"), [(400, GZIP), (401, {}), (503, {})], ids=["bad_report", "token", "overload"])
def test_other_refusals_of_a_compressed_report_are_not_asked_for_twice(tmp_path: Path, status: int, said: Any) -> None:
    post, door = Post(make_settings(tmp_path), ManualClock()), Reply((202, GZIP), (status, said))
    post._connection = door  # type: ignore[assignment]

    assert [post(b"{}").kind, post(b"{}").kind] == ["sent", "later" if status == 503 else "refused"]


@pytest.mark.parametrize(("said", "expected"), [("gzip", True), ("deflate, GZIP", True), ("", False), ("gzipped", False)])
def test_what_the_reaper_takes(said: str, expected: bool) -> None:
    assert takes_gzip(Response(202, {"accept-encoding": said}, b"")) is expected


def test_clock_of_the_client_is_not_the_wall_clock() -> None:
    assert Connection("http://127.0.0.1:9", 1.0, 1.0)._clock is time.monotonic
