"""Documents that are right: what they come to, in both notations, and their fingerprints."""

import copy
import json
from dataclasses import fields, replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import reaper.config
from reaper.model.policy import (
    AwsAccount,
    AwsCloud,
    BreakerTerms,
    Budgets,
    Claim,
    Configuration,
    CountBudget,
    JobEndedTerms,
    Mode,
    Policy,
    Scope,
    Selector,
    Warn,
)
from reaper.model.schedule import DailyHours
from tests.config.documents import full, minimal

EXAMPLE = Path(__file__).parents[2] / "deploy" / "config" / "reaper.toml"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def anonymous(configuration: Configuration) -> Configuration:
    return replace(configuration, source="")


def toml(tree: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """Enough of a writer for these documents."""
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    lines = [f"[{'.'.join(json.dumps(part) for part in path)}]"] if path else []
    lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in plain.items()]
    tables = [toml(value, (*path, key)) for key, value in tree.items() if isinstance(value, dict)]
    return "\n".join((*lines, *tables))


def test_the_whole_vocabulary_comes_to_what_was_written() -> None:
    got = reaper.config.parse(full(), "test")

    assert (got.name, got.mode, got.cycle, got.source) == ("ml-platform", Mode.ENFORCE, timedelta(minutes=2), "test")
    assert got.aws == AwsCloud(regions=("eu-central-1", "us-east-1"), accounts=(AwsAccount("012345678901"),))
    assert got.gang_same == ("tag:job-group", "placement-group")
    assert got.scope == Scope(Selector({"team": ("ml",)}), ("start", "stop"), Claim("reaper", "ml-platform"), given=True)
    assert got.budgets.stops == CountBudget(per_hour=4, usd_per_hour=400, share_per_hour=0.05, at_least=2, zone="Europe/Berlin")
    assert got.budgets.starts == CountBudget(per_minute=3)
    assert got.budgets.breaker == BreakerTerms(0.30, timedelta(minutes=20), 4)
    assert got.protections[0].until == datetime(2027, 1, 16, 12, tzinfo=UTC)
    assert got.channels["team"].url == "https://chat.example.com/hooks/sesame"
    assert got.prices == {"g5.xlarge": 1.006}


def test_policies_inherit_key_by_key_and_lift_quiet_hours_with_ignore() -> None:
    policies = {policy.name: policy for policy in reaper.config.parse(full(), "test").policies}

    training, exploration = policies["training"], policies["exploration"]
    assert training.warn.wait == timedelta(minutes=30)
    assert training.warn.quiet is None
    assert training.warn.via == ("log", "team")
    assert exploration.warn.quiet == DailyHours(time(20), time(8), "Europe/Berlin")
    assert (training.busy.cpu, training.busy.disk_mib_s, training.busy.net_mib_s) == (0.10, 7.5, 5.0)
    assert training.idle.gpu_at_most == 0.05
    assert exploration.idle.gpu_at_most == 0.04
    assert training.scarce_types == ("p5.48xlarge",)
    assert (training.orchestrator, exploration.orchestrator) == ("ignore", "hold")
    assert policies["serving"].action == "report"
    assert {policy.min_age for policy in policies.values()} == {timedelta(minutes=45)}
    assert [p.mode for p in policies.values()] == [Mode.ENFORCE, Mode.OBSERVE, Mode.OBSERVE]


def test_toml_and_json_come_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(toml(full()), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps(full()), encoding="utf-8")
    from_toml, from_json = reaper.config.load(tmp_path / "a.toml"), reaper.config.load(tmp_path / "b.json")

    assert anonymous(from_toml) == anonymous(from_json) == anonymous(reaper.config.parse(full(), ""))
    assert from_toml.source == str(tmp_path / "a.toml")


def test_a_folder_of_files_comes_to_the_same_as_one_file(tmp_path: Path) -> None:
    whole = full()
    policies = whole.pop("policy")
    training = {"policy": {"training": policies.pop("training")}}
    (tmp_path / "10-base.toml").write_text("﻿" + toml(whole), encoding="utf-8")  # with the mark some editors set
    (tmp_path / "20-policy.json").write_text(json.dumps({"policy": policies}), encoding="utf-8")
    (tmp_path / "30-training.toml").write_text(toml(training), encoding="utf-8")
    (tmp_path / "README.md").write_text("not read", encoding="utf-8")
    (tmp_path / ".10-base.toml.swp").write_bytes(b"\xff")

    assert anonymous(reaper.config.load(tmp_path)) == anonymous(reaper.config.parse(full(), ""))


def test_the_example_is_right_and_fits_its_schema() -> None:
    import tomllib

    got = reaper.config.load(EXAMPLE)

    assert reaper.config.remarks(got, NOW) == ()
    assert got.mode is Mode.OBSERVE
    assert len(got.policies) == 4
    jsonschema.Draft202012Validator(reaper.config.schema()).validate(tomllib.loads(EXAMPLE.read_text(encoding="utf-8")))


def test_schema_takes_the_whole_vocabulary_and_refuses_what_is_not_in_it() -> None:
    validator = jsonschema.Draft202012Validator(reaper.config.schema())
    validator.check_schema(reaper.config.schema())
    misspelt = full()
    misspelt["policy"]["training"]["idel"] = {"for": "2h"}
    null = full()
    null["scope"]["claim"] = None

    assert validator.is_valid(full())
    assert validator.is_valid({**full(), "budget": {"breaker": "off"}})
    assert not validator.is_valid(misspelt)
    assert not validator.is_valid(null)
    assert not validator.is_valid({"name": "x"})


def test_without_a_budget_the_shipped_limits_hold_and_within_a_written_one_absent_keys_are_unlimited() -> None:
    none = reaper.config.parse(minimal(), "test")
    some = reaper.config.parse({**minimal(), "budget": {"stops": {"per_day": 9}}}, "test")
    off = reaper.config.parse({**minimal(), "budget": {"breaker": "off"}}, "test")

    assert none.budgets == Budgets()
    assert none.budgets.stops.per_hour is not None
    assert some.budgets.stops == CountBudget(per_day=9)
    assert some.budgets.starts == Budgets().starts
    assert some.budgets.breaker == BreakerTerms()
    assert off.budgets == replace(Budgets(), breaker=None)


def test_built_in_observes_everything_and_has_no_scope() -> None:
    got = reaper.config.built_in()

    assert (got.name, got.mode, got.aws, got.scope.given) == ("default", Mode.OBSERVE, AwsCloud(), False)
    assert [(p.name, p.when.empty, p.mode) for p in got.policies] == [("default", True, Mode.OBSERVE)]
    assert got.policies[0].idle.idle_for == timedelta(hours=2)
    assert got.policies[0].idle.gpu_at_most == 0.05
    assert got.policies[0].idle.held_for == timedelta(hours=10)
    assert got.digest
    assert got.policies[0].digest


def test_short_terms_and_cycles_are_taken_on_loopback() -> None:
    document = {
        **minimal(),
        "cycle": "1s",
        "clouds": {"aws": {"endpoint": "http://127.0.0.1:5000"}},
        "policy": {"all": {"idle": {"for": "8s", "held_for": "12s"}, "warn": {"for": "5s"}, "min_age": "1s"}},
    }

    got = reaper.config.parse(document, "test")

    assert got.policies[0].idle.idle_for == timedelta(seconds=8)
    assert got.cycle == timedelta(seconds=1)


def test_webhook_addresses_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "webhook"
    secret.write_text("https://chat.example.com/from-file\n", encoding="utf-8")
    monkeypatch.setenv("TEAM_WEBHOOK", "https://chat.example.com/from-env")
    document = {**minimal(), "channels": {"a": {"webhook_file": str(secret)}, "b": {"webhook_env": "TEAM_WEBHOOK"}}}

    got = reaper.config.parse(document, "test")

    assert got.channels["a"].url == "https://chat.example.com/from-file"
    assert got.channels["b"].url == "https://chat.example.com/from-env"
    assert "from-" not in repr(got)


CHANGES: list[tuple[str, Any]] = [
    ("when", {"tags": {"phase": ["other"]}}),
    ("mode", "observe"),
    ("action", "report"),
    ("idle", {"for": "3h", "gpu_at_most": "4%", "held_for": "12h"}),
    ("idle", {"for": "2h", "gpu_at_most": "6%", "held_for": "12h"}),
    ("idle", {"for": "2h", "gpu_at_most": "4%", "held_for": "13h"}),
    ("warn", {"for": "2h"}),
    ("warn", {"quiet": "ignore"}),
    ("warn", {"quiet": "20:00-09:00 Europe/Berlin"}),
    ("warn", {"via": ["team"]}),
    ("reserved", "ignore"),
    ("hibernate_else", "hold"),
    ("project", ["tag:cost-centre"]),
    ("environment", ["tag:stage"]),
    ("restart_hold", ["address"]),
    ("restart_hold", ["address", "key"]),
    ("busy", {"cpu": "11%"}),
    ("busy", {"disk_mib_s": 6}),
    ("busy", {"net_mib_s": 6}),
    ("hours", "office"),
    ("hours", "night"),
    ("job_ended", {}),
    ("job_ended", {"for": "44m"}),
    ("job_ended", {"warn": "31m"}),
    ("job_ended", {"quiet": "ignore"}),
    ("min_age", "46m"),
    ("starved_above", "31%"),
    ("orchestrator", "ignore"),
    ("local_nvme", "discard"),
    ("suspend_else", "hold"),
    ("local_scratch", ["/scratch"]),
    ("snooze", {"up_to": "4d"}),
    ("owner", ["tag:team"]),
    ("scarce", {"types": ["p4d.24xlarge"], "action": "report"}),
]


@pytest.mark.parametrize(("key", "value"), CHANGES, ids=[f"{key}-{n}" for n, (key, _) in enumerate(CHANGES)])
def test_any_changed_term_changes_the_digest_of_its_policy_and_of_the_whole_and_of_no_other(key: str, value: Any) -> None:
    before, changed = reaper.config.parse(full(), "test"), full()
    changed["policy"]["exploration"][key] = value
    after = reaper.config.parse(changed, "test")

    assert after.policies[0].digest != before.policies[0].digest
    assert after.digest != before.digest
    assert [p.digest for p in after.policies[1:]] == [p.digest for p in before.policies[1:]]


def test_every_field_of_a_policy_that_can_be_written_is_among_the_changes() -> None:
    owners = {"snooze_up_to": "snooze", "scarce_types": "scarce"}
    written = {owners.get(f.name, f.name) for f in fields(Policy)} - {"name", "digest", "hook_veto_up_to"}

    assert written == {key for key, _ in CHANGES}


def test_an_inherited_term_changes_the_digest_of_every_policy_that_inherits_it() -> None:
    before, changed = reaper.config.parse(full(), "test"), full()
    changed["defaults"]["busy"]["cpu"] = "12%"
    after = reaper.config.parse(changed, "test")

    assert all(one.digest != other.digest for one, other in zip(before.policies, after.policies, strict=True))


def test_order_of_keys_blocks_and_selected_values_changes_no_digest() -> None:
    def turned(tree: Any) -> Any:
        return {key: turned(tree[key]) for key in reversed(tree)} if isinstance(tree, dict) else tree

    document = full()
    document["policy"]["exploration"]["when"]["tags"]["phase"] = ["a", "b"]
    other = copy.deepcopy(turned(document))
    other["policy"]["exploration"]["when"]["tags"]["phase"] = ["b", "a"]

    assert reaper.config.parse(other, "x") == replace(reaper.config.parse(document, "y"), source="x")


def test_default_written_out_has_the_digest_of_the_default() -> None:
    written = minimal()
    written["policy"]["all"] |= {"mode": "observe", "min_age": "30m", "idle": {"for": "120m", "held_for": "10h"}}

    assert reaper.config.parse(written, "x").digest == reaper.config.parse(minimal(), "y").digest


def job_ended_of(own: Any, inherited: Any = None) -> JobEndedTerms | None:
    document = {**minimal(), "defaults": {"warn": {"for": "1h", "quiet": "20:00-08:00 Europe/Berlin", "via": ["log"]}}}
    document["defaults"] |= {"job_ended": inherited} if inherited is not None else {}
    document["policy"] = {"all": {"job_ended": own} if own is not None else {}}
    return reaper.config.parse(document, "test").policies[0].job_ended


NIGHT = DailyHours(time(20), time(8), "Europe/Berlin")


@pytest.mark.parametrize(("own", "inherited", "expected"), [
    (None, None, None),
    ("off", None, None),
    ("off", {"for": "15m"}, None),
    (None, "off", None),
    ({}, None, (45, 60, NIGHT)),
    ({"for": "15m"}, None, (15, 60, NIGHT)),
    ({"for": "15m", "warn": "30m", "quiet": "ignore"}, None, (15, 30, None)),
    ({"quiet": "22:00-06:00 Europe/Berlin"}, None, (45, 60, DailyHours(time(22), time(6), "Europe/Berlin"))),
    (None, {"for": "15m", "warn": "30m", "quiet": "ignore"}, (15, 30, None)),
    ({"warn": "10m"}, {"for": "15m", "warn": "30m", "quiet": "ignore"}, (15, 10, None)),
    ({}, "off", (45, 60, NIGHT)),
], ids=str)  # fmt: skip
def test_job_ended_inherits_key_by_key_and_is_no_cause_unless_written(own: Any, inherited: Any, expected: Any) -> None:
    got = job_ended_of(own, inherited)

    if expected is None:
        assert got is None
        return
    assert got is not None
    assert (got.ended_for, got.warn) == (timedelta(minutes=expected[0]), Warn(timedelta(minutes=expected[1]), expected[2], ("log",)))


def remarks_of(**changes: Any) -> str:
    return "\n".join(reaper.config.remarks(reaper.config.parse({**full(), **changes}, "test"), NOW))


def test_remarks_call_out_what_is_allowed_and_should_be_seen() -> None:
    assert "local" not in remarks_of()
    assert 'local_nvme = "discard" stops machines whatever' in remarks_of(policy={"a": {"local_nvme": "discard"}})
    assert "local_scratch means nothing" in remarks_of(policy={"a": {"local_nvme": "hold", "local_scratch": ["/scratch"]}})
    assert "the log alone" not in remarks_of()
    assert "policy.exploration enforces with the log alone" in remarks_of(defaults={})
    assert "will not act" in remarks_of(mode="observe")
    assert "nothing will be stopped" in remarks_of(policy={"a": {"when": {"ids": ["i-0abc"]}}})
    assert "no policy is written" in remarks_of(policy={})
    assert "the fleet breaker is off" in remarks_of(budget={"breaker": "off"})
    assert "no limit by hour, day or share" in remarks_of(budget={"stops": {"per_minute": 1}})
    assert "budget.starts holds a limit of 0" in remarks_of(budget={"starts": {"per_day": 0}})
    assert "clouds.aws.accounts is not written" in remarks_of(clouds={"aws": {}})
    assert "every AWS call goes to http://127.0.0.1:5000" in remarks_of(clouds={"aws": {"endpoint": "http://127.0.0.1:5000"}})
    assert "job_ended.for is not shorter" in remarks_of(policy={"a": {"idle": {"for": "30m"}, "job_ended": {}}})
    assert "job_ended" not in remarks_of()
    assert "computes at up to 50%" in remarks_of(policy={"a": {"idle": {"gpu_at_most": "50%"}}})


def test_protection_that_ended_is_called_out_from_the_moment_it_ends() -> None:
    got, end = reaper.config.parse(full(), "test"), datetime(2027, 1, 16, 12, tzinfo=UTC)
    before = "\n".join(reaper.config.remarks(got, end - timedelta(seconds=1)))
    at_end = "\n".join(reaper.config.remarks(got, end))

    assert "protect.run ended" not in before
    assert "protect.run ended" in at_end


def test_policy_that_another_covers_is_called_out() -> None:
    wide = {"when": {"tags": {"team": ["ml", "ops"]}}}
    narrow = {"when": {"tags": {"team": ["ml"], "phase": ["training"]}}}
    apart = {"when": {"tags": {"team": ["web"]}}}

    told = remarks_of(policy={"wide": wide, "narrow": narrow, "apart": apart})

    assert [line.split(": ")[-1] for line in told.splitlines() if "never act" in line] == ["policy.narrow will never act"]


def test_configuration_is_looked_for_where_it_was_named_then_in_the_environment_then_in_its_folder(tmp_path: Path) -> None:
    gone = tmp_path / "gone"

    assert reaper.config.find("a.toml", {"REAPER_CONFIG": "b.toml"}, tmp_path) == Path("a.toml")
    assert reaper.config.find(None, {"REAPER_CONFIG": "b.toml"}, tmp_path) == Path("b.toml")
    assert reaper.config.find(None, {"REAPER_CONFIG": ""}, tmp_path) == tmp_path
    assert reaper.config.find(None, {}, gone) is None
