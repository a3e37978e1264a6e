import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from reaper import log


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_lines_are_events_with_keys_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", json=True)
    log.get("reaper.x").bind(cycle=7).info("action finished", resource="aws:1:r:instance:i-1", took_s=2.1)

    (line,) = lines(capsys)

    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "action finished",
        "logger": "reaper.x",
        "level": "info",
        "cycle": 7,
        "resource": "aws:1:r:instance:i-1",
        "took_s": 2.1,
    }


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("warning", json=True)
    logger = log.get("x")
    logger.debug("no")
    logger.info("no")
    logger.warning("yes")
    logger.error("yes too")

    assert [line["event"] for line in lines(capsys)] == ["yes", "yes too"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not known; use debug"):
        log.configure("loud")


def test_a_line_before_configuring_still_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.get("x").info("early", answer=42)

    out, err = capsys.readouterr()
    assert out == ""
    assert "early" in err
    assert "answer=42" in err


def test_a_traceback_travels_as_text_without_its_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(json=True)
    try:
        raise RuntimeError("GET https://me:hunter2@example.org/x?token=abcdef failed with Bearer abcdefgh")
    except RuntimeError:
        log.get("x").exception("broke")

    (line,) = lines(capsys)

    assert "RuntimeError" in line["exception"]
    for secret in ("hunter2", "abcdef"):
        assert secret not in line["exception"]


@pytest.mark.parametrize(
    "key", ["token", "Authorization", "webhook", "url", "webhook_url", "x_token", "client-secret", "db_password", "aws_credentials", "Set-Cookie"]
)
def test_secret_keys_are_redacted_at_any_depth(key: str) -> None:
    event = log.redact(None, "info", {"event": "e", key: "s3cret", "deep": {"list": [{key: "s3cret"}]}})

    assert "s3cret" not in str(event)
    assert event[key] == log.REDACTED


@pytest.mark.parametrize(("key", "value"), [("token_id", "t1"), ("tokens_count", 3), ("resource", "i-0abc"), ("token", None), ("curl", "x")])
def test_harmless_keys_stay(key: str, value: object) -> None:
    assert log.redact(None, "info", {key: value}) == {key: value}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("postgresql://reaper:pw@db/x", "postgresql://[redacted]@db/x"),
        ("https://x.org/?a=1&api_key=zzz&b=2", "https://x.org/?a=1&api_key=[redacted]&b=2"),
        ("posting to https://hooks.example.com/services/T0/B0/xyz now", "posting to [redacted] now"),
        ("stop aws:1:eu-west-1:instance:i-0abc", "stop aws:1:eu-west-1:instance:i-0abc"),
        ("a basic stop", "a basic stop"),
    ],
)
def test_secrets_inside_texts_are_redacted(text: str, clean: str) -> None:
    assert log.redact(None, "info", {"event": text}) == {"event": clean}
