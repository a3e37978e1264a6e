from collections.abc import Callable, Iterator

import pytest

from reaper.clock import SystemClock
from reaper.clouds.aws.clients import Bounds
from reaper.clouds.aws.cloud import AwsCloud
from reaper.model import policy
from reaper.model.resource import ResourceId
from tests.fakes.faults import Faults
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2, strict_server

FAST = Bounds(connect_s=2, read_s=5, read_attempts=2)


@pytest.fixture(scope="package")  # not longer: the patches and machines of two servers in one process would mix
def _server() -> Iterator[MotoEc2]:
    with strict_server() as moto:
        yield moto


@pytest.fixture
def moto(_server: MotoEc2) -> Iterator[MotoEc2]:
    yield _server
    _server.reset()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def make_cloud(moto: MotoEc2, faults: Faults) -> Callable[..., AwsCloud]:
    def make(
        *regions: str, account: str | None = None, accounts: tuple[policy.AwsAccount, ...] = (), endpoint: str | None = None,
        bounds: Bounds = FAST, price_list: bool = False, price_file: str | None = None, **more: object,
    ) -> AwsCloud:  # fmt: skip
        accounts = (policy.AwsAccount(account),) if account else accounts
        settings = policy.AwsCloud(regions=regions, endpoint=endpoint or moto.url, accounts=accounts, price_list=price_list, price_file=price_file)
        more = {"clock": SystemClock(), "session": lambda: faults.install(moto.session()), "prepared": faults.install, **more}
        return AwsCloud(settings, bounds=bounds, **more)  # type: ignore[arg-type]

    return make


@pytest.fixture
def cloud(make_cloud: Callable[..., AwsCloud]) -> AwsCloud:
    return make_cloud("us-east-1")


def rid(native: str, region: str = "us-east-1", account: str = ACCOUNT) -> ResourceId:
    return ResourceId("aws", account, region, "instance", native)
