"""
Faults inside botocore, with its own retries in play: answers or exceptions in place of a request about to be sent.

    faults = Faults(); session = faults.install(moto.session())
    faults.on("StopInstances", refuse("RequestLimitExceeded", status=503))
"""

import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

Make = Callable[[AWSPreparedRequest], AWSResponse]
_REGION = re.compile(rb"/\d{8}/([a-z0-9-]+)/")


@dataclass
class _Rule:
    operation: str
    make: Make
    left: float
    region: str | None
    account: str | None


@dataclass
class Faults:
    """
    ``sent``: (region, operation) of every try, retries and failed ones included; ``asked``: the same with the account
    before, "" for the process's own credentials where the settings name no account.
    """

    sent: list[tuple[str, str]] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    _rules: list[_Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def install(self, session: Any, account: str = "") -> Any:
        """A second time only tells the account."""
        session.label = account

        def sending(request: AWSPreparedRequest, event_name: str, **_: object) -> AWSResponse | None:
            return self._before_send(request, event_name, session.label)

        session.events.register_first("before-send", sending, unique_id="faults")
        return session

    def on(self, operation: str, make: Make, *, times: float = 1, region: str | None = None, account: str | None = None) -> None:
        """The next ``times`` tries of the operation (in the region and account, where they are given) meet ``make``."""
        self._rules.append(_Rule(operation, make, times, region, account))

    def tries(self, operation: str, region: str | None = None) -> int:
        return sum(done == operation and region in (None, where) for where, done in self.sent)

    def _before_send(self, request: AWSPreparedRequest, event_name: str, account: str) -> AWSResponse | None:
        operation, region = event_name.rpartition(".")[2], _region(request)
        with self._lock:
            self.sent.append((region, operation))
            self.asked.append((account, region, operation))
            fitting = (r for r in self._rules if r.operation == operation and r.region in (None, region) and r.account in (None, account))
            rule = next((r for r in fitting if r.left > 0), None)
            if rule is None:
                return None
            rule.left -= 1
        return rule.make(request)


def refuse(code: str, message: str = "injected", *, status: int = 400) -> Make:
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>r</RequestID></Response>"
    return lambda request: answer(request, status, body)


def refuse_json(code: str, *, status: int = 400) -> Make:
    """As the services that speak JSON do (KMS, ECS, prices, Savings Plans)."""
    headers = {"content-type": "application/json", "x-amzn-errortype": code}
    return replies(f'{{"__type": "{code}", "message": "injected"}}', status=status, **headers)


def answer(request: AWSPreparedRequest, status: int, body: str, **headers: str) -> AWSResponse:
    answered: Any = {"content-type": "text/xml", **headers}
    return AWSResponse(request.url, status, answered, _Raw(body.encode()))


def replies(body: str, *, status: int = 200, **headers: str) -> Make:
    return lambda request: answer(request, status, body, **headers)


def fails(error: Callable[[str], Exception]) -> Make:
    """The request never leaves; ``error`` makes the exception from the address."""

    def make(request: AWSPreparedRequest) -> AWSResponse:
        raise error(request.url)

    return make


def carried_out_then(then: Make) -> Make:
    """The request reaches the server and is carried out; what comes back is ``then``'s."""

    def make(request: AWSPreparedRequest) -> AWSResponse:
        headers = {key: _text(value) for key, value in request.headers.items()}
        body = request.body if isinstance(request.body, bytes) else str(request.body).encode()
        with urllib.request.urlopen(urllib.request.Request(request.url, data=body, headers=headers), timeout=10) as done:
            done.read()
        return then(request)

    return make


def _region(request: AWSPreparedRequest) -> str:
    signed = request.headers.get("Authorization") or b""
    found = _REGION.search(signed if isinstance(signed, bytes) else signed.encode())
    return found.group(1).decode() if found else "?"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._body
