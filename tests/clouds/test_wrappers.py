"""The objects around a cloud: those that take verbs away, and the one that counts."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from reaper.clouds.instrumented import InstrumentedCloud
from reaper.clouds.readonly import OnlyVerbs, ReadOnlyCloud
from reaper.errors import AnswerLost, CloudError, Denied, ReadOnly
from reaper.metrics import Metrics
from reaper.model.kinds.instance import Instance, InstanceState, Protections
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud, Listed, Shelf
from tests.clouds.conftest import rid

NOW = datetime(2026, 11, 30, tzinfo=UTC)
RESOURCE = rid("i-0abc")
MACHINE = Instance(id=RESOURCE, type="g5.xlarge", state=InstanceState.RUNNING)


class FakeCloud:
    """Answers or raises what it is told."""

    name = "aws"

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.error: Exception | None = None
        self.listed = (Listed(Place("aws", "1", "a"), instances=(MACHINE,)), Listed(Place("aws", "1", "b"), failed="no"))
        self.protection = Protections(stop_protected=False)

    def _did(self, what: str) -> None:
        self.sent.append(what)
        if self.error is not None:
            raise self.error

    def list(self) -> tuple[Listed, ...]:
        self._did("list")
        return self.listed

    def get(self, resource: ResourceId) -> Instance:
        self._did("get")
        return MACHINE

    def protections(self, resource: ResourceId) -> Protections:
        self._did("protections")
        return self.protection

    def stop(self, resource: ResourceId) -> None:
        self._did("stop")

    def start(self, resource: ResourceId) -> None:
        self._did("start")

    def shelves(self) -> tuple[Shelf, ...]:
        self._did("shelves")
        return (Shelf(Place("aws", "1", "a")),)

    def skew(self, now: datetime) -> timedelta | None:
        return timedelta(seconds=3)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def fake() -> FakeCloud:
    return FakeCloud()


@pytest.mark.parametrize("wrap", [ReadOnlyCloud, lambda c: OnlyVerbs(c, ["stop", "start"]), lambda c: InstrumentedCloud(c, Metrics())])
def test_reads_pass_through_every_wrapper(fake: FakeCloud, wrap: Callable[[Cloud], Cloud]) -> None:
    cloud = wrap(fake)

    assert cloud.name == "aws"
    assert cloud.list() == fake.listed
    assert cloud.get(RESOURCE) == MACHINE
    assert cloud.protections(RESOURCE) == fake.protection
    assert cloud.skew(NOW) == timedelta(seconds=3)
    assert [shelf.place.name for shelf in cloud.shelves()] == ["a"]


@pytest.mark.parametrize(
    ("wrap", "passing"),
    [
        (ReadOnlyCloud, []),
        (lambda c: OnlyVerbs(c, []), []),
        (lambda c: OnlyVerbs(c, ["stop"]), ["stop"]),
        (lambda c: OnlyVerbs(c, ["start", "snapshot"]), ["start"]),
        (lambda c: InstrumentedCloud(c, Metrics()), ["stop", "start"]),
    ],
    ids=["read only", "no verb", "stop only", "start only", "counted"],
)
def test_only_the_verbs_that_are_there_are_sent(fake: FakeCloud, wrap: Callable[[Cloud], Cloud], passing: list[str]) -> None:
    cloud = wrap(fake)
    for verb in ("stop", "start"):
        if verb in passing:
            getattr(cloud, verb)(RESOURCE)
        else:
            with pytest.raises(ReadOnly, match=f"{verb} {RESOURCE} was not sent"):
                getattr(cloud, verb)(RESOURCE)

    assert fake.sent == passing


def test_calls_seconds_and_failed_places_are_counted(fake: FakeCloud) -> None:
    metrics = Metrics()
    cloud = InstrumentedCloud(fake, metrics)
    cloud.list()
    cloud.stop(RESOURCE)
    cloud.stop(RESOURCE)

    assert value(metrics, "reaper_cloud_calls_total", cloud="aws", method="list") == 1
    assert value(metrics, "reaper_cloud_calls_total", cloud="aws", method="stop") == 2
    assert value(metrics, "reaper_cloud_call_seconds_count", cloud="aws", method="stop") == 2
    assert value(metrics, "reaper_cloud_errors_total", cloud="aws", method="stop", kind="answerlost") is None
    assert value(metrics, "reaper_places", cloud="aws") == 2
    assert value(metrics, "reaper_places_failed", cloud="aws") == 1


@pytest.mark.parametrize("method", ["get", "protections", "stop", "start"])
@pytest.mark.parametrize(("error", "kind"), [(AnswerLost("x"), "answerlost"), (Denied("x"), "denied"), (KeyError("x"), "bug")])
def test_errors_pass_and_are_counted_by_kind(fake: FakeCloud, method: str, error: Exception, kind: str) -> None:
    metrics = Metrics()
    fake.error = error

    with pytest.raises(type(error)):
        getattr(InstrumentedCloud(fake, metrics), method)(RESOURCE)

    assert value(metrics, "reaper_cloud_errors_total", cloud="aws", method=method, kind=kind) == 1
    assert value(metrics, "reaper_cloud_calls_total", cloud="aws", method=method) == 1


def test_a_protection_that_could_not_be_read_counts_as_an_error(fake: FakeCloud) -> None:
    metrics = Metrics()
    fake.protection = Protections(stop_protected=None, because="denied")
    InstrumentedCloud(fake, metrics).protections(RESOURCE)

    assert value(metrics, "reaper_cloud_errors_total", cloud="aws", method="protections", kind="unreadable") == 1


def test_a_listing_that_failed_as_a_whole_leaves_no_figure_of_failed_places(fake: FakeCloud) -> None:
    metrics = Metrics()
    cloud = InstrumentedCloud(fake, metrics)
    cloud.list()
    fake.error = CloudError("no account")

    with pytest.raises(CloudError):
        cloud.list()

    failed = value(metrics, "reaper_places_failed", cloud="aws")
    assert failed is not None
    assert failed != failed  # NaN: not known
