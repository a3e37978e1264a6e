"""Machines whose GPU processes are connected are of one job where no tag says so, and then exactly as by a tag."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reaper.decide.engine import decide
from reaper.decide.links import REMEMBERED, Told, pairs
from reaper.model.decision import Verdict
from reaper.model.kinds.instance import InstanceState, Protections
from reaper.model.presence import Links, Presence
from reaper.model.signal import Activity, Voice
from reaper.ports import KeptListing
from reaper.service.gangs import Gangs
from reaper.service.gather import Gathering, Known
from reaper.service.inventory import Inventory
from reaper.service.watch import Watch
from tests.builders import DAY, HERE, HOUR, MINUTE, NOW, SECOND, configuration, gpu, instance, observation, resource

OPEN = Protections(stop_protected=False)
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
NOBODY = Presence()


def links(*peers, own=(), whole=True, **changes):
    return Links(whole, own, peers, **changes)


def machine(n, **changes):
    return instance(f"i-0{n}", **changes)


def gathering(*machines, told, busy=(), silent=(), its=None):
    """Idle for four hours, but for the busy and the silent ones. ``told``: by native id, the links in every window; None: none."""
    watch = Watch()
    for one in machines:
        voice = Voice(one.id, "boot-1", NOW - DAY, NOW - DAY, NOW)
        for n in range(240, -1, -1):
            ended_at = NOW - 20 * SECOND - n * MINUTE
            if one.id.native in silent and ended_at > NOW - HOUR:
                continue
            at_work = gpu(peak=0.9) if one.id.native in busy and n == 0 else gpu()
            given = told.get(one.id.native)
            watch.add(observation(ended_at=ended_at, resource=one.id, gpus=(at_work,), links=given, presence=NOBODY if given is not None else None), voice)
    return Gathering(Inventory({HERE: KeptListing(HERE, machines, NOW)}, {}, ()), Known(), watch, its or configuration(), NOW)


def verdict(of, gathered):
    return decide(gathered.facts(of.id, NOW, OPEN), NOW).verdict


PAIR = {"i-01": links(B, own=(A,)), "i-02": links(A, own=(B,))}


def test_connected_machines_are_one_job_without_any_tag():
    gathered = gathering(machine(1), machine(2), machine(3), told=PAIR)

    assert gathered.gang_of(machine(1).id) == gathered.gang_of(machine(2).id) == f"connected={machine(1).id}"
    assert gathered.gang_of(machine(3).id) is None
    assert verdict(machine(1), gathered) is verdict(machine(2), gathered) is Verdict.ACT


def test_one_busy_member_holds_all():
    gathered = gathering(machine(1), machine(2), told=PAIR, busy=("i-02",))

    assert verdict(machine(1), gathered) is not Verdict.ACT


@pytest.mark.parametrize("silent", ["i-01", "i-02"])
def test_member_whose_report_is_missing_holds_all_and_stays_a_member(silent):
    gathered = gathering(machine(1), machine(2), told=PAIR, silent=(silent,))

    assert gathered.gang_of(machine(1).id) is not None
    assert Verdict.ACT not in [verdict(one, gathered) for one in (machine(1), machine(2))]


def test_members_go_together_or_not_at_all():
    facts = gathering(machine(1), machine(2), machine(3), told={"i-01": links(B, C, own=(A,)), "i-02": links(A, own=(B,)), "i-03": links(A, own=(C,))}).facts(machine(2).id, NOW)

    assert sorted(member.id.native for member in facts.members) == ["i-01", "i-03"]


def test_stopped_member_does_not_count():
    gathered = gathering(machine(1), machine(2, state=InstanceState.STOPPED), told=PAIR)

    assert verdict(machine(1), gathered) is Verdict.ACT


def test_machine_without_an_agent_is_found_by_the_address_that_the_cloud_lists():
    gathered = gathering(machine(1, private_addresses=(A,)), machine(2, private_addresses=(B,)), told={"i-01": links(B, own=(A,))}, silent=())
    gathered_none = Gathering(
        Inventory({HERE: KeptListing(HERE, (machine(1, private_addresses=(A,)), machine(2, private_addresses=(B,))), NOW)}, {}, ()), Known(),
        _only(machine(1), links(B, own=(A,))), configuration(), NOW,
    )  # fmt: skip

    assert gathered.gang_of(machine(2).id) is not None
    assert verdict(machine(1), gathered_none) is not Verdict.ACT


def _only(one, told):
    watch = Watch()
    for n in range(240, -1, -1):
        watch.add(observation(20 * SECOND + n * MINUTE, resource=one.id, links=told, presence=NOBODY), Voice(one.id, "boot-1", NOW - DAY, NOW - DAY, NOW))
    return watch


# --- what proves something (pure) ---


def told(native, *windows):
    one = Told()
    for seen in windows:
        one.add(replace(seen, resource=resource(native)))
    return one


def long(given, **changes):
    """Told for ten minutes, up to now."""
    return [window(given, n * MINUTE, **changes) for n in range(10, -1, -1)]


def window(given, ago=timedelta(0), **changes):
    return observation(ended_at=NOW - ago, links=given, **{"presence": NOBODY, **changes})


HELD = {"gpus": (gpu(processes=1),)}
UNLISTED = {"gpus": (gpu(processes=None),)}

PROOF = [
    ("both name each other", window(links(B, own=(A,))), window(links(A, own=(B,))), True),
    ("one names the other, which sees all and knows of nothing", window(links(B, own=(A,))), window(links(own=(B,))), False),
    ("one names the other, which may not look at all of its own", window(links(B, own=(A,))), window(links(own=(B,), whole=False)), True),
    ("one names the other, on whose GPUs nothing is", window(links(B, own=(A,))), window(None), False),
    ("one names the other, which has an agent that does not look", window(links(B, own=(A,))), window(None, presence=None, **HELD), True),
    ("one names the other, whose GPU processes are not known", window(links(B, own=(A,))), window(None, **UNLISTED), True),
    ("one names the other, whose voice is not its own", window(links(B, own=(A,))), window(links(own=(B,)), verified=False), True),
    ("one names the other, whose report is an hour old", window(links(B, own=(A,))), window(links(own=(B,)), HOUR), True),
    ("one names the other since a moment ago, which may not have looked since", [window(links(B, own=(A,)))], window(links(own=(B,))), True),
    ("the master of its job", window(links(own=(A,), master=B)), window(links(A, own=(B,))), True),
    ("it is its own master", window(links(own=(A,), master=A)), window(links(own=(B,))), False),
    ("nobody names anybody", window(links(own=(A,))), window(links(own=(B,))), False),
    ("an address that no machine has", window(links("52.95.110.1", own=(A,))), window(links(own=(B,))), False),
    ("no reports of connections", window(None), window(None), False),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "expected"), [row[1:] for row in PROOF], ids=[row[0] for row in PROOF])
def test_what_makes_two_machines_one_job(one, other, expected):
    machines = (machine(1, private_addresses=(A,)), machine(2, private_addresses=(B,)))
    others = other if isinstance(other, list) else [other]
    ours = one if isinstance(one, list) else [*long(one.links, presence=one.presence), one]
    found = pairs(machines, {machines[0].id: told("i-01", *ours), machines[1].id: told("i-02", *others)})

    assert found == (frozenset({(machines[0].id, machines[1].id)}) if expected else frozenset())


@pytest.mark.parametrize("addresses", [{}, {"private_addresses": (A,)}], ids=["as agents say", "as the cloud lists"])
def test_address_that_several_machines_share_proves_nothing(addresses):
    machines = (machine(1, **addresses), machine(3, **addresses), machine(2))
    its = {
        machines[0].id: told("i-01", window(links(B, own=(A,)))), machines[1].id: told("i-03", window(links(own=(A,)))),
        machines[2].id: told("i-02", window(links(A, own=(B,)))),
    }  # fmt: skip

    assert (machines[1].id, machines[2].id) not in pairs(machines, its)
    assert (machines[2].id, machines[1].id) not in pairs(machines, its)


def test_address_that_an_agent_claims_does_not_part_the_machine_that_has_it_from_its_job():
    machines = (machine(1, private_addresses=(A,)), machine(2, private_addresses=(B,)), machine(3))
    its = {machines[0].id: told("i-01", window(links(B, own=(A,)))), machines[1].id: told("i-02", window(links(A, own=(B,)))),
           machines[2].id: told("i-03", window(links(own=(A, B))))}  # fmt: skip

    assert pairs(machines, its) == {(machines[0].id, machines[1].id)}


def test_address_that_a_voice_not_its_own_claims_is_not_taken():
    assert told("i-03", window(links(own=(A,)), verified=False)).addresses == ()


def test_machine_without_gpus_is_no_member():
    machines = (machine(1), machine(2, private_addresses=(B,), gpus=0))

    assert pairs(machines, {machines[0].id: told("i-01", window(links(B, own=(A,))))}) == frozenset()


def test_connection_is_remembered_for_a_while_by_the_reports_of_the_machine_itself():
    before = window(links(B, own=(A,)), REMEMBERED)
    gone, long_gone = window(links(own=(A,))), window(links(own=(A,)), timedelta(0) - 1 * MINUTE)

    assert told("i-01", before, gone).named.keys() == {B}
    assert told("i-01", before, long_gone).named.keys() == set()
    assert told("i-01", before).named.keys() == {B}  # silence forgets nothing


def test_new_boot_begins_anew():
    assert told("i-01", window(links(B, own=(A,))), window(None, boot_id="boot-2")).named == {}


# --- with tags ---


def test_tags_of_both_say_it_and_one_forgotten_tag_is_made_good():
    same = ("tag:job",)
    tagged = [machine(1, tags={"job": "a"}), machine(2, tags={"job": "b"}), machine(3)]
    linked = [(machine(1).id, machine(2).id), (machine(2).id, machine(3).id)]
    gangs = Gangs(tagged, same, linked)

    assert gangs.of(machine(1).id) != gangs.of(machine(2).id)
    assert gangs.of(machine(2).id) == gangs.of(machine(3).id)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] < pair[1]), max_size=12), st.randoms())
def test_gangs_of_connections_are_what_can_be_reached(edges, random):
    ids = [resource(f"i-0{n}") for n in range(10)]
    shuffled = [(ids[a], ids[b]) for a, b in edges]
    random.shuffle(shuffled)
    gangs = Gangs([machine(n) for n in range(10)], (), shuffled)

    groups = {n: {n} for n in range(10)}
    for a, b in edges:
        whole = groups[a] | groups[b]
        for n in whole:
            groups[n] = whole
    for n in range(10):
        gang = gangs.of(ids[n])
        assert {id.native for id in (gangs.members(gang) if gang is not None else (ids[n],))} == {f"i-0{m}" for m in groups[n]}


def test_connection_told_to_another_door_counts_right_before_an_action():
    gathered = gathering(machine(1), machine(2), told={"i-01": links(own=(A,)), "i-02": links(own=(B,))})
    assert gathered.gang_of(machine(1).id) is None

    watch = gathered._watch
    for one, peer, own in ((machine(1), B, A), (machine(2), A, B)):
        watch.add(observation(ended_at=NOW, resource=one.id, links=links(peer, own=(own,)), presence=NOBODY), Voice(one.id, "boot-1", NOW - DAY, NOW - DAY, NOW))

    class Quiet:
        def voice(self, resource):
            return watch.voice(resource)

        def windows_after(self, points, limit):
            return {}

    gathered.catch_up(Quiet(), machine(1).id, NOW)

    assert gathered.gang_of(machine(1).id) is not None
    assert gathered.facts(machine(1).id, NOW).members[0].state.activity is Activity.IDLE
