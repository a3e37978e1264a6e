"""What a command works with: the configuration it was pointed at, the store, and the parts built over both."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reaper import config
from reaper.model.policy import Configuration, Mode
from reaper.ports import Lease, Store

if TYPE_CHECKING:
    from reaper.wiring import Parts


def configuration_of(args: argparse.Namespace) -> Configuration:
    """Raises ConfigurationError with every problem, UsageError."""
    path = config.find(args.config)
    return config.built_in() if path is None else config.load(path)


@contextmanager
def store_of(args: argparse.Namespace, *, create: bool = False) -> Iterator[Store]:
    """Raises StoreError when there is none and ``create`` is not asked for."""
    from reaper.wiring import open_state  # loads the database library, which --help does not need

    store = open_state(Path(args.state), args.store, create=create, check=False)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def parts_of(args: argparse.Namespace, configuration: Configuration, ceiling: Mode | None = None) -> Iterator["Parts"]:
    """``ceiling`` observe: clouds whose verbs raise. Raises StoreError, ConfigurationError."""
    from reaper.wiring import build

    parts = build(configuration, Path(args.state), ceiling, url=args.store, check=False, clock=args.clock, clouds=args.clouds)
    try:
        yield parts
    finally:
        parts.store.close()


def leader_of(store: Store, now: datetime) -> Lease | None:
    """The lease of a reaper that leads now; None: nobody does."""
    lease = store.held_lease()
    return lease if lease is not None and now < lease.expires_at else None


def mode_note(store: Store, configuration: Configuration) -> str | None:
    """A word of caution when whoever led last had another mode than the configuration at hand."""
    mode = store.fact("mode")
    if mode is None or mode == configuration.mode.value:
        return None
    return f"the last cycle ran in {mode}, and {configuration.source} says {configuration.mode}: is it the same configuration?"
