"""
The report door as an ASGI application: who knocks, how much and how often; `service/ingest` does the rest.

Reports need a token. `/healthz` (the process lives), `/readyz` and `/metrics` need none and show nothing about machines
but what the metrics show. Store and token work runs in a few threads, so one slow write does not keep others waiting.
"""

import asyncio
import zlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from reaper.api.answers import Answer, Refusal, plain
from reaper.api.rates import Rates
from reaper.clock import SystemClock
from reaper.errors import StoreError
from reaper.log import get
from reaper.ports import Clock, Token
from reaper.service.ingest import MAX_BODY_BYTES, Accepted, DoorMetrics, Reason, Rejected

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REPORTS = "/v1/reports"
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_T = TypeVar("_T")
_MOST_GOOD = 20_000
_SWALLOWED_BYTES = 1024 * 1024
_TAKES_GZIP = (b"accept-encoding", b"gzip")  # in an answer it says what requests may be (RFC 7694); agents then compress

log = get("api")


@dataclass(frozen=True, slots=True)
class Limits:
    """
    ``per_minute``/``burst``: reports per token; an agent sends one a minute and its spool after an outage. A shared token
    speaks for many hosts: ``shared_per_minute``/``shared_burst``. ``failures_per_minute``/``failures_burst``: bad tokens
    per address; agents whose token was good lately do not suffer from their neighbours.
    ``at_once``: requests in work together; ``at_once_each``: of one token. ``body_bytes``; ``body_within_s``: seconds.
    """

    per_minute: float = 60.0
    burst: float = 120.0
    shared_per_minute: float = 3000.0
    shared_burst: float = 3000.0
    failures_per_minute: float = 30.0
    failures_burst: float = 60.0
    at_once: int = 256
    at_once_each: int = 8
    body_bytes: int = MAX_BODY_BYTES
    body_within_s: float = 10.0
    threads: int = 4


class Accepts(Protocol):
    def accept(self, body: bytes, token: Token, received_at: datetime | None = None) -> Accepted: ...


class App:
    """
    ``verify``: a token's text to the token, None when it is not good. ``readiness``: None when ready, else why not.
    ``metrics_render``: the metrics page. All three and ``ingest`` are called in threads and may raise StoreError. ``ingest`` None:
    reports are for other processes; agents that come here keep theirs.
    """

    def __init__(
        self,
        ingest: Accepts | None,
        verify: Callable[[str, datetime], Token | None],
        readiness: Callable[[], str | None],
        metrics_render: Callable[[], bytes],
        limits: Limits | None = None,
        *,
        metrics: DoorMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.limits = limits if limits is not None else Limits()
        self._ingest, self._verify, self._readiness, self._render = ingest, verify, readiness, metrics_render
        self._metrics, self._clock = metrics, clock if clock is not None else SystemClock()
        self._pool = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="door")
        own = self.limits
        self._rates = Rates(own.per_minute, own.burst)
        self._shared_rates = Rates(own.shared_per_minute, own.shared_burst)
        self._failures = Rates(own.failures_per_minute, own.failures_burst)
        self._good: OrderedDict[str, None] = OrderedDict()  # ids of tokens that were good lately
        self._busy = 0
        self._busy_each: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        try:
            answer = await self._route(scope, receive)
        except Refusal as refusal:
            self._count(refusal.reason)
            answer = refusal.answer()
            if not answer.close and not _short(_headers(scope)):
                answer = replace(answer, close=True)
        except _Gone:
            self._count("gone")
            return
        await _respond(send, answer)

    def close(self) -> None:
        """Waits for what runs in the threads. No request may come after."""
        self._pool.shutdown(wait=True)

    async def _route(self, scope: Scope, receive: Receive) -> Answer:
        path, method = scope["path"], scope["method"]
        allowed = {REPORTS: ("POST",), "/healthz": ("GET", "HEAD"), "/readyz": ("GET", "HEAD"), "/metrics": ("GET", "HEAD")}.get(path)
        if allowed is None:
            raise Refusal(404, "no-such-path", "is not served here", f"reports go to {REPORTS}", path="path")
        if method not in allowed:
            headers = ((b"allow", ", ".join(allowed).encode()),)
            raise Refusal(405, "wrong-method", f"is not allowed on {path}", f"use {allowed[0]}", path="method", headers=headers)
        if path == REPORTS and self._ingest is None:
            remedy = "send it to a reaper of the role ingest or all; keep the report and send it again"
            raise Refusal(503, "no-reports-here", "is of the role control and takes no reports", remedy, "reaper", retry_after_s=60.0)
        if path == "/healthz":
            return plain(200, "alive")
        if self._busy >= self.limits.at_once:
            remedy = "try again later; nothing was read"
            raise Refusal(503, "overloaded", "are more than can be handled at once", remedy, "requests", retry_after_s=2.0)
        self._busy += 1
        try:
            if path == "/readyz":
                return await self._ready()
            if path == "/metrics":
                return Answer(200, await self._in_thread(self._render), type=METRICS_TYPE)
            return await self._report(scope, receive)
        finally:
            self._busy -= 1

    async def _ready(self) -> Answer:
        try:
            missing = await self._in_thread(self._readiness)
        except StoreError as error:
            log.warning("not ready", because=str(error))
            missing = "the store cannot be reached"
        return plain(200, "ready") if missing is None else plain(503, missing)

    async def _report(self, scope: Scope, receive: Receive) -> Answer:
        received_at = self._clock.now()  # before the body: the report's age was right when it was sent
        headers = _headers(scope)
        token = await self._who(headers, scope, received_at)
        self._within_rate(token)
        if self._busy_each[token.id] >= self.limits.at_once_each:
            raise Refusal(429, "rate-limited", "has too many requests at once", "send one after the other", "token", retry_after_s=1.0)
        self._busy_each[token.id] += 1
        try:
            _check(headers, self.limits.body_bytes)
            body = await self._body(receive)
            if _coding(headers) == b"gzip":
                body = _unpacked(body, self.limits.body_bytes)
            return await self._hand_over(body, token, received_at)
        finally:
            self._busy_each[token.id] -= 1
            if not self._busy_each[token.id]:
                del self._busy_each[token.id]

    async def _who(self, headers: dict[bytes, list[bytes]], scope: Scope, now: datetime) -> Token:
        peer = scope["client"][0] if scope.get("client") else "?"
        given = headers.get(b"authorization", [])
        scheme, _, text = (given[0] if len(given) == 1 else b"").decode("latin-1").partition(" ")
        text = text.strip()
        wait = self._failures.wait(peer, self._clock.monotonic())
        if wait > 0.0 and _public_id(text) not in self._good:
            raise Refusal(
                429, "too-many-failures", "sent too many bad tokens", "check the agents there", "address", retry_after_s=wait
            )
        token = None
        if scheme.lower() == "bearer" and text:
            token = await self._asking_store(lambda: self._verify(text, now))
        if token is None:
            self._failures.take(peer, self._clock.monotonic())
            raise Refusal(
                401, "unauthorised", "is missing, unknown or revoked", "issue one for the host: reaper token issue RESOURCE",
                "token", headers=((b"www-authenticate", b'Bearer realm="reports"'),),
            )  # fmt: skip
        self._good[token.id] = None
        self._good.move_to_end(token.id)
        if len(self._good) > _MOST_GOOD:
            self._good.popitem(last=False)
        return token

    def _within_rate(self, token: Token) -> None:
        rates = self._rates if token.resource is not None else self._shared_rates
        wait = rates.take(token.id, self._clock.monotonic())
        if wait > 0.0:
            resource = str(token.resource) if token.resource is not None else "?"
            raise Refusal(
                429, "rate-limited", "sends more reports than one host should", "one report a minute, and the spool slowly",
                "token", resource, retry_after_s=wait,
            )  # fmt: skip

    async def _body(self, receive: Receive) -> bytes:
        """All of it, bounded in bytes whatever its length header says, and in time as a whole."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_within_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    body += message.get("body", b"")
                    if len(body) > self.limits.body_bytes:
                        raise _too_large(self.limits.body_bytes, close=True)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            within = f"{self.limits.body_within_s:g} s"
            raise Refusal(408, "too-slow", f"did not arrive within {within}", "send it again", "body", close=True) from None
        return bytes(body)

    async def _hand_over(self, body: bytes, token: Token, received_at: datetime) -> Answer:
        ingest = self._ingest
        assert ingest is not None  # or the way would have ended before
        try:
            accepted = await self._asking_store(lambda: ingest.accept(body, token, received_at))
        except Rejected as error:  # ingest counted it
            status = 403 if error.reason is Reason.NOT_YOURS else 400
            return Refusal(status, error.reason, error.problem, error.remedy, error.path, error.resource).answer()
        return Answer(202, accepted.answer, headers=(_TAKES_GZIP,))

    async def _asking_store(self, work: Callable[[], _T]) -> _T:
        try:
            return await self._in_thread(work)
        except StoreError as error:
            log.error("report not kept", because=str(error))
            remedy = "keep the report and send it again"
            raise Refusal(503, "store-down", "cannot be reached", remedy, "store", retry_after_s=10.0) from error
        except (Rejected, Refusal):
            raise
        except Exception as error:
            log.exception("report failed")
            remedy = "keep the report and send it again; the reaper's log says more"
            raise Refusal(500, "failed", "failed inside", remedy, "reaper", retry_after_s=60.0) from error

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _count(self, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.report_refused(reason)


class _Gone(Exception):
    """The client went away before its report was whole."""


def _headers(scope: Scope) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.lower(), []).append(value)
    return found


def _short(headers: dict[bytes, list[bytes]]) -> bool:
    """Whether the rest of the body is worth reading away, so that the client gets to read why it was refused."""
    length = _length(headers)
    return b"transfer-encoding" not in headers and (length is None or length <= _SWALLOWED_BYTES)


def _length(headers: dict[bytes, list[bytes]]) -> int | None:
    lengths = headers.get(b"content-length", [])
    return int(lengths[0]) if lengths and lengths[0].isdigit() else None


def _check(headers: dict[bytes, list[bytes]], most: int) -> None:
    """Raises Refusal for what is not a bounded, plain JSON body."""
    kind = headers.get(b"content-type", [b""])[0].split(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Refusal(415, "wrong-type", "is not application/json", "send JSON and say so", "content-type")
    if _coding(headers) not in (b"", b"identity", b"gzip"):
        remedy = "send the body as it is, or as gzip"
        raise Refusal(415, "wrong-type", "is not understood", remedy, "content-encoding", headers=(_TAKES_GZIP,))
    length = _length(headers)
    if length is not None and length > most:
        raise _too_large(most)


def _coding(headers: dict[bytes, list[bytes]]) -> bytes:
    return b",".join(headers.get(b"content-encoding", [])).strip().lower()


def _unpacked(body: bytes, most: int) -> bytes:
    """The gzip body's content, bounded while it is unpacked: a small body can hold a huge one. Raises Refusal."""
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        content = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise Refusal(400, "not-gzip", "is not gzip, though its Content-Encoding says so", "send it as it is", "body") from None
    if len(content) > most:
        raise _too_large(most)
    if not unpacker.eof or unpacker.unused_data:
        raise Refusal(400, "not-gzip", "is not one whole gzip member", "was it cut off on the way?", "body")
    return content


def _too_large(most: int, close: bool = False) -> Refusal:
    return Refusal(413, "too-large", f"has more than {most} bytes", "send one report per request", "body", close=close)


def _public_id(text: str) -> str:
    """The part of a token's text that may be remembered; "" when it is not one of ours."""
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "irt" else ""


async def _respond(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", answer.type), (b"content-length", b"%d" % len(answer.body)), (b"cache-control", b"no-store"), *answer.headers]
    if answer.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
