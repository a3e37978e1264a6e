"""What exists: a failed place keeps its listing with its age, and nothing is gone because nobody answered."""

from dataclasses import replace

import pytest

from reaper.errors import Denied, Throttled
from reaper.model.kinds.instance import InstanceState
from reaper.model.resource import Place
from reaper.ports import Listed
from reaper.service.inventory import kept, merged, refresh, seen
from reaper.store import open_store
from tests.builders import DAY, HERE, HOUR, MINUTE, NOW, instance, resource

THERE = Place("aws", "111122223333", "us-east-1")
ELSEWHERE = Place("gcp", "ml-research", "us-central1-a")
THROTTLED = "RequestLimitExceeded"


class Answers:
    """A cloud that answers with what it was given, in order; an exception is raised."""

    def __init__(self, *answers, name="aws"):
        self.name, self.answers = name, list(answers)

    def list(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def store():
    opened = open_store(":memory:")
    yield opened
    opened.close()


def listed(*natives, place=HERE):
    return Listed(place, tuple(instance(native) for native in natives))


def failed(place=HERE):
    return Listed(place, failed=THROTTLED)


def over(store, *answers, every=MINUTE):
    """The inventory after each answer of one cloud, a minute apart."""
    cloud, known, found = Answers(*answers), None, []
    for n in range(len(answers)):
        known = refresh((cloud,), store, NOW + n * every, known)
        found.append(known)
    return found


def natives(inventory):
    return sorted(id.native for id in inventory.instances)


def shown(inventory):
    """Those that the newest listing told of."""
    return sorted(id.native for id, (one, _) in inventory.instances.items() if one.state is not InstanceState.UNKNOWN)


def test_a_failed_place_keeps_its_listing_with_its_age(store):
    *_, last = over(store, (listed("i-01", "i-02"),), (failed(),), (failed(),))

    assert natives(last) == ["i-01", "i-02"]
    assert (last.listings[HERE].failed, last.listings[HERE].listed_at) == (THROTTLED, NOW)
    assert [listing.place for listing in last.failed] == [HERE]


def test_a_failed_place_changes_nothing_for_another(store):
    *_, last = over(store, (listed("i-01"), listed("i-02", place=THERE)), (failed(), listed("i-03", place=THERE)))

    assert shown(last) == ["i-01", "i-03"]
    assert (last.listings[THERE].failed, last.listings[THERE].listed_at) == (None, NOW + MINUTE)


def test_a_place_that_failed_from_the_start_is_named_and_holds_nothing(store):
    (only,) = over(store, (failed(),))

    assert (natives(only), only.listings[HERE].failed) == ([], THROTTLED)


def test_an_empty_answer_where_there_were_machines_is_a_failure_until_it_was_seen_twice(store):
    _, once, twice = over(store, (listed("i-01"),), (listed(),), (listed(),))

    assert (natives(once), once.listings[HERE].listed_at) == (["i-01"], NOW)
    assert "nothing" in once.listings[HERE].failed
    assert (shown(twice), twice.listings[HERE].failed) == ([], None)


def test_machines_that_were_back_in_between_make_the_next_empty_answer_the_first(store):
    *_, last = over(store, (listed("i-01"),), (listed(),), (listed("i-01"),), (listed(),))

    assert natives(last) == ["i-01"]
    assert last.listings[HERE].failed is not None


def test_a_failure_between_two_empty_answers_is_no_sight_of_machines(store):
    *_, last = over(store, (listed("i-01"),), (listed(),), (failed(),), (listed(),))

    assert (shown(last), last.listings[HERE].failed) == ([], None)


def test_an_empty_answer_where_there_was_nothing_is_an_answer(store):
    *_, last = over(store, (listed(),), (listed(),))

    assert last.listings[HERE].failed is None


def test_a_place_that_is_no_longer_answered_for_is_not_gone(store):
    *_, last = over(store, (listed("i-01"), listed("i-02", place=THERE)), (listed("i-01"),))

    assert natives(last) == ["i-01", "i-02"]
    assert "no longer listed" in last.listings[THERE].failed


def test_a_place_that_never_had_anything_and_is_no_longer_asked_is_forgotten(store):
    *_, last = over(store, (listed("i-01"), listed(place=THERE)), (listed("i-01"),))

    assert set(last.listings) == set(store.listings()) == {HERE}


def test_a_place_that_was_left_out_for_a_day_is_forgotten(store):
    known = refresh((Answers((listed("i-01"), listed("i-02", place=THERE))),), store, NOW)
    early = refresh((Answers((listed("i-01"),)),), store, NOW + 23 * HOUR, known)
    late = refresh((Answers((listed("i-01"),)),), store, NOW + 25 * HOUR, early)

    assert natives(early) == ["i-01", "i-02"]
    assert natives(late) == ["i-01"]
    assert set(store.listings()) == {HERE}


def test_a_cloud_that_cannot_be_asked_fails_its_places_and_no_other_cloud(store):
    known = refresh((Answers((listed("i-01"),)), Answers((listed("i-09", place=ELSEWHERE),), name="gcp")), store, NOW)
    last = refresh((Answers(Denied("no credentials")), Answers((listed("i-08", place=ELSEWHERE),), name="gcp")), store, NOW + MINUTE, known)

    assert {place: listing.failed for place, listing in last.listings.items()} == {HERE: "no credentials", ELSEWHERE: None}
    assert last.problems == ("aws: no credentials",)
    assert last.listings[HERE].listed_at == NOW


def test_a_throttled_cloud_is_not_an_empty_one(store):
    *_, last = over(store, (listed("i-01"),), Throttled(THROTTLED), Throttled(THROTTLED), Throttled(THROTTLED))

    assert natives(last) == ["i-01"]
    assert THROTTLED in last.listings[HERE].failed


def test_what_was_listed_survives_a_restart_with_its_age_and_its_doubt(store):
    over(store, (listed("i-01"),), (listed(),))
    again = kept(store)

    assert (natives(again), again.listings[HERE].listed_at, again.listings[HERE].empty_once) == (["i-01"], NOW, True)
    assert again.ledgers[resource()].first_seen_at == NOW
    assert shown(refresh((Answers((listed(),)),), store, NOW + HOUR)) == []


def test_a_failed_listing_writes_nothing_into_the_ledger(store):
    *_, last = over(store, (listed("i-01"),), (failed(),))

    assert last.ledgers[resource()].last_seen_at == NOW


RUNNING, STOPPED = InstanceState.RUNNING, InstanceState.STOPPED


@pytest.mark.parametrize(("sights", "since"), [
    pytest.param([RUNNING], 0, id="first sight"),
    pytest.param([RUNNING, RUNNING, RUNNING], 0, id="still the same run"),
    pytest.param([STOPPED], None, id="stopped at first sight"),
    pytest.param([RUNNING, STOPPED], None, id="stopped since"),
    pytest.param([RUNNING, STOPPED, RUNNING, RUNNING], 2, id="started again"),
    pytest.param([RUNNING, InstanceState.STOPPING, RUNNING], 2, id="on its way down and up again"),
    pytest.param([STOPPED, InstanceState.PENDING, RUNNING], 1, id="a run begins when it is pending"),
    pytest.param([RUNNING, InstanceState.UNKNOWN, RUNNING], 2, id="a state that is not known ends what is known"),
])  # fmt: skip
def test_our_own_record_tells_since_when_it_runs_where_the_cloud_does_not(sights, since):
    ledger = None
    for n, state in enumerate(sights):
        ledger = seen(ledger, instance(state=state, launched_at=None), NOW + n * HOUR)

    assert ledger.running_since == (None if since is None else NOW + since * HOUR)
    assert ledger.first_seen_at == NOW


def test_a_new_launch_begins_a_new_run_even_if_we_never_saw_it_stopped():
    first = seen(None, instance(), NOW)
    again = seen(first, instance(launched_at=NOW + HOUR), NOW + 2 * HOUR)

    assert (first.running_since, again.running_since, again.first_seen_at) == (NOW, NOW + 2 * HOUR, NOW)


def test_the_age_of_a_machine_does_not_begin_anew_with_our_restart():
    ledger = seen(None, instance(launched_at=None), NOW - DAY)

    assert seen(ledger, instance(launched_at=None), NOW).running_since == NOW - DAY


def test_one_answer_is_merged_without_a_store():
    old = merged(None, listed("i-01"), NOW, {})

    assert merged(old, failed(), NOW + MINUTE, {}) == replace(old, failed=THROTTLED)
    assert merged(merged(old, failed(), NOW, {}), listed("i-01"), NOW + MINUTE, {}).failed is None


def test_a_region_left_out_on_purpose_is_no_place_and_one_that_had_machines_is_held(store):
    out = Listed(HERE, skipped="policy denies this region")
    nothing = refresh((Answers((out,)),), store, NOW)
    before, held = over(store, (listed("i-1"),), (out,))

    assert nothing.listings == {}
    assert before.failed == ()
    assert held.listings[HERE].failed == "policy denies this region"
    assert natives(held) == ["i-1"]


def test_a_running_machine_that_a_good_listing_leaves_out_stays_for_a_while_and_nobody_knows_how(store):
    first, *later = over(store, (listed("i-01", "i-02"),), *[(listed("i-01"),)] * 4, every=5 * MINUTE)

    assert natives(first) == ["i-01", "i-02"]
    assert [natives(one) for one in later] == [["i-01", "i-02"]] * 3 + [["i-01"]]
    left_out = later[0].instances[resource("i-02")][0]
    assert (left_out.state, left_out.state.counts) == (InstanceState.UNKNOWN, True)
    assert later[1].ledgers[resource("i-02")].last_seen_at == NOW, "being left out is no sight of it"


def test_what_was_down_or_is_told_to_be_gone_does_not_linger(store):
    down = Listed(HERE, (instance("i-01"), instance("i-02", state=InstanceState.STOPPED)))
    *_, last = over(store, (down,), (listed("i-01"),))

    assert natives(last) == ["i-01"]


def test_a_machine_that_was_left_out_once_is_known_again_as_soon_as_it_is_told_of(store):
    *_, last = over(store, (listed("i-01", "i-02"),), (listed("i-01"),), (listed("i-01", "i-02"),))

    assert shown(last) == ["i-01", "i-02"]
    assert last.ledgers[resource("i-02")].last_seen_at == NOW + 2 * MINUTE


def test_a_process_that_begins_while_a_machine_is_left_out_takes_it_for_there_as_well(store):
    over(store, (listed("i-01", "i-02"),), (listed("i-01"),))
    anew = refresh((Answers((listed("i-01"),)),), store, NOW + 2 * MINUTE)

    assert natives(anew) == ["i-01", "i-02"]


def test_the_first_good_listing_after_a_long_failure_does_not_end_what_it_leaves_out(store):
    """While its place failed nobody could see it: that it was last seen long ago says nothing."""
    answers = [(listed("i-01", "i-02"),), *[(failed(),)] * 4, (listed("i-01"),), (listed("i-01"),), (listed("i-01"),), (listed("i-01"),)]
    after = over(store, *answers, every=7 * MINUTE)[5:]

    assert [natives(one) for one in after] == [["i-01", "i-02"]] * 3 + [["i-01"]]
