"""Sending: against a local HTTP server that fails in scripted ways."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from agent.config import Settings
from agent.report import Answer, Report, Sampler, Upcoming
from agent.sender import Outcome, Post, Sender
from agent.spool import Spool
from tests.agent.doubles import BOOT, RESOURCE, Lines, ManualClock, Reaper
from tests.agent.doubles import settings as make_settings

Made = Tuple[Sender, Reaper, Spool]


def report(clock: ManualClock) -> Report:
    return Report(RESOURCE, BOOT, clock.boot_s(), int(clock.boot_s() * 1000), 60.0, 0.0, Sampler("ok"))


@pytest.fixture
def made(tmp_path: Path, clock: ManualClock, log: Lines) -> Any:
    with Reaper() as reaper:
        spool = Spool(tmp_path / "spool", BOOT, 100, 1 << 20, log)
        settings = make_settings(tmp_path, reaper=reaper.url)
        post = Post(settings, clock)
        yield Sender(post, spool, clock, log, 60.0, jitter=lambda: 1.0), reaper, spool
        post.close()


def test_report_arrives_with_token_age_and_display_time(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    sender.hand(report(clock))
    clock.move(2.5)
    rest = sender.pump()

    (came,) = reaper.reports
    assert (came.seq, came.age_s, came.sent_at) == (1000000, 2.5, "2026-03-01T12:00:02.500Z")
    assert reaper.tokens == ["Bearer token-of-this-host"]
    assert (rest, len(spool)) == (None, 0)


def test_answer_is_kept_for_people(made: Made, clock: ManualClock) -> None:
    sender, reaper, _ = made
    reaper.extra = {"upcoming": {"action": "stop", "due_at": "2026-03-01T13:00:00Z", "because": "idle for 2h"}, "snoozed_until": None, "new": 1}
    sender.hand(report(clock))
    sender.pump()

    assert sender.delivery().answer == Answer(1000000, Upcoming("stop", "2026-03-01T13:00:00Z", "idle for 2h"))
    assert (sender.delivery().last_sent_seq, sender.delivery().problem) == (1000000, None)


@pytest.mark.parametrize("how", [500, 502, 503, 429, 408, 302], ids=str)
def test_answer_that_may_change_keeps_the_report(made: Made, clock: ManualClock, how: int) -> None:
    sender, reaper, spool = made
    reaper.answers = [how]
    sender.hand(report(clock))
    rest = sender.pump()

    assert (reaper.reports, len(spool), rest) == ([], 1, 5.0)
    assert str(how) in (sender.delivery().problem or "")


@pytest.mark.parametrize("how", [400, 401, 403, 404, 413, 422], ids=str)
def test_refused_report_is_dropped_with_the_words_of_the_refusal(made: Made, clock: ManualClock, log: Lines, how: int) -> None:
    sender, reaper, spool = made
    reaper.answers = [how]
    sender.hand(report(clock))
    sender.pump()

    assert (len(spool), sender.delivery().refused) == (0, 1)
    assert any(event == "report refused" and "because of reasons" in keys["because"] for _, event, keys in log.lines)


def test_nobody_listening_keeps_the_report(tmp_path: Path, clock: ManualClock, log: Lines) -> None:
    spool = Spool(tmp_path, BOOT, 10, 1 << 20, log)
    sender = Sender(Post(make_settings(tmp_path), clock), spool, clock, log)
    sender.hand(report(clock))
    sender.pump()

    assert len(spool) == 1
    assert "no answer (ConnectionRefusedError" in (sender.delivery().problem or "")


def hang_up(handler: Any) -> None:
    handler.close_connection = True


def hang_up_in_the_middle(handler: Any) -> None:
    handler.send_response(202)
    handler.send_header("Content-Length", "500")
    handler.end_headers()
    handler.wfile.write(b'{"seq"')
    handler.close_connection = True


def talk_nonsense(handler: Any) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    handler.close_connection = True


def web_page(handler: Any) -> None:
    handler.reply(202, "<html>please log in</html>")


def login_page(handler: Any) -> None:
    handler.reply(200, "<html>please log in</html>")


def endless(handler: Any) -> None:
    handler.reply(202, "x" * 100_000)


def redirect(handler: Any) -> None:
    handler.reply(307, "", Location="http://127.0.0.1:9/v1/reports")


@pytest.mark.parametrize(
    "how", [hang_up, hang_up_in_the_middle, talk_nonsense, web_page, login_page, endless, redirect], ids=lambda how: how.__name__
)
def test_whatever_is_no_answer_of_the_reaper_keeps_the_report(made: Made, clock: ManualClock, how: Any) -> None:
    sender, reaper, spool = made
    reaper.answers = [how]
    sender.hand(report(clock))
    sender.pump()

    assert len(spool) == 1
    assert sender.delivery().last_sent_seq is None
    assert (sender.delivery().problem or "").startswith(reaper.url)


def test_redirect_is_named_and_the_token_goes_nowhere_else(made: Made, clock: ManualClock) -> None:
    sender, reaper, _ = made
    with Reaper() as elsewhere:
        reaper.answers = [lambda handler: handler.reply(307, "", Location=elsewhere.url + "/v1/reports")]
        sender.hand(report(clock))
        sender.pump()

        assert elsewhere.connections == 0
    assert "a redirect, which is not followed" in (sender.delivery().problem or "")


def test_age_is_reckoned_anew_at_each_sending(made: Made, clock: ManualClock) -> None:
    sender, reaper, _ = made
    reaper.answers = [503]
    sender.hand(report(clock))
    sender.pump()
    clock.move(3600.0)
    sender.pump()

    (came,) = reaper.reports
    assert (came.seq, came.age_s) == (1000000, 3600.0)


def test_newest_goes_first_then_the_spool_a_few_at_a_time(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    for _ in range(15):
        spool.put(report(clock))
        clock.move(60.0)
    sender.hand(report(clock))
    rest = sender.pump()
    first = [r.seq for r in reaper.reports]

    assert first == [1900000, *range(1000000, 1600000, 60000)]
    assert (rest, len(spool)) == (0.0, 5)
    assert sender.pump() is None
    assert len(reaper.reports) == 16
    assert sender.delivery().last_sent_seq == 1900000  # an old report's answer does not replace the newest one's


def test_after_a_pause_the_newest_of_the_spool_goes_first(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    reaper.answers = [503]
    for _ in range(3):
        sender.hand(report(clock))
        sender.pump()
        clock.move(1.0)
    clock.move(5.0)
    sender.pump()

    assert [r.seq for r in reaper.reports] == [1002000, 1000000, 1001000]


def test_pauses_grow_up_to_one_window_and_one_success_ends_them(made: Made, clock: ManualClock) -> None:
    sender, reaper, _ = made
    reaper.answers = [503] * 6
    rests: List[Any] = []
    for _ in range(7):
        sender.hand(report(clock))
        rests.append(sender.pump())
        clock.move(rests[-1] or 0.0)
    reaper.answers = [503]
    sender.hand(report(clock))

    assert rests == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, None]
    assert sender.pump() == 5.0


def test_jitter_shortens_a_pause_by_up_to_half(made: Made, clock: ManualClock) -> None:
    sender, reaper, _ = made
    sender._jitter = lambda: 0.0
    reaper.answers = [503]
    sender.hand(report(clock))

    assert sender.pump() == 2.5


@pytest.mark.parametrize(("text", "rest"), [("120", 120.0), ("1", 5.0), ("999999", 600.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 5.0), ("-5", 5.0), ("9" * 400, 5.0)])
def test_retry_after_is_honoured_within_a_cap(made: Made, clock: ManualClock, text: str, rest: float) -> None:
    sender, reaper, _ = made
    reaper.answers = [lambda handler: handler.reply(429, "", Retry_After=text)]
    sender.hand(report(clock))

    assert sender.pump() == rest


def test_during_a_pause_reports_go_to_the_spool_and_nobody_is_called(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    reaper.answers = [503]
    sender.hand(report(clock))
    sender.pump()
    clock.move(1.0)
    sender.hand(report(clock))

    assert sender.pump() == 4.0
    assert (reaper.reports, len(spool)) == ([], 2)


def test_one_connection_serves_many_reports(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    for _ in range(5):
        spool.put(report(clock))
        clock.move(60.0)
    sender.pump()

    assert (len(reaper.reports), reaper.connections) == (5, 1)


def test_connection_that_was_closed_meanwhile_is_opened_again_at_once(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    reaper.answers = [202, hang_up]
    for _ in range(2):
        sender.hand(report(clock))
        sender.pump()
        clock.move(60.0)

    assert (len(reaper.reports), reaper.connections, len(spool)) == (2, 2, 0)


def test_rotated_token_is_used_without_a_restart(tmp_path: Path, clock: ManualClock, log: Lines) -> None:
    token = tmp_path / "token"
    with Reaper() as reaper:
        settings = Settings(reaper.url, token_file=token)
        sender = Sender(Post(settings, clock), Spool(tmp_path / "spool", BOOT, 10, 1 << 20, log), clock, log, jitter=lambda: 1.0)
        for text in ("first-token", "second-token"):
            token.write_text(text + "\n")
            sender.hand(report(clock))
            sender.pump()
            clock.move(60.0)
        sender.close()

        assert reaper.tokens == ["Bearer first-token", "Bearer second-token"]


def test_unreadable_token_keeps_the_report_and_says_why(tmp_path: Path, clock: ManualClock, log: Lines) -> None:
    spool = Spool(tmp_path / "spool", BOOT, 10, 1 << 20, log)
    sender = Sender(Post(Settings("http://127.0.0.1:9", token_file=tmp_path / "none"), clock), spool, clock, log)
    sender.hand(report(clock))
    sender.pump()

    assert len(spool) == 1
    assert "none cannot be read" in (sender.delivery().problem or "")


def test_token_is_in_no_log_line(made: Made, clock: ManualClock, log: Lines) -> None:
    sender, reaper, _ = made
    reaper.answers = [503, 400, hang_up, hang_up]
    for _ in range(3):
        sender.hand(report(clock))
        sender.pump()
        clock.move(600.0)

    assert len(log.lines) >= 3
    assert "token-of-this-host" not in repr(log.lines)


def test_encrypted_connection_refuses_a_stranger(tmp_path: Path, clock: ManualClock) -> None:
    """A server without a certificate of a known authority gets no token."""
    with Reaper() as reaper:
        outcome = Post(make_settings(tmp_path, reaper=reaper.url.replace("http", "https")), clock)(b"{}")

        assert (outcome.kind, reaper.tokens) == ("later", [])
        assert "SSLError" in (outcome.problem or "") or "no answer" in (outcome.problem or "")


def test_another_machines_reports_are_forgotten(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    spool.put(report(clock))
    clock.move(1.0)
    sender.hand(report(clock))
    sender.forget("another machine's")
    sender.pump()

    assert (reaper.reports, len(spool)) == ([], 0)


def test_end_keeps_what_was_not_sent(made: Made, clock: ManualClock) -> None:
    sender, reaper, spool = made
    sender.hand(report(clock))
    sender.close()

    assert (reaper.reports, len(spool)) == ([], 1)


def test_thread_sends_what_is_handed_over(made: Made, clock: ManualClock) -> None:
    sender, reaper, _ = made
    sender.start()
    sender.hand(report(clock))
    came = reaper.wait_for(1)
    sender.close()

    assert [r.seq for r in came] == [1000000]


def test_hung_thread_loses_the_oldest_and_counts_it(made: Made, clock: ManualClock, log: Lines) -> None:
    sender, _, _ = made
    for _ in range(6):
        sender.hand(replace(report(clock), age_s=0.0))
        clock.move(60.0)

    assert log.events().count("report lost") == 2
    sender.pump()
    assert sender.delivery().dropped == 2


class Surprising:
    """Fails at first in a way that nobody thought of."""

    def __init__(self) -> None:
        self.tries = 0
        self.sent = threading.Event()

    def __call__(self, body: bytes) -> Outcome:
        self.tries += 1
        if self.tries == 1:
            raise TypeError("of a kind that nobody thought of")
        self.sent.set()
        return Outcome("sent")

    def close(self) -> None:
        return


def test_failure_that_nobody_thought_of_keeps_the_report(tmp_path: Path, clock: ManualClock, log: Lines) -> None:
    post, spool = Surprising(), Spool(tmp_path / "spool", BOOT, 100, 1 << 20, log)
    sender = Sender(post, spool, clock, log, 60.0, jitter=lambda: 0.0)
    sender.hand(report(clock))
    sender.pump()
    assert len(spool) == 1
    assert "nobody thought of" in (sender.delivery().problem or "")

    clock.move(60.0)
    sender.pump()
    assert post.sent.is_set()
    assert len(spool) == 0


def test_sending_goes_on_after_a_round_that_failed(tmp_path: Path, clock: ManualClock, log: Lines) -> None:
    post, spool = Surprising(), Spool(tmp_path / "spool", BOOT, 100, 1 << 20, log)
    post.tries = 1
    sender = Sender(post, spool, clock, log, window_s=0.05, jitter=lambda: 0.0)
    rounds: List[int] = []
    pump = sender.pump

    def fails_once() -> Any:
        rounds.append(1)
        if len(rounds) == 1:
            raise OSError("the disk of the spool is gone")
        return pump()

    sender.pump = fails_once  # type: ignore[method-assign]
    sender.start()
    sender.hand(report(clock))
    assert post.sent.wait(20.0)
    sender.close()
    assert "sending failed" in log.events()
