"""Short fingerprints of what was written, so that a changed term is noticed and a moved block is not."""

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from datetime import date, time, timedelta
from typing import Any

from reaper.model.policy import Configuration, Hours, Policy

LENGTH = 12
"""Hexadecimal digits: 48 bits, far more than a configuration has editions."""


LEFT_OUT = ("digest", "source", "holiday")
"""Where it was read from, and what a table of holidays says of a word that is written, are no part of what was written."""


def sealed(configuration: Configuration) -> Configuration:
    """The same with every digest filled in. Where it was read from is no part of what it says."""
    hours = tuple(replace(one, digest=_digest(one)) for one in configuration.hours)
    by_name = {one.name: one for one in hours}
    policies = tuple(replace(policy, hours=by_name[policy.hours.name] if policy.hours is not None else None) for policy in configuration.policies)
    policies = tuple(replace(policy, digest=_digest(policy)) for policy in policies)
    whole = replace(configuration, policies=policies, hours=hours)
    return replace(whole, digest=_digest(whole))


def _digest(value: Policy | Configuration | Hours) -> str:
    content = json.dumps(_plain(value), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(content.encode()).hexdigest()[:LENGTH]


def _plain(value: Any) -> Any:
    """Only types whose text cannot change under us; anything else is a mistake here, not a guess."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.name not in LEFT_OUT}
    raise TypeError(f"no canonical form for {type(value).__name__}")
