from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reaper.metrics import CONTENT_TYPE, NEAR_AT_MOST, FleetSummary, Metrics, NearReap, Starved, Unused

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def samples(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def series(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """By label values, in the order of the labels' names."""
    return {tuple(labels[key] for key in sorted(labels)): value for sample, labels, value in samples(metrics) if sample == name}


def cycle(metrics: Metrics, **fleet: object) -> None:
    metrics.cycle_finished(seconds=2.0, at=NOW, fleet=FleetSummary(**fleet))  # type: ignore[arg-type]


def near(n: int, seconds: float = 60) -> NearReap:
    return NearReap(f"aws:1:eu-west-1:instance:i-{n:04}", "exploration", "enforce", seconds)


def test_the_fleet_is_told_by_activity_and_decision(metrics: Metrics) -> None:
    cycle(metrics, machines={("idle", "act"): 3, ("working", "keep"): 7})

    assert series(metrics, "reaper_machines") == {("idle", "act"): 3, ("working", "keep"): 7}


def test_a_machine_that_went_away_leaves_no_series_behind(metrics: Metrics) -> None:
    cycle(metrics, machines={("idle", "act"): 1}, near=[near(1)], budget_left={("stop", "hour"): 4})
    cycle(metrics, machines={("working", "keep"): 1}, budget_left={("stop", "day"): 20})

    assert series(metrics, "reaper_machines") == {("working", "keep"): 1}
    assert series(metrics, "reaper_near_reap_seconds") == {}
    assert series(metrics, "reaper_near_reaps") == {(): 0}
    assert series(metrics, "reaper_budget_left") == {("stop", "day"): 20}


@pytest.mark.parametrize("lost", [Metrics.cycle_failed, Metrics.fleet_unknown])
def test_without_a_whole_cycle_nothing_is_said_of_the_fleet(metrics: Metrics, lost: object) -> None:
    cycle(metrics, machines={("idle", "act"): 1}, near=[near(1)], report_ages=[30], breaker_open=True)
    lost(metrics)  # type: ignore[operator]

    gone = ("reaper_machines", "reaper_near_reaps", "reaper_near_reap_seconds", "reaper_report_age_max_seconds", "reaper_breaker_open")
    assert {name: series(metrics, name) for name in gone} == dict.fromkeys(gone, {})
    assert series(metrics, "reaper_last_cycle_timestamp_seconds") == {(): NOW.timestamp()}


def test_only_the_nearest_get_a_series_and_all_are_counted(metrics: Metrics) -> None:
    cycle(metrics, near=[near(n, seconds=1000 - n) for n in range(NEAR_AT_MOST + 50)])

    told = series(metrics, "reaper_near_reap_seconds")
    assert series(metrics, "reaper_near_reaps") == {(): NEAR_AT_MOST + 50}
    assert len(told) == NEAR_AT_MOST
    assert max(told.values()) == 1000 - 50
    assert told[("enforce", "exploration", "aws:1:eu-west-1:instance:i-0249")] == 751


def test_what_is_not_known_is_absent_and_never_zero(metrics: Metrics) -> None:
    cycle(metrics)

    absent = [
        "reaper_report_age_max_seconds",
        "reaper_report_age_median_seconds",
        "reaper_breaker_open",
        "reaper_breaker_blocked_machines",
        "reaper_kill_switch",
        "reaper_leader",
        "reaper_configuration_refused",
        "reaper_budget_left",
    ]
    assert {name: series(metrics, name) for name in absent} == {name: {} for name in absent}
    assert series(Metrics(), "reaper_last_cycle_timestamp_seconds") == {}


def test_states_and_ages(metrics: Metrics) -> None:
    metrics.kill_switch(True)
    metrics.leading(False)
    metrics.configuration_refused(True)
    cycle(metrics, report_ages=[10, 20, 90], breaker_open=True, breaker_blocked=5)

    assert series(metrics, "reaper_kill_switch") == {(): 1}
    assert series(metrics, "reaper_leader") == {(): 0}
    assert series(metrics, "reaper_configuration_refused") == {(): 1}
    assert series(metrics, "reaper_report_age_max_seconds") == {(): 90}
    assert series(metrics, "reaper_report_age_median_seconds") == {(): 20}
    assert series(metrics, "reaper_breaker_open") == {(): 1}
    assert series(metrics, "reaper_breaker_blocked_machines") == {(): 5}


def test_what_happened_is_counted(metrics: Metrics) -> None:
    metrics.action_ended("stop", "done")
    metrics.action_ended("stop", "done")
    metrics.action_ended("start", "failed")
    metrics.report_accepted()
    metrics.report_duplicate()
    metrics.report_refused("bad-token")
    metrics.work_lost()
    metrics.message_sent("log")
    metrics.message_failed("team")
    cycle(metrics)
    metrics.cycle_failed()

    assert series(metrics, "reaper_actions_total") == {("stop", "done"): 2, ("start", "failed"): 1}
    assert series(metrics, "reaper_reports_total") == {("", "accepted"): 1, ("", "duplicate"): 1, ("bad-token", "refused"): 1}
    assert series(metrics, "reaper_messages_total") == {("log", "accepted"): 1, ("team", "failed"): 1}
    assert series(metrics, "reaper_cycle_seconds_count") == {(): 1}
    assert series(metrics, "reaper_cycle_seconds_sum") == {(): 2}
    assert series(metrics, "reaper_cycles_failed_total") == {(): 1}
    assert series(metrics, "reaper_work_lost_total") == {(): 1}


def test_texts_and_floods_of_reasons_are_one_series(metrics: Metrics) -> None:
    metrics.report_refused("i-0abc is not known to me")
    for n in range(100):
        metrics.report_refused(f"reason-{n}")

    told = series(metrics, "reaper_reports_total")
    assert len(told) == 33
    assert told[("other", "refused")] == 1 + 68


def test_every_metric_is_ours_helped_and_in_base_units(metrics: Metrics) -> None:
    metrics.leading(True)
    metrics.kill_switch(False)
    cycle(metrics, machines={("idle", "act"): 1}, report_ages=[1], near=[near(1)], breaker_open=False, breaker_blocked=0)

    for family in metrics.registry.collect():
        assert family.name.startswith(("reaper_", "process_")), family.name
        assert family.documentation, family.name
        assert not family.name.endswith(("_ms", "_minutes", "_percent")), family.name
    assert CONTENT_TYPE.startswith("text/plain")


def test_two_of_them_share_nothing(metrics: Metrics) -> None:
    metrics.report_accepted()

    assert series(Metrics(), "reaper_reports_total") == {}


def test_starved_machines_are_told_with_their_price_a_day_by_policy_and_never_by_id(metrics: Metrics) -> None:
    cycle(metrics, starved=[Starved("training", 14.5), Starved("training", None), Starved("training", 1.0), Starved("", None)])

    assert series(metrics, "reaper_starved_machines") == {("training",): 3, ("",): 1}
    assert series(metrics, "reaper_starved_usd_per_day") == {("training",): 15.5}  # one without a price costs something, and not 0
    assert series(metrics, "reaper_starved_unpriced_machines") == {("training",): 1, ("",): 1}


def test_nothing_starved_leaves_no_series_behind(metrics: Metrics) -> None:
    cycle(metrics, starved=[Starved("training", 14.5)])
    cycle(metrics)

    assert series(metrics, "reaper_starved_machines") == series(metrics, "reaper_starved_usd_per_day") == {}


def test_what_is_owed_is_counted_and_what_is_late_of_it() -> None:
    metrics = Metrics()
    cycle(metrics, owed_starts=(3, 1))

    assert series(metrics, "reaper_owed_starts") == {(): 3}
    assert series(metrics, "reaper_late_starts") == {(): 1}


def test_what_is_owed_is_left_out_where_it_is_not_known() -> None:
    metrics = Metrics()
    cycle(metrics)

    assert series(metrics, "reaper_owed_starts") == {}


def test_gpus_that_nobody_uses_are_told_with_their_price_by_policy_and_never_by_id(metrics: Metrics) -> None:
    cycle(metrics, unused=[Unused("training", 7, 672.0), Unused("training", 1, None), Unused("", 2, 10.0)])

    assert series(metrics, "reaper_idle_gpus") == {("training",): 8, ("",): 2}
    assert series(metrics, "reaper_idle_gpu_machines") == {("training",): 2, ("",): 1}
    assert series(metrics, "reaper_idle_gpu_usd_per_day") == {("training",): 672.0, ("",): 10.0}
    assert series(metrics, "reaper_idle_gpu_unpriced_machines") == {("training",): 1, ("",): 0}
    cycle(metrics)
    assert series(metrics, "reaper_idle_gpus") == series(metrics, "reaper_idle_gpu_usd_per_day") == {}
