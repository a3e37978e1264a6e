"""People and their jobs are work: input in its window, a cell as long as it runs, trees by what they do. What is only open is not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.decide.at_work import SILENT_CELL_S
from reaper.decide.correlate import busy_sign, state_of
from reaper.decide.engine import decide
from reaper.decide.guards.in_use import in_use
from reaper.decide.windows import fold
from reaper.model.decision import Verdict
from reaper.model.policy import MIB
from reaper.model.presence import AtWork, Presence
from reaper.model.signal import Signal, State
from tests.builders import MINUTE, NOW, facts, held_facts, observation, policy

NAN, INF = float("nan"), float("inf")
TEN = timedelta(minutes=10)


def one(kind="ssh", **changes):
    """Somebody's, and quiet for hours."""
    return AtWork(kind, **({"user": "ada", "name": "bash", "idle_s": 9000.0, "cores": 0.0, "io_bytes_per_s": 0.0} | changes))


def seen(*people, unread=(), **changes):
    return observation(presence=Presence(people, unread), **changes)


KERNEL = {"kind": "kernel", "name": "python3", "idle_s": None, "busy": False}

WORK = [
    ("nobody", (), None),
    ("a session that has been open for days", (one(idle_s=400_000.0),), None),
    ("somebody types", (one(idle_s=10.0),), "input 10 s"),
    ("somebody typed as the window before ended", (one(idle_s=89.0),), "input 89 s"),
    ("somebody typed two windows ago", (one(idle_s=91.0),), None),
    ("an idle kernel", (one(**KERNEL),), None),
    ("a cell runs in silence", (one(**KERNEL | {"busy": True, "busy_s": 86_400.0}),), "runs a cell"),
    ("a cell has run for a week and computes", (one(**KERNEL | {"busy": True, "busy_s": 7 * 86_400.0, "cores": 0.05}),), "runs a cell"),
    ("a cell has run for days in silence", (one(**KERNEL | {"busy": True, "busy_s": SILENT_CELL_S}),), None),
    ("the second of two kernels runs", (one(**KERNEL), one(**KERNEL | {"busy": True})), "runs a cell"),
    ("a program in tmux computes on one core of many", (one("tmux", name="prep", cores=0.2),), "0.20 cores"),
    ("a program in tmux does next to nothing", (one("tmux", name="htop", cores=0.19),), None),
    ("a job of cron", (one("cron", idle_s=None, name="evaluate", cores=3.5),), "3.50 cores"),
    ("a container without a GPU", (one("container", idle_s=None, cores=1.0),), "1.00 cores"),
    ("what a login left behind", (one("background", idle_s=None, cores=0.9),), "0.90 cores"),
    ("somebody types in an editor", (one("editor", idle_s=None, name="node", cores=0.05),), "0.05 cores"),
    ("an editor is only open", (one("editor", idle_s=None, name="node", cores=0.04),), None),
    ("a slow copy over ssh", (one(idle_s=None, name="rsync", io_bytes_per_s=1.0 * MIB),), "1.0 MiB/s"),
    ("a trickle over ssh", (one(idle_s=None, name="ssh", io_bytes_per_s=20_000.0),), None),
]


@pytest.mark.parametrize(("people", "expected"), [row[1:] for row in WORK], ids=[row[0] for row in WORK])
def test_what_counts_as_somebody_at_work(people, expected):
    given = facts(newest=seen(*people))
    sign = busy_sign(given, given.newest)
    found = in_use(given, NOW)

    assert (sign is None, found is None) == (expected is None, expected is None)
    assert expected is None or (expected in sign and sign.startswith("people at work: ada's") and found.because == sign)
    assert state_of(given, NOW) is (State.IDLE if expected is None else State.WORKING)


@pytest.mark.parametrize(("people", "expected"), [row[1:] for row in WORK], ids=[row[0] for row in WORK])
def test_the_idle_clock_says_the_same(people, expected):
    windows = [seen(one(), ended_at=NOW - n * MINUTE) for n in (5, 4, 3)] + [seen(*people, ended_at=NOW - 2 * MINUTE), seen(ended_at=NOW - MINUTE), seen(ended_at=NOW)]
    answer = fold(windows).quiet(policy().limits, (TEN,))

    assert answer.quiet_for == (6 * MINUTE if expected is None else 2 * MINUTE)
    assert (answer.last_busy is None) == (expected is None)


@pytest.mark.parametrize("base", [facts, held_facts])
def test_machine_that_somebody_works_on_is_never_acted_on(base):
    newest = base().newest
    quiet = Presence((one(), one(**KERNEL)))

    def told(presence):
        return decide(base(newest=replace(newest, presence=presence)), NOW).verdict

    assert told(quiet) is Verdict.ACT
    assert told(Presence((one(idle_s=3.0),))) is not Verdict.ACT
    assert told(Presence((one(),), ("when somebody typed",))) is not Verdict.ACT


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (seen(unread=("the processes of other users",)), "the processes of other users"),
        (seen(one(**KERNEL | {"busy": None})), "whether ada's kernel (python3) is in use"),
        (seen(one(cores=None)), "the CPU of ada's ssh (bash)"), (seen(one(cores=NAN)), "the CPU of ada's"), (seen(one(cores=-1.0)), "the CPU of ada's"),
        (seen(one(idle_s=NAN)), "in use"), (seen(one(idle_s=-5.0)), "in use"), (seen(one(io_bytes_per_s=NAN)), "in use"),
        (seen(one(**KERNEL | {"busy": True, "busy_s": INF, "cores": 0.0})), "in use"),
        (seen(one("cron", idle_s=None, io_bytes_per_s=None)), None), (seen(), None), (observation(presence=None), None),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_not_nobody(given, expected):
    found = in_use(facts(newest=given), NOW)

    assert (found is None) == (expected is None)
    assert expected is None or (expected in found.because and "cannot be seen" in found.because)


def test_time_in_which_nobody_could_look_is_not_covered():
    windows = [seen(ended_at=NOW - n * MINUTE, unread=("kernels",) if n < 4 else ()) for n in range(12, -1, -1)]
    share, name = fold(windows).quiet(policy().limits, (TEN,)).host_covered[TEN]

    assert (round(share, 2), name) == (0.6, Signal.PEOPLE)


def test_agent_that_does_not_look_is_judged_as_ever():
    windows = [observation(ended_at=NOW - n * MINUTE, presence=None) for n in range(12, -1, -1)]

    assert fold(windows).quiet(policy().limits, (TEN,)).host_covered[TEN][0] == 1.0


def test_agent_that_begins_to_look_in_the_middle_has_covered_its_own_time_only():
    windows = [observation(ended_at=NOW - n * MINUTE, presence=Presence() if n < 5 else None) for n in range(12, -1, -1)]

    assert fold(windows).quiet(policy().limits, (TEN,)).host_covered[TEN][0] == pytest.approx(0.5)
