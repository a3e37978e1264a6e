"""The lines of the running agent's log."""

from __future__ import annotations

import errno
import io
import re
import sys
import threading
from typing import List

import pytest
import structlog

from agent.log import configured


def test_line_has_time_level_event_and_keys_in_this_order() -> None:
    out = io.StringIO()
    configured(out).warning("report not delivered", seq=7, because="it's late")

    assert re.fullmatch(
        r"timestamp='\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z' level='warning' event='report not delivered' seq=7 because=\"it's late\"\n", out.getvalue()
    )


def test_text_of_others_stays_on_its_line() -> None:
    out = io.StringIO()
    configured(out).error("x", because="a\nlevel='info' event='forged'")

    assert out.getvalue().count("\n") == 1


def test_debug_is_not_shown() -> None:
    out = io.StringIO()
    configured(out).debug("x")

    assert out.getvalue() == ""


def test_reader_that_is_gone_does_not_stop_the_agent() -> None:
    out = io.StringIO()
    out.close()
    configured(out).info("x")


class Full(io.StringIO):
    """A pipe or disk that takes nothing more."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None], ids=["full", "never_opened"])
def test_broken_standard_error_does_not_stop_the_agent(monkeypatch: pytest.MonkeyPatch, stream: "io.StringIO | None") -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    configured().error("x", because="y")


def test_standard_error_is_the_one_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    log, later = configured(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", later)
    log.info("x")

    assert "event='x'" in later.getvalue()


class Pieces:
    """A stream on which another thread gets its turn in the middle of every write."""

    def __init__(self) -> None:
        self.text: List[str] = []
        self._turn = threading.Barrier(2)

    def write(self, text: str) -> None:
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            self.text.append(half)
            try:
                self._turn.wait(0.05)
            except threading.BrokenBarrierError:
                self._turn.reset()

    def flush(self) -> None:
        return


def test_lines_of_threads_do_not_run_into_each_other() -> None:
    out = Pieces()
    log = configured(out)  # type: ignore[arg-type]
    threads = [threading.Thread(target=log.info, args=("line",), kwargs={"of": name}) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    whole = [re.fullmatch(r"timestamp='[^']+' level='info' event='line' of='(\w+)'", line) for line in "".join(out.text).splitlines()]
    assert {line.group(1) if line else None for line in whole} == {"first", "second"}


def test_structlog_of_the_program_around_is_left_as_it_is() -> None:
    """The demo runs agents in the daemon's process."""
    before = (structlog.get_config(), structlog.is_configured())
    configured(io.StringIO()).info("x")

    assert (structlog.get_config(), structlog.is_configured()) == before
