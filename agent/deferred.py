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
    placed = {name: _standin(name) for name in names if name not in sys.modules}
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name, standin in placed.items():
            _leave(name, standin)


def _standin(name: str) -> types.ModuleType:
    module = types.ModuleType(name)

    def ask(attribute: str) -> Any:
        _leave(name, module)
        return getattr(importlib.import_module(name), attribute)

    module.__getattr__ = ask  # type: ignore[method-assign]  # PEP 562
    return module


def _leave(name: str, module: types.ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]
