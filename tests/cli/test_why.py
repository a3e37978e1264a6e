"""`reaper why`, and which machine a person means."""

import re

import pytest

from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.kinds.instance import InstanceState, Protections
from reaper.model.mark import Stage
from reaper.model.signal import Holder, Job, Person
from reaper.service.inventory import MISSED
from reaper.service.snooze import snooze
from tests import builders as make
from tests.builders import HERE, HOUR, MINUTE, NOW
from tests.cli.conftest import ENFORCING, Room


@pytest.mark.parametrize("id", ["trainer", "i-01", str(make.resource())])
def test_a_due_machine_is_explained_without_asking_any_cloud(room: Room, id: str) -> None:
    room.due()
    room.cloud.calls.clear()
    answer = room.reaper("why", id)

    assert answer.code == 0
    assert "verdict: act: stop it, when its countdown is served: every GPU at or below 5%" in answer.out
    assert "countdown: due for stop" in answer.out
    assert re.search(r"gpu-idle +nominate stop .* 15m +10m +20s +any GPU above 5%", answer.out)
    assert re.search(r"stop-protected +note +not asked here", answer.out)
    assert re.search(r"report \d+: window of 60 s ended 20s ago, verified, GPU peaks 0%", answer.out)
    assert room.cloud.calls == []


def test_json_holds_findings_mark_reports_and_record(room: Room) -> None:
    room.due()
    told = room.reaper("why", "trainer", "--json").json

    assert (told["verdict"], told["action"], told["cause"], told["state"]) == ("act", "stop", "gpu-idle", "idle")
    nomination = next(f for f in told["findings"] if f["rule"] == "gpu-idle")
    assert (nomination["value"], nomination["limit"], nomination["age_s"]) == ("15m", "10m", 20.0)
    assert nomination["change"].startswith("any GPU above")
    assert told["mark"]["stage"] == "due"
    assert [r["age_s"] for r in told["reports"]] == [20.0, 80.0, 140.0]
    assert told["reports"][0]["gpus"][0]["peak_ratio"] == 0.0
    assert told["stopped_by_us"] is None


def test_a_busy_machine_says_what_moved(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(gpus=(make.gpu(peak=0.97),))
    told = room.reaper("why", "trainer", "--json").json

    assert (told["verdict"], told["state"]) == ("keep", "working")
    assert "97%" in room.reaper("why", "trainer").out


def test_a_countdown_says_how_far_it_is(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report()
    room.mark(Stage.WARNED, waited=2 * MINUTE)

    assert "2m of its wait served; due at the earliest 2026-03-04 12:03 UTC, in 3m" in room.reaper("why", "trainer").out


def test_a_silent_agent_holds_and_its_last_reports_are_still_shown(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(until=NOW - HOUR)
    answer = room.reaper("why", "trainer")

    assert "state: silent" in answer.out
    assert "silent agent: newest report ended 1h ago" in answer.out
    assert "last one received 1h ago" in answer.out
    assert answer.out.count("verified, GPU peaks") == 3


def test_a_snooze_is_shown_with_who_and_why(room: Room) -> None:
    made = room.due()
    with room.store() as store:
        snooze(store, made.id, NOW + HOUR, "grace", "[red]paper[/red]", 5 * HOUR, NOW)
    answer = room.reaper("why", "trainer")

    assert "snoozed until 2026-03-04 13:00 UTC by grace: [red]paper[/red]" in answer.out
    assert "verdict: wait" in answer.out


def test_what_we_stopped_says_so_and_how_to_undo_it(room: Room) -> None:
    attempt = room.stopped_by_us()
    answer = room.reaper("why", "trainer")

    assert f"stopped by us at 2026-03-04 11:59 UTC because idle for 4h; undo with: reaper undo {attempt}" in answer.out
    assert room.reaper("why", "trainer", "--json").json["stopped_by_us"]["undo"] == f"reaper undo {attempt}"


def test_a_machine_that_is_gone_still_has_its_record(room: Room) -> None:
    room.machine()
    room.machine("i-02", "other")
    room.list_all()
    del room.cloud.machines[make.resource()]
    room.list_all()
    room.clock.advance(2 * MISSED)
    room.list_all()
    answer = room.reaper("why", "i-01")

    assert answer.code == 0
    assert "it is not in the newest listing; last seen" in answer.out
    assert room.reaper("why", "i-01", "--json").json["verdict"] is None


def test_a_failed_place_is_said(room: Room) -> None:
    room.due()
    room.cloud.failed_places[HERE] = "throttled"
    room.list_all()
    answer = room.reaper("why", "trainer")

    assert "its place could not be listed since: throttled" in answer.out
    assert "verdict: wait" in answer.out


def test_a_name_that_two_machines_have_is_refused_with_both_ids(room: Room) -> None:
    room.machine("i-01", "twin")
    room.machine("i-02", "twin")
    room.list_all()
    answer = room.reaper("why", "twin")

    assert answer.code == 2
    assert f"'twin' fits 2 machines; give a whole id: {make.resource('i-01')}, {make.resource('i-02')}" in answer.err


def test_a_machine_named_like_anothers_id_does_not_stand_in_its_way(room: Room) -> None:
    room.machine("i-01", "victim")
    room.machine("i-02", "i-01")
    room.list_all()

    assert room.reaper("why", "i-01", "--json").json["name"] == "victim"


@pytest.mark.parametrize(
    ("id", "said"),
    [
        pytest.param("trainr", "did you mean trainer?", id="a slip"),
        pytest.param("aws:1:2", "is not a resource id; write it as aws:123456789012", id="half an id"),
        pytest.param("aws:1:eu-west-1:instance:i-77", "was never listed and never reported", id="a whole id of nothing"),
        pytest.param("zzz", "`reaper inventory` shows them", id="nothing alike"),
    ],
)
def test_what_fits_nothing_is_a_usage_error_with_a_hint(room: Room, id: str, said: str) -> None:
    room.machine()
    room.list_all()
    answer = room.reaper("why", id)

    assert answer.code == 2
    assert said in answer.err


def test_two_policies_are_both_named(room: Room) -> None:
    room.configure((room.folder / "reaper.toml").read_text() + '\n[policy.second]\nwhen = { tags = { owner = ["ada"] } }\n')
    room.due()
    told = room.reaper("why", "trainer", "--json").json

    assert told["policies"] == ["exploration", "second"]
    assert told["verdict"] != "act"


def test_a_stopped_machine_of_somebody_else_is_not_called_ours(room: Room) -> None:
    room.machine(state=InstanceState.STOPPED)
    room.list_all()

    assert "stopped by us" not in room.reaper("why", "trainer").out


def test_who_holds_a_gpu_which_jobs_ended_and_who_is_there_is_shown(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(
        gpus=(make.gpu(processes=1, mem_used_bytes=8 << 30, holders=(Holder(4711, "python3", "mia", 8 << 30, 900.0), Holder(12))),),
        loaders=(make.loader(),),
        jobs=(Job("a", 3600.0, launcher_known=True), Job("b", 60.0, "bash", True), Job("c"), Job("d", 5.0, launcher_known=False), Job("e", 5.0)),
        people=(Person("mia", 1001, "login", 240.0), Person("1234", 1234, "gpu")),
    )
    answer, told = room.reaper("why", "trainer"), room.reaper("why", "trainer", "--json").json

    assert "held: GPU-0 by python3 (pid 4711) of mia, 8.0 GiB, for 15m with nothing running" in answer.out
    assert "held: GPU-0 by a process we cannot see (pid 12)" in answer.out
    assert "job a: last GPU process ended 1h before the report's end, and no launcher of it lives" in answer.out
    assert "its launcher bash lives, so it has not ended" in answer.out
    assert "job c: a process of it is on a GPU" in answer.out
    assert "job d: last GPU process ended 5s before the report's end; whether a launcher of it lives cannot be seen" in answer.out
    assert "on it: mia (1001) is logged in, typed 4m ago" in answer.out
    assert "on it: 1234 has a process on a GPU" in answer.out
    assert [(j["id"], j["over"]) for j in told["jobs"]] == [("a", True), ("b", False), ("c", False), ("d", False), ("e", False)]
    assert told["holders"][0] == {"gpu": "GPU-0", "pid": 4711, "name": "python3", "user": "mia", "mem_bytes": 8 << 30, "since_s": 900.0}
    assert [p["user"] for p in told["people"]] == ["mia", "1234"]


def test_what_the_agent_did_not_tell_of_is_null_and_not_empty(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report()
    told = room.reaper("why", "trainer", "--json").json

    assert (told["jobs"], told["people"], told["holders"]) == (None, None, [])


def test_end_of_a_job_is_explained_with_its_own_term(room: Room) -> None:
    room.configure(ENFORCING.replace('warn = { for = "5m"', 'job_ended = { for = "6m", warn = "5m" }\nwarn = { for = "5m"').replace('idle = { for = "10m"', 'idle = { for = "18m"'))
    room.machine()
    room.list_all()
    room.report(jobs=(Job("session-3.scope@500", 600.0, launcher_known=True),))
    answer = room.reaper("why", "trainer")

    assert "cause job-ended" in answer.out
    assert re.search(r"job-ended +nominate stop .* 10m +6m +20s +another job", answer.out)


WAITING = make.loader("pid-4711", wait=0.75, cpu_cores=0.4, exact=0.62, exact_s=59.0, blocked=0.5, called_bytes=3 << 20, host_received_bytes_per_s=2.0 * 2**20)


def starved(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(gpus=(make.gpu(processes=1, mem_used_bytes=8 << 30),), loaders=(WAITING,))


def test_a_starved_machine_says_by_what_evidence_and_what_its_waiting_costs(room: Room) -> None:
    starved(room)
    answer, told = room.reaper("why", "trainer"), room.reaper("why", "trainer", "--json").json

    assert (told["state"], told["verdict"]) == ("starved", "keep")
    assert told["starved"] == {"tree": "pid-4711", "wait_ratio": 0.62, "measured": True, "usd_per_day": pytest.approx(22.32)}
    assert (told["data_path"][0]["wait_ratio"], told["data_path"][0]["exact_wait_ratio"], told["data_path"][0]["delayed_ratio"]) == (0.75, 0.62, None)
    assert "starved: waits for data 62% of the window, measured by the job, costs $22.32 a day" in answer.out
    assert "data path of pid-4711: waited 62% over 59s by its own count, 75% by the agent's look, asleep for a disk or a mount 50%" in answer.out


def test_plan_and_inventory_tell_what_starves_and_at_what_price(room: Room) -> None:
    starved(room)
    plan, told = room.reaper("plan"), room.reaper("plan", "--json").json
    listed = room.reaper("inventory", "--json").json["machines"][0]

    assert told["actions"] == []
    assert (told["summary"]["starved"], told["summary"]["starved_usd_per_day"]) == (1, pytest.approx(22.32))
    assert "1 starved, waiting for data, which costs $22.32 a day; nothing is ever stopped for that" in plan.out
    assert listed["starved"]["usd_per_day"] == pytest.approx(22.32)
    assert "starved: waits 62%" in room.reaper("inventory").out


def test_a_machine_whose_gpus_compute_between_their_waits_wastes_as_well(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(gpus=(make.gpu(peak=0.9, processes=1),), loaders=(WAITING,))
    told = room.reaper("why", "trainer", "--json").json

    assert (told["state"], told["starved"]["wait_ratio"]) == ("working", 0.62)
    assert room.reaper("plan", "--json").json["summary"]["starved"] == 1


def test_a_machine_that_fell_silent_is_not_called_starved(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(until=NOW - HOUR, loaders=(WAITING,))

    assert room.reaper("why", "trainer", "--json").json["starved"] is None
    assert room.reaper("inventory", "--json").json["machines"][0]["starved"] is None
    assert room.reaper("plan", "--json").json["summary"]["starved"] == 0


def test_what_only_the_cloud_could_tell_when_its_countdown_began_is_shown_and_plan_tells_it_too(room: Room) -> None:
    """A stop of what is paid for either way saves nothing: whoever decides about it has to read that."""
    committed = "Savings Plan sp-1 commits the account to 12.5 USD an hour"
    room.cloud.protections = lambda resource: Protections(False, committed=committed)  # type: ignore[method-assign]
    room.machine(public_address="192.0.2.7", address_kept=False)
    room.list_all()
    room.report()
    told = room.reaper("plan", "--json").json["machines"][0]["noted"]
    noted = "; ".join(told)
    with room.store() as store:
        entry = AuditEntry(NOW, AuditKind.NOMINATED, "reaper", "idle", make.resource(), "stop", evidence={"noted": noted})
        store.append_audit(entry)
    room.mark(Stage.WARNED, waited=2 * MINUTE)

    assert any(committed in words for words in told)
    assert any("192.0.2.7 changes with the next start" in words for words in told)
    assert committed in room.reaper("why", "trainer").out
    assert room.reaper("why", "trainer", "--json").json["noted"] == noted
