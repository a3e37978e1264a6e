"""An aggregated listing is whole zone by zone, or not known there."""

from typing import Any

import pytest
from google.cloud import compute_v1

from reaper.clouds.gcp.pages import zones_of

A, B, EAST = "us-central1-a", "us-central1-b", "us-east1-b"


def page(items: dict[str, Any] | None = None, **more: Any) -> Any:
    scopes = {f"zones/{zone}": {"instances": [{"id": n} for n in numbers]} for zone, numbers in {A: [1], B: [2], EAST: [3]}.items()}
    message = compute_v1.InstanceAggregatedList(items={**scopes, **(items or {})}, **more)
    return compute_v1.InstanceAggregatedList.pb(message)


def as_they_are(zone: str, raws: Any) -> Any:
    return list(raws)


def warning(code: str, *scopes: str) -> dict[str, Any]:
    return {"code": code, "data": [{"key": "scope", "value": scope} for scope in scopes]}


@pytest.mark.parametrize(
    ("pages", "lost"),
    [
        ([page()], []),
        ([page(), page({f"zones/{A}": {"warning": warning("NO_RESULTS_ON_PAGE")}})], []),
        ([page({f"zones/{A}": {"warning": warning("UNREACHABLE")}})], [A]),
        ([page({f"zones/{A}": {"instances": [{"id": 1}], "warning": warning("PARTIAL_SUCCESS")}})], [A]),
        ([page({f"zones/{A}": {"warning": {}}})], [A]),
        ([page(), page({f"zones/{A}": {"warning": warning("UNREACHABLE")}}), page()], [A]),
        ([page(unreachables=[f"zones/{A}"])], [A]),
        ([page(unreachables=[f"projects/p/zones/{A}", f"https://www.googleapis.com/compute/v1/projects/p/zones/{EAST}"])], [A, EAST]),
        ([page(unreachables=["regions/us-central1"])], [A, B]),
        ([page(unreachables=["locations/somewhere"])], [A, B, EAST]),
        ([page(warning=warning("NO_RESULTS_ON_PAGE"))], []),
        ([page(warning=warning("UNREACHABLE", f"zones/{B}"))], [B]),
        ([page(warning=warning("PARTIAL_SUCCESS"))], [A, B, EAST]),
    ],
    ids=["whole", "empty_on_one_page", "unreachable", "machines_and_a_warning", "a_warning_of_nothing", "on_one_page_of_three", "among_unreachables",
         "in_longer_words", "a_region", "somewhere", "nothing_at_all", "named_by_the_whole", "some_of_the_whole"],
)  # fmt: skip
def test_whatever_may_hide_machines_makes_its_zones_unknown(pages: list[Any], lost: list[str]) -> None:
    found = zones_of(pages, as_they_are)

    assert [zone for zone in (A, B, EAST) if found.why_not(zone) is not None] == lost


def test_a_zone_of_which_nothing_is_said_is_not_known() -> None:
    assert zones_of([page()], as_they_are).why_not("us-west1-a") == "no page of the listing speaks of it"


def test_machines_of_all_pages_come_together() -> None:
    found = zones_of([page(), page({f"zones/{A}": {"instances": [{"id": 4}]}})], as_they_are)

    assert [raw.id for raw in found.machines[A]] == [1, 4]


def test_a_zone_that_is_not_understood_is_not_known_and_hides_no_other() -> None:
    def read(zone: str, raws: Any) -> Any:
        if zone == B:
            raise ValueError("no id")
        return list(raws)

    found = zones_of([page(), page()], read)

    assert found.why_not(B) == "the listing is not understood: no id"
    assert found.why_not(A) is None
