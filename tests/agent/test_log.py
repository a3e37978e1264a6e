"""The lines of the running agent's log."""

from __future__ import annotations

import io
import re

from agent.log import LineLog


def test_line_has_time_level_event_and_keys_in_this_order() -> None:
    out = io.StringIO()
    LineLog(out).warning("report not delivered", seq=7, because="it's late")

    assert re.fullmatch(
        r"timestamp='\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z' level='warning' event='report not delivered' seq=7 because=\"it's late\"\n", out.getvalue()
    )


def test_text_of_others_stays_on_its_line() -> None:
    out = io.StringIO()
    LineLog(out).error("x", because="a\nlevel='info' event='forged'")

    assert out.getvalue().count("\n") == 1


def test_debug_is_not_shown() -> None:
    out = io.StringIO()
    LineLog(out).debug("x")

    assert out.getvalue() == ""


def test_reader_that_is_gone_does_not_stop_the_agent() -> None:
    out = io.StringIO()
    out.close()
    LineLog(out).info("x")
