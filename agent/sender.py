"""
Sends reports: POST with the token over one kept connection, the spool when that fails.

A thread of its own, so that a slow network never costs a beat. The newest report goes
first, since it is what decisions wait for; then the spool, a few at a time. The answer
is information for people; nothing in it is ever carried out.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Callable, Deque, List, NamedTuple, Optional, Protocol
from urllib.parse import urlsplit

from agent.clock import Clock, rfc3339
from agent.config import ConfigError, Settings, read_token
from agent.http import Connection, HttpError, Response
from agent.readings import Log
from agent.report import Answer, Report, ReportError, Value, decode_answer, encode
from agent.spool import Spool

PATH = "/v1/reports"
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 10.0
DRAIN_AT_ONCE = 10
FIRST_RETRY_S = 5.0
MOST_RETRY_AFTER_S = 600.0
_MOST_WAITING = 4
_CLOSE_WITHIN_S = 3.0

SENT, LATER, REFUSED = "sent", "later", "refused"


class Outcome(NamedTuple):
    """How one POST ended: "sent" with the answer, "later" (spool it) or "refused" (it would be refused again)."""

    kind: str
    answer: Optional[Answer] = None
    problem: Optional[str] = None
    retry_after_s: Optional[float] = None


@dataclass(frozen=True, eq=False, repr=False)
class Delivery(Value):
    """How delivery is doing, for the status file. Times are RFC 3339; ``refused`` and ``dropped`` count since start."""

    last_sent_seq: Optional[int] = None
    last_sent_at: Optional[str] = None
    answer: Optional[Answer] = None
    problem: Optional[str] = None
    refused: int = 0
    dropped: int = 0
    spooled: int = 0
    spooled_bytes: int = 0


class Outbox(Protocol):
    """Where the loop hands its reports. ``hand`` never blocks on the network."""

    def hand(self, report: Report) -> None: ...

    def forget(self, because: str) -> None: ...

    def delivery(self) -> Delivery: ...

    def close(self) -> None: ...


class Posting(Protocol):
    """Something that can POST one report, and let go of its connection."""

    def __call__(self, body: bytes) -> Outcome: ...

    def close(self) -> None: ...


class Post:
    """
    One kept-alive connection to the reaper. Not safe for two threads. Bodies are
    compressed once the reaper has said in an answer that it takes that (RFC 7694).
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._path = urlsplit(settings.reaper).path.rstrip("/") + PATH
        self._connection = connection(settings, clock.boot_s)
        self._compressed = False

    def __call__(self, body: bytes) -> Outcome:
        try:
            headers = {"Authorization": "Bearer " + read_token(self._settings), "Content-Type": "application/json"}
        except ConfigError as error:
            return Outcome(LATER, problem=str(error))
        for reused in (self._connection.is_open, False):
            try:
                return self._judge(self._exchange(body, headers))
            except (OSError, HttpError) as error:
                self.close()
                # The other side may have closed a connection that stood idle; a second copy of a report is dropped there.
                if not reused:
                    return Outcome(LATER, problem="%s: no answer (%s: %s)" % (self._settings.reaper, type(error).__name__, error))
        raise AssertionError("unreachable: the second attempt is never on a reused connection")

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, body: bytes, headers: "dict[str, str]") -> Response:
        if self._compressed:
            answer = self._connection.request("POST", self._path, {**headers, "Content-Encoding": "gzip"}, _gzip(body))
            self._compressed = takes_gzip(answer)
            # One that was replaced by an older one refuses the coding, or does not know of codings and finds no report in it.
            if answer.status != 415 and (self._compressed or answer.status != 400):
                return answer
        answer = self._connection.request("POST", self._path, headers, body)
        self._compressed = takes_gzip(answer)
        return answer

    def _judge(self, response: Response) -> Outcome:
        status, text, where = response.status, response.body, self._settings.reaper
        if status == 202:
            try:
                return Outcome(SENT, answer=decode_answer(text))
            except ReportError as error:
                return Outcome(LATER, problem="%s: 202 without an answer of the reaper (%s); is a proxy in between?" % (where, error))
        words = "".join(c if c.isprintable() else " " for c in text[:300].decode("utf-8", "replace"))
        problem = "%s: answered %d: %s" % (where, status, words)
        if 400 <= status < 500 and status not in (408, 425, 429):
            return Outcome(REFUSED, problem=problem)
        if 300 <= status < 400:
            problem = "%s: answered %d, a redirect, which is not followed; write the final address" % (where, status)
        return Outcome(LATER, problem=problem, retry_after_s=_seconds(response.headers.get("retry-after")))


def connection(settings: Settings, clock: Callable[[], float]) -> Connection:
    """To the reaper, not opened yet."""
    ca_file = str(settings.ca_file) if settings.ca_file is not None else None
    return Connection(settings.reaper, CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ca_file, clock)


def takes_gzip(answer: Response) -> bool:
    """Whether the other side said that it takes compressed bodies."""
    codings = answer.headers.get("accept-encoding", "").lower().split(",")
    return any(coding.strip() == "gzip" for coding in codings)


def _gzip(body: bytes) -> bytes:
    import zlib  # only where a reaper takes it

    packer = zlib.compressobj(6, zlib.DEFLATED, 16 + 13, 6)  # a window of 8 KiB: a report is hardly larger
    return packer.compress(body) + packer.flush()


def _seconds(text: Optional[str]) -> Optional[float]:
    """Retry-After in seconds, capped. A date is not understood: the own back-off does."""
    if text is None or not text.strip().isdigit() or len(text.strip()) > 9:
        return None
    return min(float(text.strip()), MOST_RETRY_AFTER_S)


def _dice() -> float:
    """0..1 by chance."""
    return int.from_bytes(os.urandom(4), "big") / 2.0**32


class Sender:
    """
    The real outbox. ``hand`` is called by the loop; ``pump`` does one round and says how
    many seconds it wants to rest (None: until the next report).
    """

    def __init__(
        self,
        post: Posting,
        spool: Spool,
        clock: Clock,
        log: Log,
        window_s: float = 60.0,
        jitter: Callable[[], float] = _dice,
    ) -> None:
        self._post, self._spool, self._clock, self._log, self._jitter = post, spool, clock, log, jitter
        self._first_retry_s, self._most_retry_s = min(FIRST_RETRY_S, window_s), max(FIRST_RETRY_S, window_s)
        self._waiting: Deque[Report] = deque()
        self._forget: Optional[str] = None
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._retry_s = self._first_retry_s
        self._retry_at: Optional[float] = None
        self._stop = threading.Event()
        self._hung = 0  # reports lost because sending hung
        self._delivery = Delivery(spooled=len(spool), spooled_bytes=spool.size_bytes, dropped=spool.dropped)
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    def hand(self, report: Report) -> None:
        with self._lock:
            self._waiting.append(report)
            if len(self._waiting) > _MOST_WAITING:  # the thread hangs in a name lookup, say; it will spool the rest
                lost = self._waiting.popleft()
                self._hung += 1
                self._log.error("report lost", seq=lost.seq, because="sending hangs")
        self._wake.set()

    def forget(self, because: str) -> None:
        """Drop every report not yet sent: they belong to another machine."""
        with self._lock:
            self._waiting.clear()
            self._forget = because
        self._wake.set()

    def delivery(self) -> Delivery:
        with self._lock:
            return self._delivery

    def close(self) -> None:
        """Stop without another try: what was not sent goes to the spool, for the next start of this boot."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_WITHIN_S)
            if self._thread.is_alive():
                self._log.warning("sender still waits for the network", spooled=len(self._spool))
                return
        self._store(self._take())
        self._note()
        self._post.close()

    def pump(self) -> Optional[float]:
        """One round: the newest report, then some of the spool."""
        if self._forget is not None:
            self._spool.clear(self._forget)
            self._forget = None
        waiting = self._take()
        rest = self._rest_s()
        if rest is not None and rest > 0:
            self._store(waiting)
            self._note()
            return rest
        # After a pause the newest report waits in the spool, unless a newer one has just come in.
        newest_first = rest is not None and not waiting
        well = True
        if waiting:
            newest = waiting.pop()
            self._store(waiting)
            well = self._send(newest)
            if not well:
                self._store([newest])
        for seq, report in self._spool.batch(DRAIN_AT_ONCE, newest_first) if well else []:
            well = self._send(report)
            if not well:
                break
            self._spool.remove(seq)
        self._note()
        if not well:
            return self._rest_s()
        return 0.0 if len(self._spool) else None

    def _rest_s(self) -> Optional[float]:
        """Seconds still to rest after a failure (negative: over), None when the last try went well."""
        return None if self._retry_at is None else self._retry_at - self._clock.boot_s()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                rest = self.pump()
            except Exception as error:  # noqa: BLE001 - as above; the spool's disk, say
                self._log.error("sending failed", because="%s: %s" % (type(error).__name__, error))
                rest = self._first_retry_s
            if self._stop.is_set():
                return
            # Between two handfuls of the spool there is a pause, so that a fleet that comes back together spreads out.
            self._wake.wait(None if rest is None else max(rest, 0.2))

    def _take(self) -> List[Report]:
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
            return waiting

    def _store(self, reports: List[Report]) -> None:
        for report in reports:
            self._spool.put(report)

    def _send(self, report: Report) -> bool:
        """True when the report is done with: accepted, or refused for good."""
        now = self._clock.boot_s()
        fresh = replace(report, age_s=round(max(0.0, now - report.seq / 1000.0), 3), sent_at=rfc3339(self._clock.utc()))
        try:
            outcome = self._post(encode(fresh))
        except Exception as error:  # noqa: BLE001 - whatever it is, a thread that ends would silence this machine for good
            outcome = Outcome(LATER, problem="unexpected %s: %s" % (type(error).__name__, error))
        if outcome.kind == LATER:
            pause = self._retry_s * (0.5 + 0.5 * self._jitter())
            self._retry_s = min(2 * self._retry_s, self._most_retry_s)
            self._retry_at = now + max(pause, outcome.retry_after_s or 0.0)
            self._log.warning("report not delivered", seq=report.seq, because=outcome.problem, retry_s=round(self._retry_at - now, 1))
            self._set(problem=outcome.problem)
            return False
        self._retry_s, self._retry_at = self._first_retry_s, None
        if outcome.kind == REFUSED:
            self._log.error("report refused", seq=report.seq, because=outcome.problem)
            with self._lock:
                self._delivery = replace(self._delivery, problem=outcome.problem, refused=self._delivery.refused + 1)
            return True
        if outcome.answer is not None and (self._delivery.last_sent_seq is None or report.seq >= self._delivery.last_sent_seq):
            self._set(last_sent_seq=report.seq, last_sent_at=fresh.sent_at, answer=outcome.answer, problem=None)
        else:
            self._set(problem=None)
        return True

    def _set(self, **changes: object) -> None:
        with self._lock:
            self._delivery = replace(self._delivery, **changes)  # type: ignore[arg-type]

    def _note(self) -> None:
        count, size, dropped = len(self._spool), self._spool.size_bytes, self._spool.dropped
        with self._lock:
            self._delivery = replace(self._delivery, spooled=count, spooled_bytes=size, dropped=dropped + self._hung)
