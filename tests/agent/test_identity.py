"""Who am I: against a fake metadata service, and what is thrown away when the answer is another machine."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import List

import pytest

from agent.identity import Identity, IdentityError, Who
from agent.state import Memory, load_memory, save_memory
from tests.agent.doubles import BOOT, OTHER, RESOURCE, Lines, ManualClock
from tests.fakes.imds import FakeImds, ask_metadata, document


def test_identity_comes_from_the_document_by_a_session_token() -> None:
    with FakeImds() as imds:
        found = ask_metadata(imds.endpoint)

    assert found == Identity(RESOURCE, "p5.48xlarge", "metadata")
    assert imds.asked[:2] == ["PUT /latest/api/token", "GET /latest/dynamic/instance-identity/document"]


def test_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with FakeImds() as imds:
        assert ask_metadata(imds.endpoint).resource == RESOURCE


def test_service_that_is_switched_off_is_not_known() -> None:
    with FakeImds() as imds:
        imds.tokens = False
        with pytest.raises(IdentityError, match="PUT /latest/api/token answered 403; enable the instance metadata service"):
            ask_metadata(imds.endpoint)


def test_no_document_is_not_known() -> None:
    with FakeImds() as imds:
        imds.document = None
        with pytest.raises(IdentityError, match="document answered 404"):
            ask_metadata(imds.endpoint)


def test_slow_service_is_not_waited_for() -> None:
    with FakeImds() as imds:
        imds.delay_s = 30.0
        with pytest.raises(IdentityError, match="no answer .*set resource in the configuration"):
            ask_metadata(imds.endpoint, timeout_s=0.2)


def test_nobody_there_is_not_known() -> None:
    with pytest.raises(IdentityError, match="no answer"):
        ask_metadata("http://127.0.0.1:9")


@pytest.mark.parametrize(
    "text",
    ["", "<html>hello</html>", "[]", "{}", json.dumps({"accountId": 5}), document(instance_id="i 0"), document(region="")],
    ids=["empty", "a_web_page", "a_list", "no_fields", "half_of_it", "blank_in_the_id", "no_region"],
)
def test_answer_that_is_no_identity_document_is_not_known(text: str) -> None:
    with FakeImds(text) as imds, pytest.raises(IdentityError, match="identity document|resource id"):
        ask_metadata(imds.endpoint)


def who(answers: List[object], log: Lines, clock: ManualClock, remembered: "Identity | None" = None) -> Who:
    def ask() -> Identity:
        answer = answers.pop(0)
        if isinstance(answer, Identity):
            return answer
        raise IdentityError(str(answer))

    return Who(ask, threading.Event(), clock, log, remembered)


def test_it_is_asked_again_with_a_growing_pause(log: Lines, clock: ManualClock) -> None:
    asking = who(["down", "down", "down", Identity(RESOURCE)], log, clock)
    asking._run()

    assert asking.current() == Identity(RESOURCE)
    assert clock.boot_s() == 1000.0 + 5 + 10 + 20
    assert [keys["because"] for level, event, keys in log.lines if event == "identity not known"] == ["down"] * 3


def test_unknown_identity_is_none_and_never_a_host_name(log: Lines, clock: ManualClock) -> None:
    assert who([], log, clock).current() is None


def test_what_this_boot_remembers_stands_in_until_the_service_answers(log: Lines, clock: ManualClock) -> None:
    asking = who([Identity(OTHER, source="metadata")], log, clock, Identity(RESOURCE, source="cache"))
    before = asking.current()
    asking._run()

    assert (before, asking.current()) == (Identity(RESOURCE, source="cache"), Identity(OTHER, source="metadata"))


def test_memory_of_another_boot_is_no_identity() -> None:
    memory = Memory(RESOURCE, "p5.48xlarge", BOOT, 8)

    assert memory.identity(BOOT) == Identity(RESOURCE, "p5.48xlarge", "cache")
    assert memory.identity("another boot") is None
    assert Memory().identity(BOOT) is None


@pytest.mark.parametrize(
    ("identity", "fits"),
    [
        (Identity(RESOURCE, "p5.48xlarge"), True),
        (Identity(RESOURCE), True),
        (Identity(OTHER, "p5.48xlarge"), False),
        (Identity(RESOURCE, "g5.xlarge"), False),
    ],
    ids=["same_machine", "type_not_known", "cloned_disk", "resized"],
)
def test_memory_fits_one_machine(identity: Identity, fits: bool) -> None:
    assert Memory(RESOURCE, "p5.48xlarge", BOOT, 8).fits(identity) is fits


def test_memory_survives_on_disk(tmp_path: Path, log: Lines) -> None:
    memory = Memory(RESOURCE, None, BOOT, 8)
    assert save_memory(tmp_path, memory, log)

    assert load_memory(tmp_path, log) == memory
    assert load_memory(tmp_path / "none", log) == Memory()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus": "8"}', '{"gpus": true}', '{"gpus": -1}', '{"resource": 5}'])
def test_broken_memory_is_an_empty_one(tmp_path: Path, log: Lines, text: str) -> None:
    (tmp_path / "memory.json").write_text(text)

    assert load_memory(tmp_path, log) == Memory()


def test_disk_that_cannot_be_written_is_said_and_survived(tmp_path: Path, log: Lines) -> None:
    (tmp_path / "file").write_text("")

    assert save_memory(tmp_path / "file" / "below", Memory(), log) is False
    assert log.events() == ["state not written"]
