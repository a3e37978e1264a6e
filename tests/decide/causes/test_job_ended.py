"""The end of a machine's last job nominates after a term of its own, and nothing that is not known ever counts as an end."""

from dataclasses import fields, is_dataclass, replace

import pytest

from reaper.decide.causes.gpu_idle import gpu_idle
from reaper.decide.causes.job_ended import job_ended
from reaper.decide.engine import decide
from reaper.decide.facts import silent_for
from reaper.model.decision import Action, FindingKind, Verdict
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import IdleTerms, JobEndedTerms, Warn
from reaper.model.signal import Job, Person
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    facts,
    gpu,
    instance,
    loader,
    observation,
    policy,
    quiet,
    shield,
    snooze,
)
from tests.decide.test_nothing_missing_lets_go import AHEAD, ALLOWED, NEGATIVE, NONE, SHOWN, parts, unknowns

TERM = 45 * MINUTE
SIX_HOURS = 6 * HOUR
TERMS = policy(idle=IdleTerms(SIX_HOURS, 0.05, 48 * HOUR), job_ended=JobEndedTerms(TERM, Warn(30 * MINUTE)))
COVERED = {TERM: (1.0, "gpu GPU-0"), SIX_HOURS: (1.0, "gpu GPU-0"), 48 * HOUR: (1.0, "gpu GPU-0")}


def ended(ago=HOUR, id="session-3.scope@500", **changes):
    return Job(id, **({"ended_age_s": ago.total_seconds(), "launcher_known": True} | changes))


def seen(*jobs, **changes):
    return observation(**({"jobs": jobs or (ended(),)} | changes))


def calm(quiet_for=HOUR, **changes):
    return quiet(quiet_for, **({"covered": COVERED, "host_covered": COVERED} | changes))


def ended_facts(**changes):
    """Of a machine whose job ended an hour ago, under a policy that waits six hours for an idle one."""
    return facts(**({"policies": (TERMS,), "newest": seen(), "quiet": calm()} | changes))


@pytest.mark.parametrize(("given", "value"), [
    pytest.param(ended_facts(), "1h", id="an hour ago"),
    pytest.param(ended_facts(newest=seen(ended(TERM)), quiet=calm(TERM)), "45m", id="exactly the term"),
    pytest.param(ended_facts(newest=seen(ended(DAY), ended(HOUR, "b"), ended(3 * HOUR, "c"))), "1h", id="the newest of several"),
    pytest.param(ended_facts(newest=seen(ended(HOUR + 3 * MINUTE))), "1h", id="its tail was busy for three windows, which do not count"),
    pytest.param(ended_facts(quiet=calm(20 * HOUR), newest=seen(ended(HOUR))), "1h", id="its GPUs stood low long before it ended"),
])  # fmt: skip
def test_a_machine_whose_job_ended_is_nominated_after_its_own_term(given, value):
    found = job_ended(given, NOW)

    assert found is not None
    assert (found.kind, found.action, found.rule, found.value, found.limit) == (FindingKind.NOMINATE, Action.STOP, "job-ended", value, "45m")
    assert "session-3.scope@500" in found.because or "b" in found.because
    assert decide(given, NOW).verdict is Verdict.ACT
    assert decide(given, NOW).cause == "job-ended"


LIVES = Job("other")
LAUNCHED = ended(launcher="bash")

NOT = [
    ("a second too short", ended_facts(newest=seen(ended(TERM - SECOND)))),
    ("quiet for less than the term", ended_facts(newest=seen(ended(46 * MINUTE)), quiet=calm(44 * MINUTE))),
    ("another job lives", ended_facts(newest=seen(ended(), LIVES))),
    ("its launcher lives", ended_facts(newest=seen(LAUNCHED))),
    ("the launcher of another one lives", ended_facts(newest=seen(ended(), replace(LAUNCHED, id="other")))),
    ("its launcher could not be looked for", ended_facts(newest=seen(ended(launcher_known=False)))),
    ("its launcher was not looked for yet", ended_facts(newest=seen(ended(launcher_known=None)))),
    ("that of another one could not be looked for", ended_facts(newest=seen(ended(), ended(5 * HOUR, "other", launcher_known=False)))),
    ("a launcher without a name", ended_facts(newest=seen(ended(launcher="")))),
    ("jobs not known", ended_facts(newest=seen(jobs=None))),
    ("no job at all: the agent began anew", ended_facts(newest=seen(jobs=()))),
    ("a process on a GPU", ended_facts(newest=seen(gpus=(gpu(processes=1),), loaders=(loader(),)))),
    ("processes not known", ended_facts(newest=seen(gpus=(gpu(processes=None),)))),
    ("memory held without a process", ended_facts(newest=seen(gpus=(gpu(mem_used_bytes=8 << 30),)))),
    ("no GPU in the window", ended_facts(newest=seen(gpus=()))),
    ("work since its end", ended_facts(newest=seen(ended(2 * HOUR)), quiet=calm(HOUR))),
    ("something held since its end", ended_facts(newest=seen(ended(2 * HOUR)), quiet=calm(2 * HOUR, unheld_for=HOUR))),
    ("a hole since its end", ended_facts(newest=seen(ended(2 * HOUR)), quiet=calm(HOUR, began_at=NOW - HOUR))),
    ("an unverified voice", ended_facts(newest=seen(verified=False))),
    ("a window older than the clock", ended_facts(newest=seen(ended_ago=5 * MINUTE))),
    ("no window", ended_facts(newest=None)),
    ("no clock", ended_facts(quiet=None)),
    ("a policy without the term", ended_facts(policies=(replace(TERMS, job_ended=None),))),
    ("a policy that reports", ended_facts(policies=(replace(TERMS, action="report"),))),
    ("no policy", ended_facts(policies=())),
    ("a type without GPUs", ended_facts(instance=instance(gpus=0), quiet=calm(devices=0))),
    *((f"it is {state}", ended_facts(instance=instance(state=state))) for state in InstanceState if state is not InstanceState.RUNNING),
]  # fmt: skip


@pytest.mark.parametrize("given", [row[1] for row in NOT], ids=[row[0] for row in NOT])
def test_what_is_not_certain_to_be_over_is_not_nominated(given):
    assert job_ended(given, NOW) is None
    assert decide(given, NOW).verdict is not Verdict.ACT


HELD = [
    ("a snooze", {"snoozes": (snooze(),)}, "keeps it until"),
    ("a protection", {"shields": (shield(),)}, "protected by"),
    ("a living slurmd", {"newest": seen(orchestrators=("slurmd",))}, "slurmd"),
    ("a silent agent", {"newest": seen(ended_ago=10 * MINUTE), "quiet": calm(until=NOW - 10 * MINUTE)}, "silent agent"),
    ("GPUs uncovered in the term", {"quiet": calm(covered=COVERED | {TERM: (0.5, "gpu GPU-0")})}, "covered 50% of the last 45m"),
    ("CPU unreadable in the term", {"quiet": calm(host_covered=COVERED | {TERM: (0.5, "cpu")})}, "readable for 50% of the last 45m"),
    ("coverage of the term not known", {"quiet": calm(covered={})}, "covered 0%"),
    ("CPU at work", {"newest": seen(cpu_ratio=0.9)}, "CPU 90%"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "because"), [row[1:] for row in HELD], ids=[row[0] for row in HELD])
def test_every_guard_binds_it_over_its_own_term(changes, because):
    decided = decide(ended_facts(**changes), NOW)

    assert decided.verdict is not Verdict.ACT
    assert because in decided.because


def test_a_job_that_cannot_be_seen_to_have_ended_leaves_the_longer_terms_as_they_are():
    given = ended_facts(newest=seen(ended(launcher_known=False)), quiet=calm(SIX_HOURS))
    decided = decide(given, NOW)

    assert (decided.verdict, decided.cause) == (Verdict.ACT, "gpu-idle")


def test_where_both_nominate_the_end_of_the_job_is_the_cause():
    given = ended_facts(newest=seen(ended(SIX_HOURS)), quiet=calm(SIX_HOURS))

    assert gpu_idle(given, NOW) is not None
    assert decide(given, NOW).cause == "job-ended"


def test_who_is_on_the_machine_decides_nothing():
    assert decide(ended_facts(newest=seen(people=(Person("ada", 1000, "login", 5.0),))), NOW).verdict is Verdict.ACT


# --- every single figure that is missing ---

BINDING = {("newest", "jobs"), ("gpu", "processes", NONE), ("gpu", "processes", NEGATIVE), ("quiet", "unheld_since", AHEAD)}
"""Allowed where the longer terms of other causes are served, and not here."""
OWN = {
    ("job", "id"): SHOWN,
    ("job", "launcher"): "None is the answer, beside launcher_known",
}


def ended_cases():
    base = ended_facts()
    (job,) = base.newest.jobs
    every = [*parts(base), ("job", job, lambda other: replace(base, newest=replace(base.newest, jobs=(other,))))]
    for part, value, put in every:
        for field in fields(value):
            for kind, unknown in unknowns(getattr(value, field.name)):
                if is_dataclass(getattr(value, field.name)) and kind != NONE:
                    continue
                key = (part, field.name, kind)
                allowed = {*ALLOWED, *OWN} - BINDING
                if key in allowed or key[:2] in allowed:
                    continue
                yield pytest.param(put(replace(value, **{field.name: unknown})), id=f"{part}.{field.name} {kind}")


def test_the_machine_that_the_cases_change_would_be_stopped():
    assert decide(ended_facts(), NOW).verdict is Verdict.ACT


@pytest.mark.parametrize("given", list(ended_cases()))
def test_a_figure_that_is_not_known_never_ends_a_job(given):
    assert decide(given, NOW).verdict is not Verdict.ACT


@pytest.mark.parametrize("age", [None, float("nan"), float("inf"), -1.0])
def test_an_age_that_is_no_number_is_no_end(age):
    assert job_ended(ended_facts(newest=seen(Job("x", age, launcher_known=True))), NOW) is None


def test_silence_does_not_make_an_end_any_older():
    given = ended_facts(newest=seen(ended(44 * MINUTE), ended_ago=2 * MINUTE), quiet=calm(44 * MINUTE, until=NOW - 2 * MINUTE))

    assert silent_for(given, NOW) is None
    assert given.ended_job is None


def test_span_is_that_of_the_cause_that_nominates():
    assert ended_facts().span == TERM
    assert ended_facts(newest=seen(LAUNCHED)).span == 48 * HOUR
    assert ended_facts(newest=seen(LAUNCHED), quiet=calm(SIX_HOURS)).span == 48 * HOUR
    assert ended_facts(newest=seen(replace(LAUNCHED, launcher=None, launcher_known=False)), quiet=calm(SIX_HOURS)).span == SIX_HOURS
