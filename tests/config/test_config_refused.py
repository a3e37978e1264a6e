"""Documents that are refused: every message names the file, the path and the remedy."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reaper.config
from reaper.config.document import Document
from reaper.config.problems import LATER
from reaper.errors import ConfigurationError, UsageError
from tests.config.documents import full

Tree = dict[str, Any]


def good() -> Tree:
    """Enforces, so that every safety rule applies."""
    return {
        "schema": 1,
        "name": "ml",
        "mode": "enforce",
        "clouds": {"aws": {"regions": ["us-east-1"]}},
        "scope": {"tags": {"team": ["ml"]}, "verbs": ["stop"]},
        "protect": {"run": {"ids": ["i-0abc"], "reason": "long run"}},
        "policy": {
            "training": {"when": {"tags": {"phase": ["training"]}}, "mode": "enforce", "idle": {"for": "2h"}},
            "serving": {"when": {"tags": {"phase": ["serving"]}}},
        },
        "channels": {"team": {"webhook": "https://chat.example.com/sesame"}},
    }


def problems_of(document: Tree) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refused:
        reaper.config.parse(document, "fleet.toml")
    return refused.value.problems


def put(path: str, value: Any) -> Callable[[Tree], None]:
    """Write one value; the path with slashes, as some keys hold dots."""

    def change(tree: Tree) -> None:
        *tables, key = path.split("/")
        for table in tables:
            tree = tree.setdefault(table, {})
        tree[key] = value

    return change


def drop(path: str) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        *tables, key = path.split("/")
        for table in tables:
            tree = tree[table]
        del tree[key]

    return change


LONG_TERMS = 'write it in quotes with its unit'
ROWS: list[tuple[str, Callable[[Tree], None], str, str]] = [
    ("schema is missing", drop("schema"), "schema: is missing", "write schema = 1"),
    ("schema of another edition", put("schema", 2), "schema: 2 is not a schema", "write schema = 1"),
    ("schema as text", put("schema", "1"), 'schema: "1" is not', "write schema = 1"),
    ("schema as truth", put("schema", True), "schema: true is not", "write schema = 1"),
    ("misspelt protect table", put("protects", {"x": {}}), "protects: unknown key", "did you mean protect?"),
    ("misspelt idle key", put("policy/training/idle/fro", "2h"), "policy.training.idle.fro: unknown key", "did you mean for?"),
    ("dashes for underscores", put("policy/training/min-age", "1h"), "policy.training.min-age: unknown key", "did you mean min_age?"),
    ("unknown key like no other", put("policy/training/zzz", 1), "policy.training.zzz: unknown key", "known here: action"),
    ("key one table too high", put("policy/training/held_for", "9h"), "policy.training.held_for: unknown key here", "belongs in policy.NAME.idle"),
    ("tags directly in a policy", put("policy/training/tags", {}), "policy.training.tags: unknown key here", "belongs in policy.NAME.when"),
    ("mode inherited", put("defaults/mode", "enforce"), "defaults.mode: does not belong here", "never inherited"),
    ("mode unknown", put("mode", "dry-run"), 'mode: "dry-run" is not', '"observe" or "enforce"'),
    ("mode as truth", put("policy/training/mode", True), "policy.training.mode: true", '"observe" or "enforce"'),
    ("name as number", put("name", 7), "name: 7 is not text", "write it in quotes"),
    ("name with spaces", put("name", "my fleet"), 'name: "my fleet" is not a name', "letters"),
    ("idle term without unit", put("policy/training/idle/for", 120), "policy.training.idle.for: 120 has no unit", LONG_TERMS),
    ("idle term as digits in quotes", put("policy/training/idle/for", "120"), 'policy.training.idle.for: "120" has no unit', LONG_TERMS),
    ("negative term", put("policy/training/idle/for", "-2h"), "policy.training.idle.for: \"-2h\" is negative", LONG_TERMS),
    ("months", put("policy/training/idle/held_for", "5mo"), "policy.training.idle.held_for", "the units are d, h, m and s"),
    ("longer than ten years", put("policy/training/idle/held_for", "4000d"), "longer than ten years", "write a shorter term"),
    ("idle term too short", put("policy/training/idle/for", "4m"), "policy.training.idle.for: 4m is shorter than 5m", "write a longer term"),
    ("inherited warning too short", put("defaults/warn", {"for": "1m"}), "defaults.warn.for: 1m is shorter", "write a longer term"),
    ("min_age too short", put("policy/serving/min_age", "10s"), "policy.serving.min_age: 10s is shorter", "write a longer term"),
    ("held shorter than idle", put("policy/training/idle/held_for", "1h"), "policy.training.idle: held_for is 1h", "write a held_for"),
    ("idle longer than shipped held", put("policy/training/idle/for", "11h"), "held_for is 10h and shorter than for, 11h", "write a held_for"),
    ("GPU limit without sign", put("policy/training/idle/gpu_at_most", 5), "policy.training.idle.gpu_at_most: 5 can mean", '"5%"'),
    ("GPU limit of everything", put("policy/training/idle/gpu_at_most", "100%"), "100 % calls the busiest", 'below "100%"'),
    ("starved above nothing", put("defaults/starved_above", "0%"), "defaults.starved_above: 0 % is reached", "above zero"),
    ("quiet hours of no length", put("defaults/warn", {"quiet": "03:00-03:00 Europe/Berlin"}), "defaults.warn.quiet", "write different times"),
    ("quiet hours in a nickname", put("defaults/warn", {"quiet": "20:00-08:00 EST"}), 'defaults.warn.quiet: "EST"', "IANA"),
    ("quiet hours as minutes", put("defaults/warn", {"quiet": 1200}), "defaults.warn.quiet: 1200 is not", "in quotes"),
    ("channel that does not exist", put("policy/training/warn", {"via": ["teem"]}), 'policy.training.warn.via[0]: "teem"', "log, team"),
    ("no channel at all", put("policy/training/warn", {"via": []}), "policy.training.warn.via: is empty", "at least one"),
    ("channel not in a list", put("policy/training/warn", {"via": "log"}), "policy.training.warn.via: is not a list", "brackets"),
    ("channel named log", put("channels/log", {"webhook": "https://x.example"}), "channels.log: is the name", "another name"),
    ("channel with two addresses", put("channels/team/webhook_env", "X"), "channels.team: has webhook and webhook_env", "exactly one"),
    ("channel without address", put("channels/team", {}), "channels.team: has no address", "exactly one"),
    ("channel in the clear", put("channels/team/webhook", "http://chat.example.com/sesame"), "channels.team.webhook: would send", "https://"),
    ("channel from an absent variable", put("channels/team", {"webhook_env": "NOT_SET_1"}), "NOT_SET_1 is not set", "set it"),
    ("channel from an absent file", put("channels/team", {"webhook_file": "/nonexistent/w"}), "/nonexistent/w cannot be read", "write the address"),
    ("protection of nothing", put("protect/run", {"reason": "x"}), "protect.run: protects nothing", "ids, tags or types"),
    ("protection without reason", drop("protect/run/reason"), "protect.run.reason: is missing", "say why"),
    ("protection with blank reason", put("protect/run/reason", "  "), "protect.run.reason: is blank", "write what"),
    ("protection without ids in its list", put("protect/run/ids", []), "protect.run.ids: is empty", "at least one"),
    ("protection by a number", put("protect/run/ids", [123]), "protect.run.ids[0]: 123 is not text", "in quotes"),
    ("protection by a name", put("protect/run/ids", ["train-1"]), 'protect.run.ids[0]: "train-1" is not an id', "names and patterns"),
    ("protection by a pattern", put("protect/run/types", ["p5.*"]), 'protect.run.types[0]: "p5.*"', "patterns are not understood"),
    ("protection by a pattern of tags", put("protect/run/tags", {"team": ["m*"]}), "protect.run.tags.team[0]", "patterns are not understood"),
    ("protection until no day", put("protect/run/until", "2027-02-30"), "protect.run.until", "write a date"),
    ("protection until a time of no place", put("protect/run/until", "2027-02-03T10:00:00"), "protect.run.until", "with its offset"),
    ("protection until a number", put("protect/run/until", 20270115), "protect.run.until: 20270115", "write a date"),
    ("protections in a list", put("protect", [{"ids": ["i-0abc"]}]), "protect: is not a table", "{ key = value }"),
    ("tag with a bare value", put("scope/tags", {"team": "ml"}), "scope.tags.team: is not a list", "brackets"),
    ("tag with a number", put("scope/tags", {"cost": [7]}), "scope.tags.cost[0]: 7 is not text", "in quotes"),
    ("tag with truth", put("scope/tags", {"gpu": [True]}), "scope.tags.gpu[0]: true is not text", "in quotes"),
    ("tag with no values", put("scope/tags", {"team": []}), "scope.tags.team: is empty", "at least one"),
    ("tag value with a stray space", put("scope/tags", {"team": ["ml "]}), "scope.tags.team[0]", "remove them"),
    ("value twice", put("scope/tags", {"team": ["ml", "ml"]}), 'scope.tags.team: "ml" is written twice', "once"),
    ("verb of a later version", put("scope/verbs", ["stop", "delete"]), "scope.verbs[1]: the verb delete is not available", '"stop"'),
    ("ending by inheritance", put("defaults/action", "terminate"), "defaults.action: terminate is never inherited", "write it in the policy"),
    ("ending without its verb", put("policy/training/action", "terminate"), "scope.verbs: does not list snapshot and terminate, and policy.training has the action terminate", 'add "snapshot", "terminate"'),
    ("snapshots without their verb", put("policy/training/action", "stop-and-snapshot"), "scope.verbs: does not list snapshot", 'add "snapshot"'),
    ("claim without value", put("scope/claim", "reaper"), 'scope.claim: "reaper" is not a tag', "key and value"),
    ("enforcing without scope", drop("scope"), "scope: is missing, and policy.training enforces", "add [scope]"),
    ("enforcing on everything", put("scope", {"verbs": ["stop"]}), "scope: selects nothing by name", "add tags, types or ids"),
    ("enforcing without the verb", put("scope/verbs", ["start"]), "scope.verbs: does not list stop", 'write verbs = ["stop"]'),
    ("enforcing without a name", drop("name"), "name: is missing, and policy.training enforces", "add name"),
    ("two policies for the same", put("policy/serving/when/tags/phase", ["training"]), "policy.training.when: selects the same machines as policy.serving", "make them differ"),
    ("policy for all beside others", drop("policy/serving/when"), "policy.serving: has no when", "add when"),
    ("policy that selects nothing", put("policy/serving/when", {}), "policy.serving.when: selects nothing", "or leave when out"),
    ("policy name with a space", put("policy/a b", {"when": {"ids": ["i-0abc"]}}), 'policy."a b": "a b" is not a name', "letters"),
    ("policy that is no table", put("policy/serving", "report"), "policy.serving: is not a table", "its keys are action"),
    ("action of a later version", put("policy/serving/action", "delete"), "policy.serving.action: the action delete is not available", '"report"'),
    ("stopping what never had an agent", put("defaults/no_agent", "warn-and-stop"), "defaults.no_agent", 'not available in this version ("warn-and-stop"); write "report"'),
    ("unknown phase that acts", put("defaults/unknown_phase", "stop"), "defaults.unknown_phase", 'write "report"'),
    ("scarce without types", put("policy/training/scarce", {"action": "report"}), "policy.training.scarce.types: is missing", "add the key types"),
    ("scratch that is the whole disk", put("defaults/local_scratch", ["/"]), 'defaults.local_scratch[0]: "/"', "one absolute path"),
    ("owner from nowhere", put("defaults/owner", ["owner"]), 'defaults.owner[0]: "owner"', '"tag:KEY"'),
    ("gang of unknown kind", put("gang", {"same": ["subnet"]}), 'gang.same[0]: "subnet"', "placement-group"),
    ("account as a number", put("clouds/aws/accounts", [111122223333]), "clouds.aws.accounts[0]: 111122223333 is not", "leading zero"),
    ("two accounts", put("clouds/aws/accounts", ["111122223333", "444455556666"]), "clouds.aws.role: accounts 111122223333, 444455556666 have no role", 'role = "idle-reaper"'),
    ("zone for a region", put("clouds/aws/regions", ["us-east-1a"]), "that is a zone of us-east-1", '"us-east-1"'),
    ("endpoint with a password", put("clouds/aws/endpoint", "http://u:sesame@h"), "clouds.aws.endpoint: is not an address", "without a password"),
    ("no cloud at all", put("clouds", {}), "clouds: names no cloud", "add [clouds.aws]"),
    ("cycle too long", put("cycle", "11m"), "cycle: 11m is out of range", "5s to 10m"),
    ("cycle too short", put("cycle", "1s"), "cycle: 1s is out of range", "5s to 10m"),
    ("count as text", put("budget/stops", {"per_hour": "4"}), 'budget.stops.per_hour: "4"', "digits without quotes"),
    ("count as truth", put("budget/stops", {"per_hour": True}), "budget.stops.per_hour: true", "digits without quotes"),
    ("negative count", put("budget/stops", {"per_hour": -1}), "budget.stops.per_hour: -1", "from 0"),
    ("endless dollars", put("budget/stops", {"usd_per_hour": float("inf")}), "budget.stops.usd_per_hour", "above zero"),
    ("budget in a nickname zone", put("budget/stops", {"per_day": 1, "zone": "EST5EDT"}), "budget.stops.zone", "IANA"),
    ("budget without any limit", put("budget/stops", {"zone": "UTC"}), "budget.stops: limits nothing", "per_hour = 4"),
    ("floor of no share", put("budget/stops", {"per_day": 1, "at_least": 1}), "budget.stops.at_least: means nothing", "share_per_hour"),
    ("breaker switched off by truth", put("budget/breaker", False), "budget.breaker: false", 'write "off"'),
    ("breaker that is misspelt", put("budget/breaker", {"turned_idel": "25%"}), "budget.breaker.turned_idel: unknown key", "turned_idle"),
    ("end of a job by truth", put("policy/training/job_ended", True), "policy.training.job_ended: true", 'write "off"'),
    ("end of a job too soon", put("policy/training/job_ended", {"for": "4m"}), "policy.training.job_ended.for: 4m is shorter than 5m", "longer term"),
    ("warning of an end too short", put("defaults/job_ended", {"warn": "1m"}), "defaults.job_ended.warn: 1m is shorter than 5m", "longer term"),
    ("end of a job with a key of the warning", put("policy/training/job_ended", {"via": ["log"]}), "policy.training.job_ended.via: unknown key", "it belongs in"),
    ("price as text", put("prices", {"g5.xlarge": "1.006"}), 'prices."g5.xlarge": "1.006"', "digits without quotes"),
    ("price of nothing", put("prices", {"g5.xlarge": 0}), 'prices."g5.xlarge": 0 is out of range', "above zero"),
    ("null", put("policy/training/when", None), "policy.training.when: null is not a value", "leave the key out"),
]


@pytest.mark.parametrize(("change", "where", "remedy"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_malformed_configuration_is_refused_with_file_path_and_remedy(change: Callable[[Tree], None], where: str, remedy: str) -> None:
    document = good()
    change(document)

    (problem,) = problems_of(document)

    assert problem.startswith("fleet.toml: ")
    assert where in problem
    assert remedy in problem
    assert "sesame" not in problem


def test_the_document_that_the_rows_change_is_right() -> None:
    assert reaper.config.parse(good(), "fleet.toml").name == "ml"


@pytest.mark.parametrize("pattern", LATER, ids=lambda pattern: ".".join(pattern))
def test_what_this_version_does_not_have_is_refused_by_name(pattern: tuple[str, ...]) -> None:
    table, key = good(), good()
    path = [("training" if part == "*" else part) for part in pattern]
    put("/".join(path), {"for": "1h"})(table)
    put("/".join(path), "office")(key)

    assert problems_of(table) == (f"fleet.toml: {'.'.join(path)}: {LATER[pattern]} not available in this version; remove the table",)
    assert problems_of(key) == (f"fleet.toml: {'.'.join(path)}: {LATER[pattern]} not available in this version; remove the key",)


def test_what_is_still_to_come_is_refused_in_these_words() -> None:
    document = good() | {"disks": {"scratch": {"min_gib": 100}}}

    assert problems_of(document) == ("fleet.toml: disks: disks are not available in this version; remove the table",)


def test_every_problem_is_told_at_once_of_values_keys_and_rules_alike() -> None:
    document = good()
    document["mode"] = "on"
    document["policy"]["training"]["idle"]["for"] = 3
    document["policy"]["serving"]["whne"] = {}
    document["protect"]["other"] = {"reason": "nothing selected"}
    document["protect"]["run"]["ids"] = [1, "x"]
    document["budget"] = {"stops": {"zone": "UTC"}, "deletes": {}}
    document["channels"]["team"] = {"webhook": "https://a.example", "webhook_env": "B"}

    problems = problems_of(document)

    told = [problem.split(": ")[1] for problem in problems]
    assert told == [
        "budget.deletes",
        "budget.stops",
        "channels.team",
        "mode",
        "policy.serving.whne",
        "policy.training.idle.for",
        "protect.other",
        "protect.run.ids[0]",
        "protect.run.ids[1]",
    ]


def test_one_slip_is_told_once_and_not_for_every_rule_it_upsets() -> None:
    document = good()
    document["scoop"] = document.pop("scope")

    (problem,) = problems_of(document)

    assert "did you mean scope?" in problem


def test_rules_without_the_broken_part_are_still_told() -> None:
    document = good()
    document["policy"]["serving"]["idle"] = {"for": "soon"}
    del document["scope"]["verbs"]

    assert len(problems_of(document)) == 2


@pytest.mark.parametrize(
    "channel",
    [
        {"webhook": "hooks.example.com/sesame"},
        {"webhook": ["https://hooks.example.com/sesame"]},
        {"webhook": "http://hooks.example.com/sesame"},
        {"webhook_file": "https://hooks.example.com/sesame"},
        {"webhook_env": "https://hooks.example.com/sesame"},
        {"webhok": "https://hooks.example.com/sesame"},
        {"https://hooks.example.com/sesame": "webhook"},
        "https://hooks.example.com/sesame",
    ],
)
def test_no_message_shows_an_address_that_was_written_in_the_wrong_place(channel: Any) -> None:
    document = good()
    document["channels"]["team"] = channel
    document["policy"]["serving"]["warn"] = {"via": ["https://hooks.example.com/sesame"]}
    with pytest.raises(ConfigurationError) as refused:
        reaper.config.parse(document, "fleet.toml")

    assert "sesame" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert "sesame" not in repr(refused.value.__context__)


def test_address_from_a_file_that_is_wrong_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "w"
    secret.write_text("http://hooks.example.com/sesame", encoding="utf-8")
    (problem,) = problems_of(good() | {"channels": {"team": {"webhook_file": str(secret)}}})

    assert "channels.team.webhook_file" in problem
    assert "sesame" not in problem


def test_number_of_thousands_of_digits_is_refused_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("schema = 1\nprotect.run = { ids = [0x" + "f" * 5000 + '], reason = "x" }\n', encoding="utf-8")

    (problem,) = problems_at(tmp_path / "a.toml")

    assert "protect.run.ids[0]: this number is not text" in problem


def test_defaults_that_name_an_absent_channel_are_told_at_the_defaults() -> None:
    (problem,) = problems_of(good() | {"defaults": {"warn": {"via": ["log", "mail"]}}})

    assert problem.startswith('fleet.toml: defaults.warn.via[1]: "mail" is not a channel')


def test_an_endpoint_elsewhere_does_not_allow_short_terms() -> None:
    document = good()
    document["clouds"]["aws"]["endpoint"] = "http://10.0.0.1:5000"
    document["policy"]["training"]["idle"]["for"] = "10s"

    assert "shorter than 5m" in problems_of(document)[0]


FILES: list[tuple[str, str, bytes, str, str]] = [
    ("empty file", "a.toml", b"", "says nothing", "never defaults"),
    ("only comments", "a.toml", b"# schema = 1\n\n", "says nothing", "never defaults"),
    ("empty JSON object", "a.json", b"{}", "says nothing", "never defaults"),
    ("JSON null", "a.json", b"null", "is not a table at the top", "begin with"),
    ("JSON list", "a.json", b"[1]", "is not a table at the top", "begin with"),
    ("half a TOML file", "a.toml", b'schema = 1\n[protect.a]\nids = ["i-0', "is not TOML", "half a file"),
    ("half a JSON file", "a.json", b'{"schema": 1,', "is not JSON", "line 1"),
    ("empty JSON file", "a.json", b"", "is not JSON", "line 1"),
    ("TOML key twice", "a.toml", b"schema = 1\nname = 'a'\nname = 'b'\n", "written twice", "line 3"),
    ("TOML table twice", "a.toml", b"schema = 1\n[protect.a]\n[protect.a]\n", "written twice", "line 3"),
    ("JSON key twice", "a.json", b'{"schema": 1, "protect": {"a": {}, "a": {}}}', "a: the key is written twice", "write it once"),
    ("JSON not a number", "a.json", b'{"schema": 1, "cycle": NaN}', "NaN is not a number", "leave the key out"),
    ("endless number", "a.json", b'{"schema": ' + b"1" * 5000 + b"}", "number that is too long", "shorter"),
    ("not UTF-8", "a.toml", b"schema = 1\nname = '\xff'\n", "is not UTF-8 (line 2)", "save it as UTF-8"),
    ("NUL bytes of a crash", "a.toml", b"\x00" * 64, "is not TOML", "correct that line"),
    ("YAML", "a.yaml", b"schema: 1\n", "is neither .toml nor .json", "name it"),
    ("nested without end", "a.json", b'{"a":' * 100_000, "is nested too deeply", "flat"),
]


@pytest.mark.parametrize(("name", "content", "what", "remedy"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_file_that_cannot_be_read_whole_is_refused(tmp_path: Path, name: str, content: bytes, what: str, remedy: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        reaper.config.load(file)

    (problem,) = refused.value.problems
    assert problem.startswith(f"{file}: ")
    assert what in problem
    assert remedy in problem


def write(folder: Path, **files: Tree) -> Path:
    for name, tree in files.items():
        (folder / f"{name}.json").write_text(json.dumps(tree), encoding="utf-8")
    return folder


def problems_at(path: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refused:
        reaper.config.load(path)
    return refused.value.problems


def test_vanished_file_and_empty_folder_are_never_defaults(tmp_path: Path) -> None:
    assert "cannot be read (No such file" in problems_at(tmp_path / "gone.toml")[0]
    assert "holds no *.toml or *.json" in problems_at(tmp_path)[0]


def test_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.toml")

    assert "is not a file" in problems_at(tmp_path / "a.toml")[0]


def test_key_in_two_files_is_refused_and_names_both(tmp_path: Path) -> None:
    folder = write(tmp_path, a=good(), b={"protect": {"run": {"reason": "another"}, "new": {"ids": ["i-0def"], "reason": "x"}}})

    (problem,) = problems_at(folder)

    assert problem == f"{folder}/b.json: protect.run.reason: is also written in {folder}/a.json; write it in one file only"


def test_problem_names_the_file_that_wrote_it(tmp_path: Path) -> None:
    folder = write(tmp_path, a=good(), b={"protect": {"new": {"ids": [7], "reason": "x"}}}, c={"cycle": "1s"})

    assert [problem.split(": ")[:2] for problem in problems_at(folder)] == [
        [f"{folder}/b.json", "protect.new.ids[0]"],
        [f"{folder}/c.json", "cycle"],
    ]


def test_broken_file_does_not_hide_problems_of_another_nor_make_new_ones(tmp_path: Path) -> None:
    folder = write(tmp_path, b={"policy": {"a": {"mode": "enforce", "idle": {"for": 3}}}, "mode": "enforce"})
    (folder / "a.toml").write_text("schema = 1\n[scope\n", encoding="utf-8")

    problems = problems_at(folder)

    assert [problem.split(": ")[0] for problem in problems] == [f"{folder}/a.toml", f"{folder}/b.json"]


def test_empty_file_beside_good_ones_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, a=good())
    (folder / "protect.toml").write_text("# to be written\n", encoding="utf-8")

    (problem,) = problems_at(folder)

    assert "protect.toml: says nothing" in problem


@pytest.mark.parametrize("name", ["protect.yaml", "protect.yml", "protect.TOML"])
def test_file_that_a_folder_would_leave_out_is_refused(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, a=good())
    (folder / name).write_text("x", encoding="utf-8")

    (problem,) = problems_at(folder)

    assert f"{name}: would be left out" in problem


def test_folder_inside_a_folder_is_refused_and_a_mounted_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()  # how Kubernetes mounts a ConfigMap: links into a hidden folder
    write(tmp_path / "..data", a=good())
    (tmp_path / "a.json").symlink_to(tmp_path / "..data" / "a.json")

    assert reaper.config.load(tmp_path).name == "ml"

    (tmp_path / "more.d").mkdir()
    write(tmp_path / "more.d", b={"cycle": "1m"})
    assert "folders inside are not read" in problems_at(tmp_path)[0]


def test_empty_document_and_empty_path_are_refused() -> None:
    assert "says nothing" in problems_of({})[0]
    with pytest.raises(UsageError, match="empty"):
        reaper.config.find("")


def paths_of(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    below = tree.items() if isinstance(tree, dict) else ()
    return [*([path] if path else []), *(deeper for key, value in below for deeper in paths_of(value, (*path, key)))]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["5%", "2h", "log", "off", "i-0abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(paths_of(full())), ANYTHING), min_size=1, max_size=3))
def test_whatever_stands_anywhere_is_either_understood_or_refused_with_sentences(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    document = full()
    for (*tables, key), value in changes:
        node: Any = document
        for table in tables:
            node = node.get(table) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[key] = value
    try:
        got = reaper.config.parse(document, "fleet.toml")
        problems: tuple[str, ...] = ()
    except ConfigurationError as refused:
        got, problems = None, refused.problems

    assert (got is None) is bool(problems)
    assert got is None or reaper.config.remarks(got) is not None
    assert all(problem.startswith("fleet.toml: ") and "; " in problem for problem in problems)
    assert all("not understood (" not in problem for problem in problems)


def test_every_key_of_the_document_has_a_note_in_the_schema() -> None:
    schema = reaper.config.schema()

    assert {key for key, node in schema["properties"].items() if "description" not in node} == set()
    assert set(schema["properties"]) == {field.alias or name for name, field in Document.model_fields.items()}
