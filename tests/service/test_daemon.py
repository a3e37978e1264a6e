"""The daemon's loop, and what people filed with `apply` and `undo` while it leads."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reaper.errors import StoreError, Throttled
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.kinds.instance import InstanceState
from reaper.model.plan import Approval, Plan
from reaper.model.policy import Budgets, Configuration, CountBudget, Mode
from reaper.service.daemon import APPROVAL_HOLDS_FOR
from reaper.service.undo import APPROVAL_PREFIX
from tests.scenarios.siege import Siege, quick


@pytest.fixture
def siege(tmp_path: Path) -> Siege:
    return Siege(tmp_path)


def file(siege: Siege, plan: str, id: str = "ok-1", *, ago: timedelta = timedelta(0)) -> None:
    now = siege.clock.now()
    entry = AuditEntry(now, AuditKind.APPROVED, "ada", f"approved {plan}", evidence={"plan": plan})
    siege.store.add_approval(Approval(id, plan, "ada", now - ago), entry)


def withheld(siege: Siege) -> list[str]:
    """What was written down about approvals and their machines, oldest first."""
    return [entry.because for entry in siege.store.audit(limit=1000) if entry.kind is AuditKind.WITHHELD and entry.actor == "ada"]


def held_back(siege: Siege, *, unread: bool = True) -> Plan:
    """A person's plan for a machine that is due. ``unread``: the daemon's own next try fails to read it, so the approval is what acts."""
    siege.add("i-it")
    siege.config = quick(budgets=Budgets(stops=CountBudget(per_hour=0), breaker=None))
    siege.until_due()
    siege.run(1)
    assert siege.stops == []
    siege.config = quick()
    plan = siege.cycle.preview(siege.config, fetch=True).plan
    assert len(plan.actions) == 1
    if unread:
        siege.cloud.fail("get", Throttled("slow down", "RequestLimitExceeded"))
    return plan


def stopped(siege: Siege) -> str:
    siege.add("i-it")
    siege.until_due()
    siege.run(2)
    assert siege.stopped("i-it")
    return siege.store.attempts()[0].id


# --- apply --------------------------------------------------------------------------------------------------------------


def test_approved_plan_is_carried_out_once_by_who_leads_and_in_the_persons_name(siege: Siege) -> None:
    plan = held_back(siege)
    file(siege, plan.id)

    siege.run(2)

    assert siege.stops == [siege.lives["i-it"].id]
    assert siege.store.attempts()[0].actor == "ada"
    assert siege.store.approvals() == ()
    assert siege.mark("i-it") is None


def test_approval_filed_twice_stops_nothing_twice(siege: Siege) -> None:
    plan = held_back(siege)
    file(siege, plan.id, "ok-1")
    file(siege, plan.id, "ok-2")

    siege.run(2)

    assert len(siege.stops) == 1
    assert siege.store.approvals() == ()
    assert len(withheld(siege)) == 1


def fall_silent(siege: Siege) -> None:
    siege.lives["i-it"].agent = False
    siege.clock.advance(timedelta(minutes=4))


REFUSALS: list[tuple[str, Callable[[Siege], None], str]] = [
    ("the newest configuration is refused", lambda s: setattr(s, "refused", "policy.x: no"), "the newest configuration is refused: policy.x: no"),
    ("the mode is observe", lambda s: setattr(s, "config", replace(s.config, mode=Mode.OBSERVE)), "mode is observe"),
    ("the kill switch was pulled", lambda s: (s.state / "STOP").write_text("incident") and None, "incident"),
    ("its budget is spent", lambda s: setattr(s, "config", quick(budgets=Budgets(stops=CountBudget(per_hour=0), breaker=None))), "per hour: 0 of 0 used"),
    ("somebody is back at work", lambda s: setattr(s.lives["i-it"], "load", 0.9), "working"),
    ("its agent fell silent", lambda s: fall_silent(s), "silent agent"),
    ("the cycle's budget is used", lambda s: setattr(s, "config", quick(budgets=Budgets(stops=CountBudget(per_cycle=0), breaker=None))), "per cycle"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "because"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_approval_opens_no_gate(siege: Siege, change: Callable[[Siege], None], because: str) -> None:
    plan = held_back(siege, unread=False)
    file(siege, plan.id)
    change(siege)

    siege.run(1)

    assert siege.stops == []
    assert siege.store.approvals() == ()
    assert because in withheld(siege)[-1]


AGES = [
    ("just young enough", APPROVAL_HOLDS_FOR - timedelta(minutes=1), True), ("too old", APPROVAL_HOLDS_FOR, False),
    ("of the future", timedelta(minutes=-5), False),
]  # fmt: skip


@pytest.mark.parametrize(("ago", "acts"), [row[1:] for row in AGES], ids=[row[0] for row in AGES])
def test_approval_is_for_what_the_person_saw(siege: Siege, ago: timedelta, acts: bool) -> None:
    plan = held_back(siege)
    file(siege, plan.id, ago=ago)

    siege.run(1)

    assert bool(siege.stops) is acts
    assert siege.store.approvals() == ()
    assert bool(withheld(siege)) is not acts


def test_approvals_and_the_daemons_own_stops_share_the_budget_of_a_cycle(siege: Siege) -> None:
    siege.add("i-it")
    siege.add("i-too")
    siege.config = quick(budgets=Budgets(stops=CountBudget(per_hour=0), breaker=None))
    siege.until_due()
    siege.run(1)
    plan = siege.cycle.preview(quick(), fetch=True).plan
    siege.config = quick(budgets=Budgets(stops=CountBudget(per_cycle=1), breaker=None))
    file(siege, plan.id)

    siege.run(1)

    assert len(plan.actions) == 2
    assert len(siege.stops) == 1
    assert "per cycle: 1 of 1 used" in withheld(siege)


def test_approval_of_a_plan_that_is_gone_is_told_and_stands_before_no_other(siege: Siege) -> None:
    plan = held_back(siege)
    file(siege, "p-of-last-year", "ok-1", ago=timedelta(seconds=2))
    file(siege, plan.id, "ok-2")

    siege.run(1)

    assert "no plan p-of-last-year" in withheld(siege)[0]
    assert len(siege.stops) == 1


def test_approval_that_trips_over_a_bug_stands_before_no_other_and_is_not_tried_again(siege: Siege, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = held_back(siege)
    file(siege, f"{APPROVAL_PREFIX}a-1", "ok-1", ago=timedelta(seconds=2))
    file(siege, plan.id, "ok-2")

    def trip(*_: object) -> None:
        raise RuntimeError("not our day")

    monkeypatch.setattr(siege.store, "attempt", trip)
    siege.run(1)

    assert len(siege.stops) == 1
    assert siege.store.approvals() == ()


def test_who_does_not_lead_leaves_approvals_to_who_does(siege: Siege) -> None:
    plan = held_back(siege)
    file(siege, plan.id)
    other = siege.aloof()

    assert other.cycle_once() is None
    assert other.daemon.ready
    assert [approval.id for approval in siege.store.approvals()] == ["ok-1"]


# --- undo ---------------------------------------------------------------------------------------------------------------


def test_filed_undo_starts_the_machine_once(siege: Siege) -> None:
    attempt = stopped(siege)
    file(siege, f"{APPROVAL_PREFIX}{attempt}", "ok-1")
    file(siege, f"{APPROVAL_PREFIX}{attempt}", "ok-2")

    siege.run(2)

    assert len(siege.cloud.verbs("start")) == 1
    assert siege.state_of("i-it") is InstanceState.RUNNING
    assert siege.store.approvals() == ()


def test_filed_undo_of_an_undo_is_refused_with_its_reason(siege: Siege) -> None:
    file(siege, f"{APPROVAL_PREFIX}{stopped(siege)}")
    siege.run(1)
    start = siege.store.attempts()[0]
    file(siege, f"{APPROVAL_PREFIX}{start.id}", "ok-2")

    siege.run(1)

    assert "only stops can be undone" in withheld(siege)[-1]
    assert len(siege.stops) == 1


def test_undo_takes_nothing_away_and_so_goes_while_the_newest_configuration_is_refused(siege: Siege) -> None:
    attempt = stopped(siege)
    siege.refused = "policy.x: no"
    file(siege, f"{APPROVAL_PREFIX}{attempt}")

    siege.run(1)

    assert siege.state_of("i-it") is InstanceState.RUNNING


def test_undo_filed_in_observe_starts_nothing(siege: Siege) -> None:
    attempt = stopped(siege)
    siege.config = replace(siege.config, mode=Mode.OBSERVE)
    file(siege, f"{APPROVAL_PREFIX}{attempt}")

    siege.run(1)

    assert siege.cloud.verbs("start") == []
    assert "observe" in withheld(siege)[-1]


# --- the loop -----------------------------------------------------------------------------------------------------------


class Rounds:
    """Ends the loop after so many cycles; lets a minute pass between two."""

    def __init__(self, siege: Siege, rounds: int) -> None:
        self._siege, self._left = siege, rounds

    def is_set(self) -> bool:
        return self._left <= 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._left -= 1
        self._siege.minute()
        return self.is_set()


def test_loop_goes_on_after_cycles_that_break_off_and_gives_the_lease_back(siege: Siege) -> None:
    ended: list[object] = []
    siege.daemon.seen = ended.append
    listing, tries = siege.cloud.list, iter(range(100))

    def sometimes() -> object:
        match next(tries):
            case 0:
                raise StoreError("the disk is full")
            case 1:
                raise RuntimeError("a bug")
            case _:
                return listing()

    siege.cloud.list = sometimes  # type: ignore[method-assign, assignment]
    siege.daemon.run(Rounds(siege, 4))

    assert len(ended) == 2
    assert siege.store.held_lease() is None


def test_ceiling_of_the_process_binds_what_the_configuration_becomes_later(siege: Siege) -> None:
    siege.ceiling = Mode.OBSERVE
    siege.restart()
    siege.config = quick(mode=Mode.OBSERVE)
    before: Configuration = siege.daemon.bounded()
    siege.config = quick(mode=Mode.ENFORCE)

    assert (before.mode, siege.daemon.bounded().mode) == (Mode.OBSERVE, Mode.OBSERVE)
