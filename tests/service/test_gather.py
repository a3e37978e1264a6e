"""From what is stored to the facts of one decision: policies, scope, claims, gangs, snoozes, and the time after failed tries."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.decide.engine import decide
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Verdict
from reaper.model.kinds.instance import InstanceState, Protections
from reaper.model.plan import Outcome
from reaper.model.policy import Claim, Scope, Selector
from reaper.model.resource import Place
from reaper.model.signal import Activity, State, Voice
from reaper.ports import KeptListing, Ledger, SeenProtection
from reaper.service.gather import Gathering, Known, read_known
from reaper.service.inventory import Inventory
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.builders import (
    DAY,
    HERE,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    attempt,
    configuration,
    gpu,
    instance,
    observation,
    policy,
    resource,
    snooze,
)  # fmt: skip

OPEN = Protections(stop_protected=False)
THERE = Place("aws", "111122223333", "us-east-1")
JOB = {"job-group": "llama"}
SAME = ("tag:job-group", "placement-group")


def history(of, minutes=240, **newest):
    """Quiet windows of one machine up to now, the newest with ``newest`` of its own."""
    for n in range(minutes, -1, -1):
        yield observation(20 * SECOND + n * MINUTE, resource=of, **(newest if n == 0 else {}))


def watch(*machines, busy=(), silent=()):
    """Agents on all of them, idle for four hours, but for the busy and the silent ones."""
    its = Watch()
    for machine in machines:
        voice = Voice(machine.id, "boot-1", NOW - DAY, NOW - DAY, NOW)
        for seen in history(machine.id, **({"gpus": (gpu(peak=0.9),)} if machine.id.native in busy else {})):
            if machine.id.native not in silent or seen.ended_at < NOW - HOUR:
                its.add(seen, voice)
    return its


def gathering(*machines, known=None, its=None, listings=None, ledgers=None, problems=(), now=NOW, **agents):
    found = listings or {HERE: KeptListing(HERE, tuple(machines), NOW)}
    return Gathering(Inventory(found, ledgers or {}, problems), known or Known(), watch(*machines, **agents), its or configuration(), now)


def facts(*machines, **changes):
    """Of the first of them."""
    return gathering(*machines, **changes).facts(machines[0].id, NOW, OPEN)


def verdict(*machines, **changes):
    return decide(facts(*machines, **changes), NOW).verdict


def test_a_machine_that_is_idle_by_all_that_is_stored_would_be_stopped():
    assert verdict(instance()) is Verdict.ACT


def test_a_machine_that_is_not_listed_has_no_facts():
    with pytest.raises(KeyError):
        gathering(instance()).facts(resource("i-77"), NOW)


@pytest.mark.parametrize(("machine", "its", "name"), [
    pytest.param(instance(tags={"phase": "training"}), (policy("training", when=Selector({"phase": ("training",)})), policy("serving", when=Selector(types=("g5.xlarge",)))),
                 "two-policies", id="two policies match"),
    pytest.param(instance(), (policy("training", when=Selector({"phase": ("training",)})),), None, id="no policy matches"),
    pytest.param(instance(tags={"phase": ""}), (policy("training", when=Selector({"phase": ("training",)})),), None, id="an empty tag"),
    pytest.param(instance(tags={"phase": "trаining"}), (policy("training", when=Selector({"phase": ("training",)})),), None, id="a look-alike of a value"),
])  # fmt: skip
def test_exactly_one_policy_has_to_match(machine, its, name):
    decided = decide(facts(machine, its=configuration(*its)), NOW)

    assert decided.verdict is not Verdict.ACT
    assert name is None or name in [finding.rule for finding in decided.objections]


CLAIM = Scope(verbs=("stop",), given=True, claim=Claim("reaper", "ml-platform"))
TEAM = Scope(verbs=("stop",), given=True, what=Selector({"team": ("ml",)}))


@pytest.mark.parametrize(("tags", "scope", "expected"), [
    pytest.param({}, None, Verdict.ACT, id="no claim asked for and none there"),
    pytest.param({"reaper": "ml-platform"}, None, Verdict.ACT, id="our own name, unasked"),
    pytest.param({"reaper": "team-b"}, None, Verdict.KEEP, id="another's name, unasked"),
    pytest.param({"reaper": ""}, None, Verdict.KEEP, id="an empty claim, unasked"),
    pytest.param({"Reaper": "team-b"}, None, Verdict.KEEP, id="another's name under a key written large"),
    pytest.param({"reaper": "ml-platform"}, CLAIM, Verdict.ACT, id="our claim"),
    pytest.param({}, CLAIM, Verdict.KEEP, id="our claim is missing"),
    pytest.param({"Reaper": "ml-platform"}, CLAIM, Verdict.KEEP, id="our claim under another key"),
    pytest.param({"reaper": "ML-Platform"}, CLAIM, Verdict.KEEP, id="our claim written otherwise"),
    pytest.param({"reaper": "ml-platform "}, CLAIM, Verdict.KEEP, id="our claim with a blank"),
    pytest.param({"reaper": "team-b"}, CLAIM, Verdict.KEEP, id="another's claim"),
    pytest.param({"reaper": "ml-platform", "REAPER": "team-b"}, CLAIM, Verdict.KEEP, id="both claim it"),
    pytest.param({"team": "ml"}, TEAM, Verdict.ACT, id="inside the scope"),
    pytest.param({"team": "web"}, TEAM, Verdict.KEEP, id="outside the scope"),
    pytest.param({"Team": "ml"}, TEAM, Verdict.KEEP, id="a key written otherwise is outside"),
    pytest.param({}, TEAM, Verdict.KEEP, id="without the tag"),
])  # fmt: skip
def test_scope_and_claims(tags, scope, expected):
    its = configuration() if scope is None else configuration(scope=scope)

    assert verdict(instance(tags=tags), its=its) is expected


# --- gangs ------------------------------------------------------------------------------------------------------------


def job(*others, **changes):
    """The verdict on i-01 beside other machines of its job."""
    return verdict(instance(tags=JOB), *others, its=configuration(gang_same=SAME), **changes)


def other(native="i-02", **changes):
    return instance(native, **({"tags": JOB} | changes))


def test_a_job_of_which_all_are_idle_would_be_stopped():
    assert job(other(), other("i-03")) is Verdict.ACT


@pytest.mark.parametrize("agents", [{"busy": ["i-02"]}, {"silent": ["i-02"]}], ids=["busy", "silent"])
def test_one_member_that_is_busy_or_silent_holds_the_job(agents):
    assert job(other(), other("i-03"), **agents) is Verdict.WAIT


def test_a_member_that_never_had_an_agent_holds_the_job():
    found = gathering(instance(tags=JOB), its=configuration(gang_same=SAME), listings={HERE: KeptListing(HERE, (instance(tags=JOB), other()), NOW)})

    assert decide(found.facts(resource(), NOW, OPEN), NOW).verdict is Verdict.WAIT


@pytest.mark.parametrize("state", list(InstanceState), ids=str)
def test_members_that_are_stopping_stopped_or_gone_do_not_count(state):
    found = facts(instance(tags=JOB), other(state=state), its=configuration(gang_same=SAME), busy=["i-02"])

    assert [member.state for member in found.members] == ([State.WORKING] if state.counts else [])


@pytest.mark.parametrize("tags", [
    pytest.param({"job-group": "LLaMA"}, id="the value written large"),
    pytest.param({"Job-Group": "llama"}, id="the key written large"),
    pytest.param({"job-group": " llama "}, id="blanks around it"),
    pytest.param({"job-group": "ｌｌａｍａ"}, id="wide letters"),
])  # fmt: skip
def test_a_job_is_recognised_however_its_tag_is_written(tags):
    assert job(other(tags=tags), busy=["i-02"]) is Verdict.WAIT


@pytest.mark.parametrize("tags", [{}, {"job-group": ""}, {"job-group": "other"}], ids=["no tag", "an empty tag", "another job"])
def test_machines_of_other_jobs_are_nobodys_business(tags):
    assert job(other(tags=tags), busy=["i-02"]) is Verdict.ACT


def test_a_machine_without_the_tag_is_no_gang_of_all_others_without_it():
    assert verdict(instance(), other(tags={}), its=configuration(gang_same=SAME), busy=["i-02"]) is Verdict.ACT


def test_a_member_whose_tag_was_forgotten_is_still_in_the_placement_group():
    first = instance(tags=JOB, placement_group="pg")
    forgotten = instance("i-02", placement_group="pg")

    assert verdict(first, forgotten, its=configuration(gang_same=SAME), busy=["i-02"]) is Verdict.WAIT


def test_a_job_that_spans_two_placement_groups_is_one():
    several = instance(tags=JOB, placement_group="a"), other(placement_group="b"), instance("i-03", placement_group="b")
    found = gathering(*several, its=configuration(gang_same=SAME), busy=["i-03"])

    assert {found.gang_of(machine.id) for machine in several} == {found.gang_of(resource())}
    assert set(found.gang_members(found.gang_of(resource()))) == {machine.id for machine in several}
    assert decide(found.facts(resource(), NOW, OPEN), NOW).verdict is Verdict.WAIT


def test_jobs_of_two_accounts_are_two():
    foreign = replace(other(), id=resource("i-02", account="444455556666"))

    assert job(foreign, busy=["i-02"]) is Verdict.ACT


def listing_of(place, **changes):
    return {place: KeptListing(place, (), **({"listed_at": NOW} | changes))}


@pytest.mark.parametrize(("listings", "problems", "expected"), [
    pytest.param(listing_of(THERE), (), Verdict.ACT, id="both regions answered"),
    pytest.param(listing_of(THERE, failed="throttled"), (), Verdict.WAIT, id="the other region was throttled"),
    pytest.param(listing_of(THERE, listed_at=NOW - HOUR), (), Verdict.WAIT, id="the other region was listed an hour ago"),
    pytest.param(listing_of(THERE, listed_at=NOW + HOUR), (), Verdict.WAIT, id="the other region was listed in the future"),
    pytest.param(listing_of(Place("aws", "?", "us-east-1"), failed="denied"), (), Verdict.WAIT, id="a region of an account that is not known yet"),
    pytest.param(listing_of(Place("aws", "444455556666", "us-east-1"), failed="throttled"), (), Verdict.ACT, id="another account was throttled"),
    pytest.param({}, ("aws: no credentials",), Verdict.WAIT, id="a cloud could not be asked at all"),
])  # fmt: skip
def test_an_incomplete_listing_holds_jobs(listings, problems, expected):
    machines = instance(tags=JOB), other()
    whole = {HERE: KeptListing(HERE, machines, NOW)} | listings

    assert verdict(*machines, its=configuration(gang_same=SAME), listings=whole, problems=problems) is expected


def test_an_incomplete_listing_elsewhere_does_not_hold_a_machine_of_no_job():
    whole = {HERE: KeptListing(HERE, (instance(),), NOW)} | listing_of(THERE, failed="throttled")

    assert verdict(instance(), its=configuration(gang_same=SAME), listings=whole) is Verdict.ACT


def test_a_fresh_read_that_shows_a_new_job_joins_it():
    found = gathering(instance(), other(), its=configuration(gang_same=SAME), busy=["i-02"])
    found.replace_instance(instance(tags=JOB), NOW)

    assert [member.id for member in found.facts(resource(), NOW).members] == [resource("i-02")]


# --- what is known of one machine -------------------------------------------------------------------------------------


@pytest.mark.parametrize("listing", [
    pytest.param({"failed": "throttled"}, id="its place failed"),
    pytest.param({"listed_at": NOW - 4 * MINUTE}, id="listed four minutes ago"),
])  # fmt: skip
def test_a_stale_or_failed_listing_holds(listing):
    whole = {HERE: KeptListing(HERE, (instance(),), **({"listed_at": NOW} | listing))}

    assert verdict(instance(), listings=whole) is Verdict.WAIT


def test_a_fresh_read_of_one_machine_stands_for_its_listing():
    found = gathering(instance(), listings={HERE: KeptListing(HERE, (instance(),), NOW - HOUR, failed="throttled")})
    found.replace_instance(instance(), NOW)

    assert decide(found.facts(resource(), NOW, OPEN), NOW).verdict is Verdict.ACT


@pytest.mark.parametrize(("launched", "first_seen", "ours", "expected"), [
    pytest.param(NOW - DAY, NOW - HOUR, NOW - HOUR, NOW - DAY, id="it ran before we came"),
    pytest.param(NOW - DAY, NOW - 2 * DAY, NOW - MINUTE, NOW - MINUTE, id="we saw it start, and the cloud shows the old launch"),
    pytest.param(None, NOW - DAY, NOW - DAY, NOW - DAY, id="the cloud does not tell"),
    pytest.param(NOW - MINUTE, NOW - DAY, NOW - DAY, NOW - MINUTE, id="the launch was reset by a start that we missed"),
    pytest.param(NOW - DAY, None, None, NOW - DAY, id="we have no record"),
    pytest.param(None, None, None, None, id="nobody knows"),
])  # fmt: skip
def test_since_when_it_runs(launched, first_seen, ours, expected):
    ledgers = {resource(): Ledger(resource(), first_seen, NOW, ours)} if first_seen is not None else {}

    assert facts(instance(launched_at=launched), ledgers=ledgers).running_since == expected


def test_a_voice_in_conflict_is_not_believed_for_an_hour():
    for ago, expected in ((MINUTE, True), (59 * MINUTE, True), (HOUR, False), (-HOUR, True)):
        found = gathering(instance())
        found._watch.add(observation(0 * SECOND), Voice(resource(), "boot-1", NOW - DAY, NOW - DAY, NOW, conflict_at=NOW - ago))

        assert (found.facts(resource(), NOW).distrust is not None) is expected


def test_two_agents_that_speak_with_one_identity_hold():
    found = gathering(instance())
    found._watch.add(observation(0 * SECOND), Voice(resource(), "boot-1", NOW - DAY, NOW - DAY, NOW, conflict_at=NOW, conflict="a cloned image"))

    decided = decide(found.facts(resource(), NOW, OPEN), NOW)

    assert (decided.verdict, decided.state.activity) == (Verdict.WAIT, Activity.UNKNOWN)
    assert "a cloned image" in decided.because


def test_a_protection_seen_before_and_gone_now_holds_and_is_recorded():
    record = SeenProtection(resource(), "tag reaper-keep-until=2027", NOW - HOUR, NOW - MINUTE)
    found = gathering(instance(), known=Known(protections={resource(): {record.name: record}}))

    assert decide(found.facts(resource(), NOW, OPEN), NOW).verdict is Verdict.KEEP
    assert [kept.vanished_at for kept in found.kept_protections] == [NOW]


@pytest.mark.parametrize("text", ["²³²³²³²³²³", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59"])
def test_one_machine_with_a_nonsense_tag_is_protected_and_ends_no_cycle(text):
    found = gathering(instance(tags={"reaper-keep-until": text}), other(tags={}))

    assert decide(found.facts(resource(), NOW, OPEN), NOW).verdict is Verdict.KEEP
    assert decide(found.facts(resource("i-02"), NOW, OPEN), NOW).verdict is Verdict.ACT


@pytest.fixture
def store():
    opened = open_store(":memory:")
    yield opened
    opened.close()


def try_it(store, number, outcome, ended_at, native="i-01"):
    its = attempt(outcome, native, id=f"a-{native}-{number}", intent_at=ended_at - SECOND, outcome_at=ended_at if outcome else None, detail="UnauthorizedOperation")
    entry = AuditEntry(ended_at, AuditKind.INTENT, "reaper", "x", resource(native))
    lease = store.acquire_lease("me", ended_at, HOUR)
    store.begin_attempt(replace(its, outcome=None, outcome_at=None, after=None), lease, ended_at, entry, lambda debits: None)
    if outcome is not None:
        store.end_attempt(its, entry)


@pytest.mark.parametrize(("failures", "wait"), [(1, 5), (2, 10), (3, 20), (4, 40), (7, 320), (8, 360), (30, 360)])
def test_the_time_after_a_failed_try_doubles_with_each_in_a_row(store, failures, wait):
    for n in range(failures):
        try_it(store, n, Outcome.REFUSED if n % 2 else Outcome.FAILED, NOW - timedelta(seconds=failures - 1 - n))
    end = NOW + wait * MINUTE

    assert read_known(store, NOW).back_offs[resource()] == (end, "UnauthorizedOperation")
    assert read_known(store, end).back_offs == {}


def test_a_try_that_worked_ends_the_row(store):
    for n, outcome in enumerate((Outcome.FAILED, Outcome.FAILED, Outcome.DONE, Outcome.FAILED)):
        try_it(store, n, outcome, NOW - (3 - n) * SECOND)

    assert read_known(store, NOW).back_offs[resource()][0] == NOW + 5 * MINUTE


def test_a_failed_try_of_one_machine_keeps_no_other_waiting(store):
    try_it(store, 1, Outcome.REFUSED, NOW)
    known = read_known(store, NOW)

    assert verdict(instance(), known=known) is Verdict.WAIT
    assert verdict(other(tags={}), known=known) is Verdict.ACT


def test_an_open_attempt_holds(store):
    try_it(store, 1, None, NOW)
    known = read_known(store, NOW)

    assert known.open_attempts == {resource()}
    assert verdict(instance(), known=known) is Verdict.WAIT


def test_the_snoozes_of_a_machine_add_up_and_bind_no_other(store):
    entry = AuditEntry(NOW, AuditKind.SNOOZED, "ada", "demo", resource())
    store.add_snooze(snooze(NOW + HOUR, "ada"), entry)
    store.add_snooze(snooze(NOW + DAY, "bob"), entry)
    known = read_known(store, NOW)

    assert [s.who for s in sorted(known.snoozes[resource()], key=lambda s: s.until)] == ["ada", "bob"]
    assert verdict(instance(), known=known) is Verdict.WAIT
    assert verdict(other(tags={}), known=known) is Verdict.ACT
    assert read_known(store, NOW + DAY).snoozes == {}
