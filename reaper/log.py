"""
Structured logs: an event is a fixed lower-case phrase plus keys, and a secret never gets out.

structlog is loaded at the first line written, so importing a module that logs costs nothing.
"""

import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structlog.typing import WrappedLogger

REDACTED = "[redacted]"

_SECRET_WORDS = frozenset(
    {"token", "tokens", "authorization", "secret", "secrets", "password", "passwd", "webhook", "url", "cookie", "credential", "credentials"}
)
_HARMLESS_ENDS = frozenset({"id", "ids", "count", "file", "name"})
"""``token_id`` names a token and is none."""

_IN_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@:]+:[^\s/@]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)([?&](?:[a-z_-]*(?:token|secret|signature|key|password|sig)[a-z_-]*)=)[^&\s\"']+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)\bhttps://hooks\.[^\s\"']+"), REDACTED),  # where the address alone is the secret
)


class Log:
    """A named logger that loads structlog when first used. ``bind`` returns one that carries more keys."""

    __slots__ = ("_bound", "_name")

    def __init__(self, name: str, bound: Mapping[str, object] | None = None) -> None:
        self._name = name
        self._bound = dict(bound or {})

    def bind(self, **keys: object) -> "Log":
        return Log(self._name, {**self._bound, **keys})

    def debug(self, event: str, **keys: object) -> None:
        self._write("debug", event, keys)

    def info(self, event: str, **keys: object) -> None:
        self._write("info", event, keys)

    def warning(self, event: str, **keys: object) -> None:
        self._write("warning", event, keys)

    def error(self, event: str, **keys: object) -> None:
        self._write("error", event, keys)

    def exception(self, event: str, **keys: object) -> None:
        """With the traceback of the exception being handled."""
        self._write("error", event, {"exc_info": True, **keys})

    def _write(self, level: str, event: str, keys: Mapping[str, object]) -> None:
        import structlog  # a quarter of a second, which commands that log nothing do not pay

        if not structlog.is_configured():
            configure()
        getattr(structlog.get_logger(), level)(event, logger=self._name, **{**self._bound, **keys})


def get(name: str) -> Log:
    """Safe at import: nothing is loaded or written."""
    return Log(name)


def configure(level: str = "info", json: bool = False) -> None:
    """
    Once per process, on standard error (standard output belongs to a command's result). ``level``: debug, info,
    warning, error; an unknown one raises ValueError. ``json``: one object a line, for machines.
    """
    import logging

    import structlog

    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ValueError(f"log level {level!r} is not known; use debug, info, warning or error")
    ending: list[Any] = (
        [structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer(default=str)]
        if json
        else [structlog.processors.format_exc_info, redact, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *ending,  # redaction comes after the traceback became text, and last before it is written
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=_StandardError()),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


class _StandardError:
    """Standard error as it is at each line: what it was when logs were configured may have been closed since."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def redact(_logger: "WrappedLogger", _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: values of secret keys, at any depth, and secrets inside texts."""
    return {key: _clean(key, value) for key, value in event.items()}


def _clean(key: str, value: Any) -> Any:
    if value is not None and _is_secret(key):
        return REDACTED
    if isinstance(value, str):
        for pattern, instead in _IN_TEXT:
            value = pattern.sub(instead, value)
        return value
    if isinstance(value, Mapping):
        return {inner: _clean(str(inner), item) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean("", item) for item in value]
    return value


def _is_secret(key: str) -> bool:
    words = re.split(r"[^a-z0-9]+", key.lower())
    return words[-1] not in _HARMLESS_ENDS and not _SECRET_WORDS.isdisjoint(words)
