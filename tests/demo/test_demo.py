"""The demo as a newcomer runs it: as a process, with a poisoned AWS environment that it must not use."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reaper.cli import exits

pytestmark = pytest.mark.story
needs_moto = pytest.mark.skipif(find_spec("moto") is None, reason="moto is not installed: pip install '.[demo]'")

WITHIN_S = 120
COMMAND = (sys.executable, "-m", "reaper.cli.main", "demo")

STOPPED = ["box-forgotten", "eval-nightly", "sweep-1", "sweep-2"]
SPARED = {
    "train-resnet": r"working: GPU peak \d+%",
    "train-video": r"starved: data wait \d+%",
    "notebook-ana": r"memory is taken on its GPU: nothing ran for \d+.*, and held it may be for 10h",
    "llm-1": r"llm-2 of the same job is working",
    "llm-2": r"working: GPU peak \d+%",
    "eight-gpus": r"working: GPU peak \d+%",
    "lost-gpu": r"1 of 2 GPUs readable",
    "gone-silent": r"silent agent: newest report ended .* ago",
    "no-agent": r"never had an agent",
    "paper-box": r"protected by protect\.paper with no end: paper deadline",
    "other-team": r"claimed by vision \(tag reaper\)",
    "just-launched": r"started .* ago \(limit 30m\)",
}

WRONG = """
import dataclasses, sys
from reaper.demo.play import play
from reaper.demo.screens import JsonLines
from reaper.demo.story import STORY

def machine(name, **changes):
    return dataclasses.replace(next(m for m in STORY if m.name == name), **changes)

sys.exit(0 if play(JsonLines(), ({story},), {deadline_s}).good else 1)
"""


@dataclass
class Started:
    """A demo's process in a session, a home and a temporary folder of its own."""

    process: subprocess.Popen[str]
    home: Path
    temporary: Path
    ended: tuple[int, list[dict[str, Any]], str] | None = None

    def wait(self) -> tuple[int, list[dict[str, Any]], str]:
        """(exit code, every line of standard output as JSON, standard error)."""
        if self.ended is None:
            out, err = self.process.communicate(timeout=WITHIN_S)
            self.ended = self.process.returncode, [json.loads(line) for line in out.splitlines()], err
        return self.ended

    def left_behind(self) -> list[str]:
        files = [str(path) for path in (*self.home.rglob("*"), *self.temporary.rglob("*"))]
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return files
        return [*files, f"a process of group {self.process.pid}"]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


Start = Callable[..., Started]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    started: list[Started] = []

    def begin(*words: str) -> Started:
        home, temporary = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("tmp")
        environment = {
            **os.environ,
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "AWS_PROFILE": "somebody-elses",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ENDPOINT_URL_EC2": "http://127.0.0.1:9",
            "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/credentials.json",
            "GOOGLE_API_USE_MTLS_ENDPOINT": "always",
            "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "example.com",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9",
            "REAPER_CONFIG": "/nowhere/reaper.toml",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )  # fmt: skip
        started.append(Started(process, home, temporary))
        return started[-1]

    yield begin
    for demo in started:
        demo.kill()


@pytest.fixture(scope="module")
def whole(start: Start) -> Started:
    return start(*COMMAND, "--json")


@pytest.fixture(scope="module")
def misjudged(start: Start) -> Started:
    """The story says that a forgotten machine works."""
    return start(sys.executable, "-c", WRONG.format(story="machine('box-forgotten', ends='working')", deadline_s=80))


@needs_moto
@pytest.mark.usefixtures("whole", "misjudged")  # which take the longest, and run beside the others from here on
def test_what_does_not_stop_in_time_makes_it_fail_and_says_so(start: Start) -> None:
    code, events, _ = start(sys.executable, "-c", WRONG.format(story="machine('train-resnet', ends='stopped')", deadline_s=8)).wait()

    assert code == exits.FAILED
    assert (events[-1]["stopped"], list(events[-1]["spared"])) == ([], ["train-resnet"])
    told = [event["text"] for event in events if event["event"] == "wrong"]
    assert told[0] == "not done within 8 s"
    assert "train-resnet should have been stopped and is running" in told


@needs_moto
@pytest.mark.parametrize(("sent", "expected"), [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, 143)], ids=["ctrl-c", "terminated"])
def test_interrupted_in_the_middle_it_cleans_up(start: Start, sent: signal.Signals, expected: int) -> None:
    demo = start(*COMMAND)
    assert demo.process.stdout is not None
    for line in demo.process.stdout:
        if "spared (working)" in line:  # agents, door and daemon all run
            break
    demo.process.send_signal(sent)
    demo.process.communicate(timeout=WITHIN_S)

    assert demo.process.returncode == expected
    assert demo.left_behind() == []


def test_without_moto_it_says_how_to_install_it(start: Start) -> None:
    demo = start(sys.executable, "-c", "import sys; sys.modules['moto'] = None; from reaper.cli.main import main; sys.exit(main(['demo']))")
    _, err = demo.process.communicate(timeout=WITHIN_S)

    assert demo.process.returncode == exits.USAGE
    assert "pip install 'idle-reaper[demo]'" in err
    assert demo.left_behind() == []


@needs_moto
def test_exactly_the_right_machines_are_stopped_and_the_rest_is_spared_each_for_its_own_reason(whole: Started) -> None:
    code, events, err = whole.wait()

    assert (code, err) == (exits.DONE, "")
    assert set(events[-1]) == {"event", "stopped", "spared"}
    assert events[-1]["event"] == "summary"
    assert events[-1]["stopped"] == STOPPED
    assert events[-1]["spared"].keys() == SPARED.keys()
    wrong = {name: said for name, said in events[-1]["spared"].items() if not re.fullmatch(SPARED[name], said)}
    assert wrong == {}


@needs_moto
def test_every_stop_was_announced_waited_for_and_looked_at_again(whole: Started) -> None:
    _, events, _ = whole.wait()

    for name in STOPPED:
        told = [event["event"] for event in events if event.get("name") == name]
        order = [told.index(kind) for kind in ("nominated", "warned", "due", "stopped", "why")]
        assert order == sorted(order), told
    gone = [event["event"] for event in events if event.get("name") == "gone-silent"]
    assert "warned" in gone
    assert "paused" in gone
    assert "due" not in gone


@needs_moto
def test_nothing_is_left_behind(whole: Started) -> None:
    whole.wait()

    assert whole.left_behind() == []


@needs_moto
def test_a_wrong_expectation_makes_it_fail(misjudged: Started) -> None:
    code, events, _ = misjudged.wait()

    assert code == exits.FAILED
    assert events[-1]["stopped"] == ["box-forgotten"]
    assert "box-forgotten was stopped and should have been spared" in [event["text"] for event in events if event["event"] == "wrong"]
