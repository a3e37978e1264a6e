"""A real HTTP server on loopback that answers well, badly, late and elsewhere."""

import http.server
import json
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from reaper import log
from reaper.errors import ConfigurationError, NotDelivered
from reaper.model.resource import ResourceId
from reaper.notify.log import LogNotifier
from reaper.notify.webhook import WebhookNotifier, as_json
from reaper.ports import Message, Notifier

SECRET = "s3cr3t-path"
WARNED = Message(
    event="warned",
    resource=ResourceId("aws", "1", "eu-west-1", "instance", "i-0abc"),
    name="trainer",
    action="stop",
    because="idle for 2 h",
    at=datetime(2026, 11, 30, 12, tzinfo=UTC),
    policy="exploration",
    owner="mara",
    due_at=datetime(2026, 11, 30, 13, tzinfo=UTC),
    keep_it="reaper snooze i-0abc --for 8h",
)


class Receiver(http.server.ThreadingHTTPServer):
    """``answer``: status and headers. ``drip``: sends a header line now and then, and never an end, until ``done``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: tuple[int, dict[str, str]] = (200, {})
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.drip = False
        self.done = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{SECRET}?key={SECRET}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that gave up is what some tests are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), json.loads(body)))
        if self.server.drip:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.server.done.wait(0.05):
                self.wfile.write(b"X-Slow: 1\r\n")
            return
        status, headers = self.server.answer
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.done.set()
    server.shutdown()
    server.server_close()
    thread.join()


def refused(url: str, *, timeout_s: float = 10) -> str:
    with pytest.raises(NotDelivered) as caught:
        WebhookNotifier("team", url, timeout_s=timeout_s).send(WARNED)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    for part in (SECRET, "127.0.0.1", url):
        assert part not in str(caught.value)
    assert "'team'" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_acceptance(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, {})

    WebhookNotifier("team", receiver.url).send(WARNED)

    ((path, headers, body),) = receiver.got
    assert path == f"/{SECRET}?key={SECRET}"
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "v": 1,
        "event": "warned",
        "resource": "aws:1:eu-west-1:instance:i-0abc",
        "name": "trainer",
        "action": "stop",
        "because": "idle for 2 h",
        "at": "2026-11-30T12:00:00+00:00",
        "policy": "exploration",
        "owner": "mara",
        "due_at": "2026-11-30T13:00:00+00:00",
        "keep_it": "reaper snooze i-0abc --for 8h",
        "people": [],
        "notes": [],
        "text": "warned: stop trainer, not before 2026-11-30T13:00:00+00:00. idle for 2 h. To keep it: reaper snooze i-0abc --for 8h",
    }


def test_every_key_is_always_there_and_what_is_not_known_is_null() -> None:
    bare = Message(event="breaker", resource=None, name="fleet", action="stop", because="half of it fell idle.", at=WARNED.at)

    body = as_json(bare)

    assert body.keys() == as_json(WARNED).keys()
    assert {key for key, value in body.items() if value is None} == {"resource", "policy", "owner", "due_at", "keep_it"}
    assert body["text"] == "breaker: stop fleet. half of it fell idle."


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_any_other_answer_is_not_delivered(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, {})

    assert f"answered {status}" in refused(receiver.url)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answer = (status, {"Location": f"/elsewhere-{SECRET}"})

    assert "redirects are not followed" in refused(receiver.url)
    assert len(receiver.got) == 1


def test_an_answer_that_drips_in_is_given_up_in_time(receiver: Receiver) -> None:
    receiver.drip = True

    assert "did not answer within 0.4 s" in refused(receiver.url, timeout_s=0.4)
    _await_no_threads()


def test_a_receiver_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = refused(f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}", timeout_s=0.3)

    assert "in time" in text or "did not answer within" in text
    _await_no_threads()


def _await_no_threads() -> None:
    """What was given up ends by itself; nothing stays behind."""
    for thread in threading.enumerate():
        if thread.name.startswith("webhook-"):
            thread.join(10)
            assert not thread.is_alive()


def test_nobody_there_is_connection_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    assert "connection refused" in refused(f"http://127.0.0.1:{port}/{SECRET}")


def test_a_name_that_does_not_exist_is_told_without_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    text = refused(f"http://{SECRET}.invalid/{SECRET}")

    assert "cannot be resolved" in text


def test_plain_http_where_tls_was_expected_is_told(receiver: Receiver) -> None:
    assert "TLS" in refused(receiver.url.replace("http://", "https://"))


def test_a_login_in_the_address_is_sent_as_basic_authorization(receiver: Receiver) -> None:
    WebhookNotifier("team", receiver.url.replace("http://", "http://me:p%40ss@")).send(WARNED)

    ((_, headers, _),) = receiver.got
    assert headers["Authorization"] == "Basic bWU6cEBzcw=="
    assert "me:" not in headers["Host"]


@pytest.mark.parametrize(
    "url", [f"ftp://x/{SECRET}", f"{SECRET}", f"https:///{SECRET}", "", f"https://x:port/{SECRET}", f"https://[{SECRET}"]
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WebhookNotifier("team", url)

    assert "channel 'team'" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_address_is_in_no_repr_and_no_log(receiver: Receiver, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    notifier = WebhookNotifier("team", receiver.url)
    notifier.send(WARNED)
    receiver.answer = (500, {})
    with pytest.raises(NotDelivered):
        notifier.send(WARNED)

    out, err = capsys.readouterr()
    assert repr(notifier) == "WebhookNotifier('team')"
    assert SECRET not in repr(notifier) + str(notifier) + caplog.text + out + err


def test_the_log_always_accepts_and_tells_the_whole_message(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    log.configure("info", json=True)
    notifier: Notifier = LogNotifier()
    notifier.send(WARNED)
    notifier.send(replace(WARNED, resource=None, due_at=None))
    structlog.reset_defaults()

    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())

    assert notifier.name == "log"
    assert (first["event"], first["about"], first["resource"]) == ("people told", "warned", "aws:1:eu-west-1:instance:i-0abc")
    assert (first["name"], first["because"], first["owner"], first["due_at"]) == ("trainer", "idle for 2 h", "mara", "2026-11-30T13:00:00+00:00")
    assert (second["resource"], second["due_at"]) == (None, None)
