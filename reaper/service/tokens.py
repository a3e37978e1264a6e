"""
The tokens with which agents speak: ``irt_<id>_<secret>``, one per host.

The id is public and may be shown; of the secret (32 random bytes) only a SHA-256 digest is kept. A fast digest is
enough: there is nothing to guess in 256 random bits.
"""

import hashlib
import hmac
import re
import secrets
import threading
from datetime import datetime, timedelta

from reaper.errors import UsageError
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.resource import ResourceId
from reaper.ports import Store, Token

_TEXT = re.compile(r"irt_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NOBODY = bytes(32)

KEPT_FOR = timedelta(seconds=5)
"""How long a token is believed without asking the store again: revoking one takes effect within ten seconds."""

_MOST_KEPT = 20_000


def issue(store: Store, resource: ResourceId | None, now: datetime, actor: str) -> str:
    """
    A new token's text, which cannot be shown again. ``resource`` None: a shared one, whose voice is never verified.

    Tokens issued before for the same host go on working, so that one can be replaced without a gap. Raises UsageError
    for what is not an instance, StoreError.
    """
    if resource is not None and resource.kind != "instance":
        raise UsageError(f"{resource}: only an instance has an agent; give an id such as aws:123456789012:eu-west-1:instance:i-0abc")
    id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    whose = "a shared token (an unverified voice)" if resource is None else f"a token for {resource}"
    entry = AuditEntry(now, AuditKind.TOKEN, actor, f"issued {whose}", resource, action="issue", evidence={"token": id})
    store.add_token(Token(id, _digest(secret), now, resource), entry)
    return f"irt_{id}_{secret}"


def revoke(store: Store, id: str, now: datetime, actor: str) -> bool:
    """By its public id. False: there is none, or it was revoked before. Raises StoreError."""
    token = store.token(id)
    resource = token.resource if token is not None else None
    entry = AuditEntry(now, AuditKind.TOKEN, actor, f"revoked token {id}", resource, action="revoke", evidence={"token": id})
    return store.revoke_token(id, now, entry)


class Verifier:
    """Whose token is this? Keeps what the store said for some seconds. Thread-safe."""

    def __init__(self, store: Store, kept_for: timedelta = KEPT_FOR) -> None:
        self._store, self._kept_for = store, kept_for
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Token, datetime]] = {}

    def __call__(self, text: str, now: datetime) -> Token | None:
        """None: malformed, unknown or revoked, without a hint which, and in the same time. Raises StoreError."""
        match = _TEXT.fullmatch(text)
        token = self._token(match[1], now) if match is not None else None
        given = _digest(match[2] if match is not None else text)
        good = hmac.compare_digest(given, token.digest if token is not None else _NOBODY)
        if token is None or not good or (token.revoked_at is not None and token.revoked_at <= now):
            return None
        return token

    def _token(self, id: str, now: datetime) -> Token | None:
        with self._lock:
            kept = self._kept.get(id)
        if kept is not None and abs(now - kept[1]) < self._kept_for:
            return kept[0]
        token = self._store.token(id)
        with self._lock:
            if token is None:
                self._kept.pop(id, None)
            else:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[id] = (token, now)
        return token


def verify(store: Store, text: str, now: datetime) -> Token | None:
    """The same once, without keeping anything. Raises StoreError."""
    return Verifier(store)(text, now)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
