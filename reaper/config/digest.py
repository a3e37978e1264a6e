"""Short fingerprints of what was written, so that a changed term is noticed and a moved block is not."""

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any

from reaper.model.policy import Configuration, Policy

LENGTH = 12
"""Hexadecimal digits: 48 bits, far more than a configuration has editions."""


def sealed(configuration: Configuration) -> Configuration:
    """The same with every digest filled in. Where it was read from is no part of what it says."""
    policies = tuple(replace(policy, digest=_digest(policy)) for policy in configuration.policies)
    whole = replace(configuration, policies=policies)
    return replace(whole, digest=_digest(whole))


def _digest(value: Policy | Configuration) -> str:
    content = json.dumps(_plain(value), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(content.encode()).hexdigest()[:LENGTH]


def _plain(value: Any) -> Any:
    """Only types whose text cannot change under us; anything else is a mistake here, not a guess."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime | time):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.name not in ("digest", "source")}
    raise TypeError(f"no canonical form for {type(value).__name__}")
