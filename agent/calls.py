"""
Calls into the driver, one at a time, each named while it runs.

A call that never returns cannot be interrupted; what can be done is to say which one
it is. What a call raises and what makes no sense of its answer are the same to the
caller: the call has failed.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, TypeVar

from agent import nvml

_T = TypeVar("_T")

# What a driver call may raise beside NVML's own error: ctypes, string decoding and we ourselves on garbage.
_FAILURES = (OSError, ValueError, TypeError, AttributeError, ArithmeticError, LookupError)


_NOTHING: Tuple[str, Optional[int]] = ("", None)


class Failed(Exception):
    """A driver call failed; ``error`` is what it raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(str(error))

    @property
    def code(self) -> Optional[int]:
        return nvml.code_of(self.error)


def as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str) or not value:
        raise TypeError("not a text: %r" % (value,))
    return value


def _as_is(value: Any) -> Any:
    return value


class Calls:
    """The module's functions by name. ``doing`` is read from another thread."""

    def __init__(self, load: Callable[[], Any] = nvml.load) -> None:
        self._load = load
        self._doing: Tuple[str, Optional[int]] = _NOTHING
        self.api: Any = None

    @property
    def doing(self) -> str:
        """The call in progress; "" when there is none."""
        name, on = self._doing
        return name if on is None else "%s of GPU %d" % (name, on)

    def load(self) -> bool:
        """Load the module unless it is loaded; True when it was loaded just now. Raises nvml.WrongModule."""
        if self.api is not None:
            return False
        self.api = self._load()
        return True

    def __call__(self, name: str, *arguments: Any, on: Optional[int] = None, to: Callable[[Any], _T] = _as_is) -> _T:
        """One call and what ``to`` makes of its answer. ``on``: the index of the GPU, for ``doing``. Raises Failed."""
        self._doing = (name, on)
        try:
            return to(getattr(self.api, name)(*arguments))
        except self.api.NVMLError as error:
            raise Failed(error) from error
        except _FAILURES as error:
            raise Failed(error) from error
        finally:
            self._doing = _NOTHING

    def text(self, name: str, *arguments: Any, on: Optional[int] = None) -> Optional[str]:
        """A text that one can do without: None when the call fails."""
        try:
            return self(name, *arguments, on=on, to=as_text)
        except Failed:
            return None
