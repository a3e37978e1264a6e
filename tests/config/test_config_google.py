"""[clouds.gcp]: what it may say, what is refused, and what it comes to."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import reaper.config
from reaper.config import pointers
from reaper.config.values import Unreadable
from reaper.errors import ConfigurationError
from reaper.model.policy import AwsCloud, GcpCloud

WHOLE = {
    "projects": ["ml-research", "example.com:ml-eval"], "zones": ["us-central1-a", "us-central1-ai1a"],
    "service_account": "idle-reaper@{project}.iam.gserviceaccount.com", "local_ssd": "discard", "deletion_protection": "ignore", "endpoint": "https://compute.example.com",
    "below": ["organizations/2", "folders/1"], "price_list": "off", "price_file": "/var/lib/idle-reaper/google-prices.json",
    "project": {"ml-research": {"owner": "ada", "environment": "dev"}},
}  # fmt: skip


def document(google: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schema": 1, "clouds": {"gcp": google}, "policy": {"all": {"idle": {"for": "2h"}}}, **more}


def problems(google: dict[str, Any], **more: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        reaper.config.parse(document(google, **more), "test")
    return list(caught.value.problems)


def test_everything_that_can_be_written_is_read_and_the_order_means_nothing() -> None:
    got = reaper.config.parse(document(WHOLE), "test")

    assert got.gcp == GcpCloud(
        ("example.com:ml-eval", "ml-research"), ("us-central1-a", "us-central1-ai1a"), "idle-reaper@{project}.iam.gserviceaccount.com", "discard", "ignore",
        "https://compute.example.com", ("folders/1", "organizations/2"), "/var/lib/idle-reaper/google-prices.json", False,
        {"ml-research": {"owner": "ada", "environment": "dev"}},
    )  # fmt: skip
    assert got.aws is None


def test_projects_are_enough_and_local_ssds_are_preserved() -> None:
    assert reaper.config.parse(document({"projects": ["ml-research"]}), "test").gcp == GcpCloud(("ml-research",), local_ssd="preserve", deletion_protection="hold")


def test_both_clouds_may_stand_beside_each_other() -> None:
    both = {"clouds": {"aws": {"regions": ["us-east-1"]}, "gcp": {"projects": ["ml-research"]}}}
    got = reaper.config.parse({**document({}), **both}, "test")

    assert (got.aws, got.gcp) == (AwsCloud(regions=("us-east-1",)), GcpCloud(("ml-research",)))


def test_without_any_cloud_it_is_still_aws() -> None:
    got = reaper.config.parse({"schema": 1, "policy": {"all": {"idle": {"for": "2h"}}}}, "test")

    assert (got.aws, got.gcp) == (AwsCloud(), None)


def test_a_folder_is_enough() -> None:
    assert reaper.config.parse(document({"below": ["folders/1"]}), "test").gcp == GcpCloud((), below=("folders/1",))


@pytest.mark.parametrize(
    ("google", "asked"),
    [({}, True), ({"price_list": "off"}, False), ({"endpoint": "http://127.0.0.1:1"}, False), ({"endpoint": "http://127.0.0.1:1", "price_list": "ask"}, True),
     ({"endpoint": "https://compute.example.com"}, True)],
    ids=["as_it_is", "off", "a_local_one", "a_local_one_asked", "a_private_endpoint"],
)  # fmt: skip
def test_google_is_asked_what_things_cost_unless_it_is_a_local_one(google: dict[str, Any], asked: bool) -> None:
    got = reaper.config.parse(document({"projects": ["ml-research"], **google}), "test").gcp

    assert got is not None
    assert got.price_list is asked


def test_the_schema_takes_what_the_reader_takes() -> None:
    validator = Draft202012Validator(reaper.config.schema())

    assert validator.is_valid(document(WHOLE))
    assert not validator.is_valid(document({"projects": []}))
    assert not validator.is_valid(document({"projects": ["ml-research"], "regions": ["us-central1"]}))


REFUSED = [
    ({}, "clouds.gcp", "names no project"),
    ({"projects": []}, "clouds.gcp.projects", ""),
    ({"projects": ["ml-research", "ml-research"]}, "clouds.gcp.projects", "written twice"),
    ({"projects": [123456789012]}, "clouds.gcp.projects[0]", "its number"),
    ({"projects": ["123456789012"]}, "clouds.gcp.projects[0]", "its number"),
    ({"projects": ["ML Research"]}, "clouds.gcp.projects[0]", "not the id of a Google Cloud project"),
    ({"projects": ["ml-research"], "zones": ["us-central1"]}, "clouds.gcp.zones[0]", "that is a region"),
    ({"projects": ["ml-research"], "zones": ["us-east-1a"]}, "clouds.gcp.zones[0]", "not a zone"),
    ({"projects": ["ml-research"], "service_account": "idle-reaper"}, "clouds.gcp.service_account", "not a service account"),
    ({"projects": ["ml-research"], "local_ssd": "keep"}, "clouds.gcp.local_ssd", "preserve"),
    ({"projects": ["ml-research"], "endpoint": "compute.googleapis.com"}, "clouds.gcp.endpoint", "not an address"),
    ({"projects": ["ml-research"], "project": {"ml-eval": {"owner": "ada"}}}, "clouds.gcp.project.ml-eval", "is not among projects"),
    ({"below": ["123456789012"]}, "clouds.gcp.below[0]", "no folder or organisation"),
    ({"below": ["projects/ml-research"]}, "clouds.gcp.below[0]", "no folder or organisation"),
    ({"projects": ["ml-research"], "price_file": "prices.json"}, "clouds.gcp.price_file", ""),
    ({"projects": ["ml-research"], "regions": ["us-central1"]}, "clouds.gcp.regions", ""),
]


@pytest.mark.parametrize(("google", "path", "word"), REFUSED, ids=[f"{row[1]}-{n}" for n, row in enumerate(REFUSED)])
def test_what_is_wrong_is_told_with_its_path(google: dict[str, Any], path: str, word: str) -> None:
    told = problems(google)

    assert len(told) == 1
    assert f"test: {path}: " in told[0]
    assert word in told[0]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9000", None, "https://compute.example.com"])
def test_short_terms_are_for_local_clouds_only(endpoint: str | None) -> None:
    google = {"projects": ["ml-research"], **({} if endpoint is None else {"endpoint": endpoint})}
    policy = {"policy": {"all": {"idle": {"for": "6s"}}}}

    if endpoint == "http://127.0.0.1:9000":
        assert reaper.config.parse(document(google, **policy), "test").policies[0].idle.idle_for.total_seconds() == 6
    else:
        assert "shorter than 5m" in problems(google, **policy)[0]


@pytest.mark.parametrize(("aws", "gcp"), [("http://127.0.0.1:1", "https://compute.example.com"), ("https://ec2.example.com", "http://127.0.0.1:1"), (None, "http://127.0.0.1:1")])
def test_one_cloud_that_is_not_local_makes_none_of_them_so(aws: str | None, gcp: str) -> None:
    clouds = {"aws": {} if aws is None else {"endpoint": aws}, "gcp": {"projects": ["ml-research"], "endpoint": gcp}}

    assert any("shorter than 5m" in told for told in problems({}, clouds=clouds, policy={"all": {"idle": {"for": "6s"}}}))


@pytest.mark.parametrize(
    "text",
    ["gcp:ml-research:us-central1-a:instance:5000000000000000001", "gcp:example.com:ml-eval:us-central1-a:instance:7", "5000000000000000001"],
)
def test_machines_are_named_by_their_numeric_ids(text: str) -> None:
    assert pointers.instance_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["gcp:ml-research:us-central1-a:instance:trainer", "gcp:ml-research:us-central1:instance:7", "gcp:123:us-central1-a:instance:7", "gcp:ml-research:us-central1-a:disk:7",
     "azure:ml-research:us-central1-a:instance:7"],
)  # fmt: skip
def test_what_names_no_machine_of_googles_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        pointers.instance_id(text)


def test_tags_that_no_label_can_be_are_called_out_where_there_is_no_other_cloud() -> None:
    policy = {"all": {"when": {"tags": {"Owner": ["ada@example.com"]}}, "idle": {"for": "2h"}}}
    scope = {"tags": {"team": ["ml"]}, "verbs": ["stop"]}
    google = {"projects": ["ml-research"], "local_ssd": "discard"}

    alone = "\n".join(reaper.config.remarks(reaper.config.parse(document(google, policy=policy, scope=scope), "test")))
    both = reaper.config.parse(document({}, clouds={"aws": {"accounts": ["111122223333"]}, "gcp": google}, policy=policy, scope=scope), "test")

    assert "policy.all.when asks for 'Owner', which no label of Google's can be" in alone
    assert "scope" not in alone
    assert 'local_ssd = "discard" has a stop wipe local SSDs' in alone
    assert "no label" not in "\n".join(reaper.config.remarks(both))


def test_check_tells_the_projects(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.config.test_cli_check import call

    file = tmp_path / "reaper.json"
    file.write_text(json.dumps(document(WHOLE)))

    codes = call(str(file)), call(str(file), "--json")
    out = capsys.readouterr().out

    assert codes == (0, 0)
    assert "cloud: Google Cloud, example.com:ml-eval, ml-research, whatever is below folders/1, whatever is below organizations/2 as idle-reaper@{project}.iam.gserviceaccount.com, us-central1-a" in out
    told = json.loads(out.splitlines()[-1])
    assert (told["aws"], told["gcp"]["projects"]) == (None, ["example.com:ml-eval", "ml-research"])
