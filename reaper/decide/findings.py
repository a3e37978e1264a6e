"""How rules answer, and how spans are shown to people."""

from datetime import timedelta

from reaper.model.decision import Action, Finding, FindingKind


def hold(rule: str, because: str, *, value: str | None = None, limit: str | None = None, age: timedelta | None = None, change: str | None = None) -> Finding:
    """Not now."""
    return Finding(rule, FindingKind.HOLD, because, value=value, limit=limit, age=age, change=change)


def protect(rule: str, because: str, *, change: str | None = None) -> Finding:
    """Never, as long as this is so."""
    return Finding(rule, FindingKind.PROTECT, because, change=change)


def note(rule: str, because: str) -> Finding:
    """Worth telling; changes nothing."""
    return Finding(rule, FindingKind.NOTE, because)


def nominate(rule: str, action: Action, because: str, *, value: str, limit: str, age: timedelta | None, change: str) -> Finding:
    return Finding(rule, FindingKind.NOMINATE, because, action=action, value=value, limit=limit, age=age, change=change)


def span_text(span: timedelta) -> str:
    """"2d 3h", "1h 20m", "45s": two units at most, whole days included."""
    seconds = int(span.total_seconds())
    if seconds < 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    return " ".join(parts) or "0s"
