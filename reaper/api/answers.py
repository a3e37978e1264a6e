"""What the door answers over HTTP: status, headers, body. One shape for every refusal."""

import json
import math
from dataclasses import dataclass, field

_MOST_TEXT = 512


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    type: bytes = b"application/json"
    close: bool = False  # what the client still sends is not read


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """
    ``reason``: a fixed word, which the metrics count; ``path``, ``problem``, ``remedy``, ``resource``: as in the report's
    own errors. ``retry_after_s``: when to try again; None: not said.
    """

    status: int
    reason: str
    problem: str
    remedy: str
    path: str = "request"
    resource: str = "?"
    retry_after_s: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())
    close: bool = False

    def answer(self) -> Answer:
        error = {"code": self.reason, "path": self.path, "problem": self.problem, "remedy": self.remedy, "resource": self.resource}
        body = json.dumps({"error": {name: text[:_MOST_TEXT] for name, text in error.items()}}).encode()
        headers = self.headers
        if self.retry_after_s is not None:
            headers = (*headers, (b"retry-after", b"%d" % max(math.ceil(self.retry_after_s), 1)))
        return Answer(self.status, body, headers, close=self.close)


def plain(status: int, text: str) -> Answer:
    return Answer(status, text.encode() + b"\n", type=b"text/plain; charset=utf-8")
