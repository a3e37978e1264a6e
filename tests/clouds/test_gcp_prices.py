"""What Google's machines cost, by its own price list: added up where every part is known, and unknown else."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reaper.clouds.gcp.cloud import GcpCloud
from reaper.clouds.gcp.prices import Rates, rates_of
from reaper.demo.compute_beside import Beside
from reaper.demo.compute_server import ComputeServer
from reaper.model.resource import ResourceId
from tests.clouds.gce import adapter, gid
from tests.fakes.clock import ManualClock
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server

SKUS = "cloudbilling.services.skus.list"
US, EU = "us-central1", "europe-west4"


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        add = made.beside.add_sku
        for family, core, ram in (("N1 Predefined", 0.03, 0.004), ("G2", 0.025, 0.003), ("E2", 0.02, 0.003), ("A2", 0.04, 0.004)):
            add(f"{family} Instance Core running in Americas", "CPU", core, US, "us-east1")
            add(f"{family} Instance Ram running in Americas", "RAM", ram, US, "us-east1")
        add("Nvidia L4 GPU running in Americas", "GPU", 0.5, US)
        add("Nvidia Tesla V100 GPU running in Americas", "GPU", 2.5, US)
        add("Nvidia Tesla A100 GPU running in Americas", "GPU", 3.0, US)
        add("Spot Preemptible N1 Predefined Instance Core running in Americas", "CPU", 0.006, US, usage="Preemptible")
        add("Spot Preemptible N1 Predefined Instance Ram running in Americas", "RAM", 0.001, US, usage="Preemptible")
        add("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Americas", "GPU", 0.7, US, usage="Preemptible")
        yield made


def priced(server: ComputeServer, **settings: Any) -> GcpCloud:
    cloud = adapter(server, settings={"price_list": True, **settings})
    cloud._prices.learn(PROJECT, wait=True)
    return cloud


def launch(server: ComputeServer, type: str = "g2-standard-8", zone: str = ZONE, **more: Any) -> ResourceId:
    return gid(server.world.launch("m", PROJECT, zone, type, **more)["id"], zone)


def attached(name: str, count: int) -> dict[str, Any]:
    return {"guestAccelerators": [{"acceleratorType": f"projects/p/zones/z/acceleratorTypes/{name}", "acceleratorCount": count}]}


SPOT = {"scheduling": {"provisioningModel": "SPOT", "preemptible": True}}
ROWS: list[tuple[str, str, dict[str, Any], float | None]] = [
    ("g2-standard-8", ZONE, {}, 8 * 0.025 + 32 * 0.003 + 0.5),
    ("g2-standard-24", ZONE, {}, 24 * 0.025 + 96 * 0.003 + 2 * 0.5),
    ("a2-highgpu-1g", ZONE, {}, 12 * 0.04 + 85 * 0.004 + 3.0),
    ("n1-standard-8", ZONE, attached("nvidia-tesla-v100", 2), 8 * 0.03 + 32 * 0.004 + 2 * 2.5),
    ("n1-standard-8", ZONE, {**attached("nvidia-tesla-v100", 2), **SPOT}, 8 * 0.006 + 32 * 0.001 + 2 * 0.7),
    ("e2-standard-8", ZONE, {}, 8 * 0.02 + 32 * 0.003),
    ("n1-standard-8", ZONE, attached("nvidia-tesla-t4", 1), None),
    ("a2-ultragpu-1g", ZONE, {}, None),
    ("g2-standard-8", ZONE, SPOT, None),
    ("g2-standard-8", OTHER_ZONE, {}, None),
    ("n2-highmem-32", ZONE, {}, None),
    ("g2-standard-8", ZONE, {"scheduling": {"provisioningModel": "RESERVATION_BOUND"}}, None),
    ("g2-standard-8", ZONE, {"scheduling": {"nodeAffinities": [{"key": "k", "operator": "IN", "values": ["v"]}], "provisioningModel": "STANDARD"}}, None),
]
IDS = ["gpu_type", "two_gpus", "a100", "attached", "attached_spot", "no_gpu", "a_gpu_without_a_price", "another_a100", "spot_without_a_price", "another_region",
       "a_family_without_a_price", "paid_for_in_another_way", "on_a_host_of_its_own"]  # fmt: skip


@pytest.mark.parametrize(("type", "zone", "fields", "expected"), ROWS, ids=IDS)
def test_a_machine_costs_what_its_parts_cost_and_is_unknown_where_one_is(
    server: ComputeServer, type: str, zone: str, fields: dict[str, Any], expected: float | None
) -> None:
    resource = launch(server, type, zone, **fields)
    cloud = priced(server)

    cloud.list()

    assert cloud.get(resource).hourly_usd == (None if expected is None else pytest.approx(expected))


def test_the_list_is_read_once_a_day_and_nothing_of_it_for_each_machine(server: ComputeServer) -> None:
    for _ in range(5):
        launch(server)
    server.beside.page = 4
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, settings={"price_list": True}, clock=clock)
    cloud._prices.learn(PROJECT, wait=True)

    for _ in range(3):
        listed = cloud.list()
    first = server.methods().count(SKUS)
    clock.advance(timedelta(days=1, minutes=1))
    cloud._prices.learn(PROJECT, wait=True)

    assert all(machine.hourly_usd for place in listed for machine in place.instances)
    assert first == 4
    assert server.methods().count(SKUS) == 8


def test_a_price_list_that_may_not_be_read_leaves_prices_unknown_and_the_listing_whole(server: ComputeServer) -> None:
    resource = launch(server)
    server.fail(SKUS, 403, "SERVICE_DISABLED", times=99)
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, settings={"price_list": True}, clock=clock)

    for _ in range(3):
        cloud._prices.learn(PROJECT, wait=True)
        listed = cloud.list()

    assert all(place.failed is None for place in listed)
    assert cloud.get(resource).hourly_usd is None
    assert server.methods().count(SKUS) == 1


def test_what_was_read_is_kept_in_a_file_that_serves_where_google_may_not_be_asked(server: ComputeServer, tmp_path: Path) -> None:
    resource, file = launch(server), tmp_path / "prices.json"
    known = priced(server, price_file=str(file))
    known.list()
    server.calls.clear()

    offline = adapter(server, settings={"price_file": str(file)})
    offline.list()

    assert offline.get(resource).hourly_usd == known.get(resource).hourly_usd is not None
    assert SKUS not in server.methods()
    assert json.loads(file.read_text())[US]["OnDemand"]["gpu l4"] == 0.5


@pytest.mark.parametrize("content", ["", "[]", '{"us-central1": 7}', '{"us-central1": {"OnDemand": {"core g2": "dear"}}}', '{"us-central1": {"OnDemand": {"core g2": 0}}}'])
def test_a_file_that_is_no_price_list_holds_no_price(server: ComputeServer, tmp_path: Path, content: str) -> None:
    resource, file = launch(server), tmp_path / "prices.json"
    file.write_text(content)

    assert adapter(server, settings={"price_file": str(file)}).get(resource).hourly_usd is None


def test_an_empty_price_list_is_no_news(server: ComputeServer) -> None:
    resource = launch(server)
    clock = ManualClock(datetime.now(UTC))
    cloud = adapter(server, settings={"price_list": True}, clock=clock)
    cloud._prices.learn(PROJECT, wait=True)
    server.beside.skus.clear()
    clock.advance(timedelta(days=2))
    cloud._prices.learn(PROJECT, wait=True)

    assert cloud.get(resource).hourly_usd is not None


@pytest.mark.parametrize("how", ["a_page_that_comes_again", "pages_without_end"])
def test_a_price_list_that_does_not_end_is_given_up(server: ComputeServer, how: str) -> None:
    resource = launch(server)
    turns = iter(range(10**9))
    server.beside._paged = lambda word, rows, query: {  # type: ignore[method-assign]
        "skus": [], "nextPageToken": "again" if how == "a_page_that_comes_again" else str(next(turns)),
    }  # fmt: skip
    cloud = priced(server)

    assert cloud.get(resource).hourly_usd is None
    assert server.methods().count(SKUS) <= 200


# --- what the descriptions say ----------------------------------------------------------------------------------------

PARTS = [
    ("N1 Predefined Instance Core running in Americas", "CPU", "core n1"), ("N2 Instance Ram running in Frankfurt", "RAM", "ram n2"),
    ("N2D AMD Instance Core running in Americas", "CPU", "core n2d"), ("N2D AMD Custom Instance Core running in Americas", "CPU", "core n2d custom"),
    ("N2 Custom Instance Core running in Americas", "CPU", "core n2 custom"), ("Custom Instance Core running in Americas", "CPU", "core n1 custom"),
    ("Compute optimized Core running in Americas", "CPU", "core c2"), ("Spot Preemptible A2 Instance Core running in Iowa", "CPU", "core a2"),
    ("C3 Instance Core running in Americas", "CPU", "core c3"), ("Memory-optimized Instance Core running in Americas", "CPU", "core m1"),
    ("Nvidia Tesla V100 GPU running in Americas", "GPU", "gpu v100"), ("Nvidia Tesla A100 80GB GPU running in Iowa", "GPU", "gpu 80gb a100"),
    ("Nvidia H100 80GB GPU running in Americas", "GPU", "gpu 80gb h100"), ("H200 141GB GPU running in Americas", "GPU", "gpu 141gb h200"),
    ("Nvidia Tesla K80 GPU attached to Spot Preemptible VMs running in Warsaw", "GPU", "gpu k80"),
    ("Commitment v1: N1 Cpu in Americas for 1 Year", "CPU", None), ("Commitment v1: Nvidia L4 GPU running in Iowa for 1 Year", "GPU", None),
    ("Sole Tenancy Premium for N1 Predefined Instance Core running in Americas", "CPU", None), ("Reserved Nvidia H100 80GB Mega GPU in Iowa", "GPU", None),
    ("N1 Sole Tenancy Instance Core running in Americas", "CPU", None), ("Storage PD Capacity", "PDStandard", None),
    ("Nvidia Tesla A100 80GB GPU attached to DWS Defined Duration VMs running in Americas", "GPU", None), ("A4 Nvidia B200 (1 gpu slice) running in Americas", "GPU", None),
    ("Nvidia Tesla V100 GPU Commitment in Americas", "GPU", None), ("", "CPU", None),
]  # fmt: skip


@pytest.mark.parametrize(("description", "group", "part"), PARTS, ids=[row[0] or "nothing" for row in PARTS])
def test_what_a_description_is_the_price_of(description: str, group: str, part: str | None) -> None:
    beside, found = Beside(), Rates()
    beside.add_sku(description, group, 0.25, US, usage="Preemptible" if "Spot" in description else "OnDemand")
    rates_of(beside.skus, found)

    assert {key[2] for key in found} == ({part} if part is not None else set())


GIB, MONTH = "GiBy.mo", "mo"
DISK_SKUS: list[tuple[str, str, float]] = [
    ("Storage PD Capacity", GIB, 0.04), ("Regional Storage PD Capacity", GIB, 0.08), ("Balanced PD Capacity", GIB, 0.1), ("Regional Balanced PD Capacity", GIB, 0.2),
    ("SSD backed PD Capacity", GIB, 0.17), ("Regional SSD backed PD Capacity", GIB, 0.34), ("Extreme PD Capacity", GIB, 0.125), ("Extreme PD IOPS", MONTH, 0.065),
    ("Hyperdisk Balanced Capacity in Iowa", GIB, 0.08), ("Hyperdisk Balanced IOPS in Iowa", MONTH, 0.005), ("Hyperdisk Balanced Throughput in Iowa", MONTH, 0.04),
    ("Hyperdisk Throughput Capacity", GIB, 0.005), ("Hyperdisk Throughput Throughput Capacity", MONTH, 0.25), ("Hyperdisk ML Capacity in Iowa", GIB, 0.08),
    ("Hyperdisk Balanced Capacity in Iowa - Confidential Mode", GIB, 9.0), ("Hyperdisk Balanced Storage Pools Advanced Capacity in Iowa", GIB, 9.0),
]  # fmt: skip
DISK_ROWS: list[tuple[str, str, dict[str, Any], float | None]] = [
    ("pd-standard", ZONE, {}, 4.0), ("pd-balanced", ZONE, {}, 10.0), ("pd-ssd", ZONE, {}, 17.0), ("pd-standard", US, {}, 8.0), ("pd-ssd", US, {}, 34.0),
    ("pd-balanced", ZONE, {"sizeGb": "1"}, 0.1), ("pd-extreme", ZONE, {"provisionedIops": "1000"}, 12.5 + 65.0), ("pd-extreme", ZONE, {}, None),
    ("hyperdisk-balanced", ZONE, {"provisionedIops": "3000", "provisionedThroughput": "140"}, 8.0),
    ("hyperdisk-balanced", ZONE, {"provisionedIops": "5000", "provisionedThroughput": "240"}, 8.0 + 10.0 + 4.0), ("hyperdisk-balanced", ZONE, {}, None),
    ("hyperdisk-throughput", ZONE, {"provisionedThroughput": "20"}, 0.5 + 5.0), ("hyperdisk-ml", ZONE, {"provisionedThroughput": "20"}, None),
    ("pd-balanced", OTHER_ZONE, {}, None), ("pd-new", ZONE, {}, None), ("pd-balanced", ZONE, {"sizeGb": "0"}, None),
    ("pd-balanced", ZONE, {"storagePool": "projects/p/zones/z/storagePools/pool"}, None), ("pd-balanced", ZONE, {"enableConfidentialCompute": True}, None),
]  # fmt: skip


@pytest.mark.parametrize(("type", "place", "fields", "expected"), DISK_ROWS)
def test_a_disk_costs_its_size_and_what_is_provisioned_and_is_unknown_where_a_part_is(
    server: ComputeServer, type: str, place: str, fields: dict[str, Any], expected: float | None
) -> None:
    for description, unit, usd in DISK_SKUS:
        server.beside.add_sku(description, "SSD", usd, US, unit=unit)
    server.world.add_disk("data", PROJECT, place, type=type, **fields)

    (disk,) = [disk for one in priced(server).shelves() for disk in one.disks]

    assert disk.monthly_usd == (None if expected is None else pytest.approx(expected))


def test_of_a_disks_price_the_part_that_is_free_is_not_the_price(server: ComputeServer) -> None:
    server.beside.add_sku("Storage PD Capacity", "PDStandard", 0.0, US, unit=GIB)
    rates = server.beside.skus[-1]["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    rates.append({"startUsageAmount": 30, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 40_000_000}})
    server.world.add_disk("data", PROJECT, ZONE, type="pd-standard")

    assert [disk.monthly_usd for one in priced(server).shelves() for disk in one.disks] == [pytest.approx(4.0)]


def test_what_is_left_over_costs_what_is_stored_of_it_and_what_it_is_by_the_hour(server: ComputeServer, tmp_path: Path) -> None:
    server.beside.add_sku("Storage PD Snapshot in US", "PDSnapshot", 0.065, "us", unit=GIB)
    server.beside.add_sku("Static Ip Charge", "IpAddress", 0.01, US)
    disk = server.world.add_disk("old", PROJECT, ZONE)
    server.world.shelves.disks.clear()
    for name, fields in {
        "stored": {}, "elsewhere": {"storageLocations": ["eu"]}, "not_told": {"storageLocations": []}, "still_counted": {"storageBytesStatus": "UPDATING"},
        "archived": {"snapshotType": "ARCHIVE"}, "of_nothing": {"storageBytes": "0"},
    }.items():  # fmt: skip
        server.world.add_snapshot(name.replace("_", "-"), PROJECT, disk, **fields)
    for name, region, more in (("by-the-hour", US, {}), ("of-six", US, {"ipVersion": "IPV6"}), ("far", EU, {})):
        server.world.add_address(name, PROJECT, region, **more)

    file = tmp_path / "prices.json"
    known = priced(server, price_file=str(file)).shelves()
    offline = adapter(server, settings={"price_file": str(file)}).shelves()

    found = {one.name: one.monthly_usd for shelf in known for one in shelf.leftovers}
    assert found == {
        "stored": pytest.approx(0.65), "by-the-hour": pytest.approx(7.3),
        **dict.fromkeys(("elsewhere", "not-told", "still-counted", "archived", "of-nothing", "of-six", "far"), None),
    }  # fmt: skip
    assert offline == known


@pytest.mark.parametrize(
    "change",
    [{"pricingInfo": []}, {"pricingInfo": [{}]}, {"category": {}}, {"category": {"usageType": "Commit1Yr", "resourceGroup": "GPU"}}, {"serviceRegions": []}],
    ids=["no_price", "an_empty_one", "no_category", "a_commitment", "nowhere"],
)
def test_what_is_not_understood_is_no_price(change: dict[str, Any]) -> None:
    beside, found = Beside(), Rates()
    beside.add_sku("Nvidia L4 GPU running in Americas", "GPU", 0.5, US)
    rates_of([{**beside.skus[0], **change}], found)

    assert found == {}


@pytest.mark.parametrize(("unit", "currency", "usd"), [("GiBy.h", "USD", 0.5), ("mo", "USD", 0.5), ("h", "EUR", 0.5), ("h", "USD", 0.0), ("h", "USD", 99_999.0)])
def test_another_unit_another_currency_and_no_amount_are_no_price(unit: str, currency: str, usd: float) -> None:
    beside, found = Beside(), Rates()
    beside.add_sku("Nvidia L4 GPU running in Americas", "GPU", usd, US, unit=unit)
    beside.skus[0]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["currencyCode"] = currency
    rates_of(beside.skus, found)

    assert found == {}


def test_of_two_prices_for_the_same_the_dearer_one_counts() -> None:
    beside, found = Beside(), Rates()
    for usd in (0.5, 0.7, 0.6):
        beside.add_sku("Nvidia L4 GPU running in Americas", "GPU", usd, US)
    rates_of(beside.skus, found)

    assert found == {(US, "OnDemand", "gpu l4"): 0.7}
