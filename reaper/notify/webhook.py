"""
POSTs each message as one JSON object to an address the operator chose.

The address is a secret (whoever knows it can post): it appears in no message, log, error or repr, which is why errors of
the network are told by kind and without their own text. Proxies of the environment are not used.
"""

import http.client
import json
import socket
import ssl
import threading
from base64 import b64encode
from typing import Any
from urllib.parse import unquote, urlsplit

from reaper.errors import ConfigurationError, NotDelivered
from reaper.ports import Message

TIMEOUT_S = 10.0


class WebhookNotifier:
    """
    Any 2xx is acceptance. Redirects are not followed: a message would go where the operator never pointed it.

    ``timeout_s`` bounds a whole send, name look-up included. Raises ConfigurationError for an address that is none.
    """

    def __init__(self, name: str, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._timeout_s = timeout_s
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise ConfigurationError((f"the address of channel {name!r} is not one; write it as https://host/path",))
        self._tls = parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._login = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"

    def __repr__(self) -> str:
        return f"WebhookNotifier({self.name!r})"

    def send(self, message: Message) -> None:
        body = json.dumps(as_json(message)).encode()
        attempt = _Attempt(self._connection())
        # a thread, because neither a name look-up nor an answer that drips in byte by byte obeys a socket's timeout
        thread = threading.Thread(target=attempt.run, args=(self._target, body, self._headers()), name=f"webhook-{self.name}", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if thread.is_alive():
            attempt.give_up()
            raise NotDelivered(f"channel {self.name!r} did not answer within {self._timeout_s:g} s; check that its receiver runs")
        if attempt.trouble is not None:
            raise NotDelivered(f"channel {self.name!r}: {attempt.trouble}")
        if attempt.status is None or not 200 <= attempt.status < 300:
            redirected = attempt.status is not None and 300 <= attempt.status < 400
            remedy = "redirects are not followed; configure the final address" if redirected else "check its address and its receiver's log"
            raise NotDelivered(f"channel {self.name!r} answered {attempt.status}; {remedy}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "idle-reaper"}
        if self._login is not None:
            headers["Authorization"] = f"Basic {b64encode(self._login.encode()).decode()}"
        return headers


class _Attempt:
    """One POST in a thread of its own. ``status``: what was answered; ``trouble``: why nothing was."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.status: int | None = None
        self.trouble: str | None = None

    def run(self, target: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            self._connection.request("POST", target, body=body, headers=headers)
            self.status = self._connection.getresponse().status
        except Exception as error:  # noqa: BLE001 - nothing may leave this thread but a text without the address
            self.trouble = _trouble(error)
        finally:
            self._connection.close()

    def give_up(self) -> None:
        """Ends the thread's wait, if it got as far as a connection; before that its own timeouts end it."""
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it ended by itself meanwhile


def _trouble(error: Exception) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused; check that its receiver runs"
        case socket.gaierror():
            return "its host's name cannot be resolved; check its address and the name service"
        case ssl.SSLError():
            return "no trusted TLS connection; check its certificate"
        case TimeoutError():
            return "no answer in time; check that its receiver runs"
        case ConnectionError() | http.client.RemoteDisconnected():
            return "the connection was closed without an answer; check its receiver's log"
        case _:
            return f"not delivered ({type(error).__name__}); check its address and its receiver's log"


def as_json(message: Message) -> dict[str, Any]:
    """
    The body. Its keys are stable and always there; null is "not known" or "does not apply". Moments are RFC 3339 UTC.
    ``text`` is the whole message as one line, for receivers that show nothing else.
    """
    due_at = None if message.due_at is None else message.due_at.isoformat()
    return {
        "v": 1,
        "event": message.event,
        "resource": None if message.resource is None else str(message.resource),
        "name": message.name,
        "action": message.action,
        "because": message.because,
        "at": message.at.isoformat(),
        "policy": message.policy,
        "owner": message.owner,
        "due_at": due_at,
        "keep_it": message.keep_it,
        "people": list(message.people),
        "notes": list(message.notes),
        "text": _text(message, due_at),
    }


def _text(message: Message, due_at: str | None) -> str:
    when = f", not before {due_at}" if due_at else ""
    keep = f" To keep it: {message.keep_it}" if message.keep_it else ""
    people = f" On it: {'; '.join(message.people)}." if message.people else ""
    notes = f" Note: {'; '.join(message.notes)}." if message.notes else ""
    return f"{message.event}: {message.action} {message.name}{when}. {message.because.rstrip('.')}.{people}{notes}{keep}"
