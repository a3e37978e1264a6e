"""Modules that a library of ours imports and the agent never uses, left unloaded until somebody does use them."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from typing import Any, Iterator


@contextlib.contextmanager
def deferred(*names: str) -> Iterator[None]:
    """
    Whoever imports one of these modules within gets a stand-in, which loads the real one
    when something of it is first asked for. A module that is loaded already is left as
    it is, and so are imports afterwards.
    """
    placed = [_StandIn(name) for name in names if name not in sys.modules]
    sys.modules.update({standin.__name__: standin for standin in placed})
    try:
        yield
    finally:
        for standin in placed:
            standin.leave()


class _StandIn(types.ModuleType):
    def __bool__(self) -> bool:
        """`logging` asks so whether asyncio is loaded."""
        return False

    def __getattr__(self, attribute: str) -> Any:
        self.leave()
        return getattr(importlib.import_module(self.__name__), attribute)

    def leave(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
