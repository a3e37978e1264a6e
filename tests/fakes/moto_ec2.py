"""
moto's server over HTTP, as strict about stop and start as EC2 is.

moto alone stops one-time spot, instance-store and even terminated machines, keeps LaunchTime through a restart, and is
in `stopping` for no time; it knows no pages of disks and snapshots. Codes are EC2's own; texts differ. Server and test share a process, so a test can also reach
into the backend. Every call that reaches the server is recorded.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import boto3
import botocore.session
import moto.ec2.models.instances as models
import moto.ec2.responses.instances as responses
from moto.core.exceptions import AccessDeniedError
from moto.core.responses import ActionResult, BaseResponse
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_block_store import EBSBackend
from moto.ec2.models.instance_types import INSTANCE_TYPES, InstanceType, InstanceTypeBackend
from moto.ec2.models.instances import StateReason
from moto.ec2.responses.elastic_block_store import ElasticBlockStore
from moto.server import ThreadedMotoServer
from moto.sts.responses import TokenResponse

ACCOUNT = "123456789012"  # moto's own
AMI = "ami-12c6146b"  # one of moto's own, so that it does not look through 1,300
_LOADER = botocore.session.Session().get_component("data_loader")
MUTATING_WORDS = ("Stop", "Start", "Terminate", "Modify", "Create", "Delete", "Run", "Reboot", "Attach", "Detach", "Associate", "Put")


@dataclass
class MotoEc2:
    """
    ``calls``: (region, action) in the order they arrived. ``stopping_reads``: listings for which a stop stays `stopping`.
    ``pending_reads``: listings for which a new snapshot stays `pending`. ``bounce_with``: the state reason with which the next
    start falls back to stopped. ``roles``: ARNs that may be assumed, each with the external id that it asks for; None: any, as moto has it.
    """

    url: str
    calls: list[tuple[str, str]] = field(default_factory=list)
    stopping_reads: int = 0
    pending_reads: int = 0
    bounce_with: str | None = None
    roles: dict[str, str | None] | None = None
    clients: dict[tuple[str, str], Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def actions(self, region: str | None = None) -> list[str]:
        return [action for where, action in self.calls if region in (None, where)]

    def mutations(self) -> list[str]:
        return [action for action in self.actions() if action.startswith(MUTATING_WORDS)]

    def session(self) -> "boto3.session.Session":
        """A new one with credentials of its own; only the parsed service models are shared, which take 0.2 s each time."""
        plain = botocore.session.Session()
        plain.register_component("data_loader", _LOADER)
        return boto3.session.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1", botocore_session=plain
        )

    def client(self, region: str = "us-east-1", account: str = ACCOUNT, service: str = "ec2") -> Any:
        """A client of somebody else's in an account."""
        if (region, account + service) not in self.clients:
            session = self.session()
            if account != ACCOUNT:
                roles, self.roles = self.roles, None
                sts = session.client("sts", region_name=region, endpoint_url=self.url)
                given = sts.assume_role(RoleArn=f"arn:aws:iam::{account}:role/test", RoleSessionName="test")["Credentials"]
                self.roles = roles
                session = boto3.session.Session(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
            self.clients[(region, account + service)] = session.client(service, region_name=region, endpoint_url=self.url)
        return self.clients[(region, account + service)]

    def backend(self, region: str = "us-east-1", account: str = ACCOUNT) -> Any:
        return ec2_backends[account][region]

    def machine(self, native: str, region: str = "us-east-1", account: str = ACCOUNT) -> Any:
        """moto's own object, to age or change it behind the API's back."""
        return self.backend(region, account).get_instance(native)

    def launch(
        self, name: str = "m", *, region: str = "us-east-1", type: str = "g5.xlarge", spot: str | None = None, account: str = ACCOUNT,
        more: dict[str, Any] | None = None, **tags: str,
    ) -> str:  # fmt: skip
        """A running machine's native id. ``spot``: "one-time" or "persistent". ``more``: of RunInstances. Leaves no trace in ``calls``."""
        extra: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
        extra |= more or {}
        named = [{"Key": key, "Value": value} for key, value in {"Name": name, **tags}.items()]
        answer = self.client(region, account).run_instances(
            ImageId=AMI, InstanceType=type, MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": named}], **extra
        )
        native = str(answer["Instances"][0]["InstanceId"])
        if spot:
            self.machine(native, region, account).spot_type = spot
        self.calls.clear()
        return native

    def do(self, action: str, region: str = "us-east-1", account: str = ACCOUNT, service: str = "ec2", **arguments: Any) -> Any:
        """Somebody else's call. Leaves no trace in ``calls``."""
        answer = getattr(self.client(region, account, service), action)(**arguments)
        self.calls.clear()
        return answer

    def reset(self) -> None:
        for backends in ec2_backends.values():
            for backend in backends.values():
                backend.reservations.clear()  # only what tests made: a fresh region takes moto a quarter of a second
                _forget_storage(backend)
        self.calls.clear()
        self.stopping_reads = self.pending_reads = 0
        self.bounce_with = None
        self.roles = None


@contextlib.contextmanager
def strict_server() -> Iterator[MotoEc2]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    moto = MotoEc2(f"http://{host}:{port}")
    moto.reset()  # moto's backends belong to the process: whoever had a server before may have left machines
    try:
        with _patched(moto):
            yield moto
    finally:
        server.stop()
        moto.reset()


@contextlib.contextmanager
def _patched(moto: MotoEc2) -> Iterator[None]:
    replaced: list[tuple[type, str, Callable[..., Any]]] = []

    def replace(owner: type, name: str, new: Callable[..., Any]) -> None:
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    call_action, describe = BaseResponse.call_action, responses.InstanceResponse.describe_instances

    def recorded(self: Any) -> Any:
        with moto.lock:
            moto.calls.append((self.region, self._get_action()))
        return call_action(self)

    def settled(self: Any) -> Any:
        for reservation in self.ec2_backend.reservations.values():
            for machine in reservation.instances:
                _settle(machine)
        return describe(self)

    # GPU types without local disks, which moto's table no longer has; facts as EC2 published them.
    for name, count in (("p3.2xlarge", 1), ("p3.16xlarge", 8)):
        plain = {k: v for k, v in INSTANCE_TYPES["p3dn.24xlarge"].items() if k != "InstanceStorageInfo"}
        gpu = {**plain["GpuInfo"]["Gpus"][0], "Count": count, "LogicalGpuCount": count}
        if name not in INSTANCE_TYPES:
            INSTANCE_TYPES[name] = {**plain, "InstanceType": name, "InstanceStorageSupported": False, "GpuInfo": {"Gpus": [gpu]}}
            InstanceTypeBackend.instance_types.append(InstanceType(name))
    assume = TokenResponse.assume_role

    def trusting(self: Any) -> Any:
        arn, given = self._get_param("RoleArn"), self._get_param("ExternalId")
        if moto.roles is not None and (arn not in moto.roles or moto.roles[arn] not in (None, given)):
            raise AccessDeniedError(user_arn="arn:aws:iam::123456789012:user/test", action="sts:AssumeRole")
        return assume(self)

    replace(TokenResponse, "assume_role", trusting)
    replace(BaseResponse, "call_action", recorded)
    replace(responses.InstanceResponse, "describe_instances", settled)
    replace(models.InstanceBackend, "stop_instances", lambda self, ids: _stop(self, ids, moto.stopping_reads))
    replace(models.InstanceBackend, "start_instances", lambda self, ids: _start(self, ids, moto))
    hibernating, snapshots = responses.InstanceResponse.stop_instances, EBSBackend.describe_snapshots

    def stop_or_hibernate(self: Any) -> Any:
        if self._get_bool_param("Hibernate"):
            for machine in self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", [])):
                if str((machine.hibernation_options or {}).get("Configured")).lower() != "true":
                    raise EC2ClientError("UnsupportedHibernationConfiguration", f"The instance '{machine.id}' was not launched with hibernation.")
        return hibernating(self)

    def slowly(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = snapshots(self, *args, **kwargs)
        for one in found:
            one.reads_left = getattr(one, "reads_left", moto.pending_reads + 1) - 1
            one.status = "completed" if one.reads_left <= 0 else "pending"
        return found

    for operation, key in (("describe_volumes", "Volumes"), ("describe_snapshots", "Snapshots")):
        replace(ElasticBlockStore, operation, _page_by_page(getattr(ElasticBlockStore, operation), key))
    replace(responses.InstanceResponse, "stop_instances", stop_or_hibernate)
    replace(EBSBackend, "describe_snapshots", slowly)
    try:
        yield
    finally:
        for owner, name, old in reversed(replaced):
            setattr(owner, name, old)


def _page_by_page(describe: Callable[..., Any], key: str) -> Callable[..., Any]:
    """moto answers with everything at once, and with everybody's snapshots where ours are asked for."""

    def answer(self: Any) -> Any:
        found = list(describe(self).result[key])
        if "self" in self._get_param("OwnerIds", []):
            found = [one for one in found if one.owner_id == self.current_account]
        start, size = int(self._get_param("NextToken") or 0), int(self._get_param("MaxResults") or 0) or len(found)
        more = {"NextToken": str(start + size)} if start + size < len(found) else {}
        return ActionResult({key: found[start : start + size], **more})

    return answer


def _forget_storage(backend: Any) -> None:
    backend.volumes.clear()
    backend.attachments.clear()
    backend.addresses.clear()
    for kept in (backend.snapshots, backend.amis):
        for native in [native for native, one in kept.items() if one.owner_id == backend.account_id]:
            del kept[native]


def _stop(backend: Any, ids: list[str], stopping_reads: int) -> list[tuple[Any, Any]]:
    machines = list(backend.get_multi_instances_by_id(ids))
    for machine in machines:  # all or nothing, as EC2
        _require_stoppable(machine)
    answer = []
    for machine in machines:
        before = type(machine._state)(machine._state.name, machine._state.code)
        if before.name not in ("stopping", "stopped"):  # a second stop changes nothing
            machine.stop()
            machine.reads_until_stopped = stopping_reads
            if stopping_reads:
                machine._state.name, machine._state.code = "stopping", 64
        answer.append((machine, before))
    return answer


def _require_stoppable(machine: Any) -> None:
    if machine._state.name in ("shutting-down", "terminated"):
        raise EC2ClientError("IncorrectInstanceState", f"This instance '{machine.id}' is not in a state from which it can be stopped.")
    if machine.root_device_type == "instance-store":
        raise EC2ClientError("UnsupportedOperation", f"The instance '{machine.id}' does not have an 'ebs' root device type and cannot be stopped.")
    if machine.lifecycle == "spot" and getattr(machine, "spot_type", "one-time") == "one-time":
        raise EC2ClientError("UnsupportedOperation", f"You can't stop the Spot Instance '{machine.id}' because it is associated with a one-time Spot Instance request.")
    if machine.disable_api_stop is True:
        raise EC2ClientError("OperationNotPermitted", f"The instance '{machine.id}' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.")


def _start(backend: Any, ids: list[str], moto: MotoEc2) -> list[tuple[Any, Any]]:
    machines = list(backend.get_multi_instances_by_id(ids))
    for machine in machines:
        if machine._state.name in ("shutting-down", "terminated", "stopping"):
            raise EC2ClientError("IncorrectInstanceState", f"The instance '{machine.id}' is not in a state from which it can be started.")
    answer = []
    for machine in machines:
        before = type(machine._state)(machine._state.name, machine._state.code)
        if before.name == "stopped":
            machine.start()
            machine.launch_time = datetime.now(UTC)
            if moto.bounce_with is not None:  # accepted, and back to stopped: as a disk whose key may not be used does it
                machine.stop()
                machine.state_reason = StateReason("Client error on launch", moto.bounce_with)
                moto.bounce_with = None
        answer.append((machine, before))
    return answer


def _settle(machine: Any) -> None:
    if machine._state.name != "stopping":
        return
    machine.reads_until_stopped -= 1
    if machine.reads_until_stopped < 0:
        machine._state.name, machine._state.code = "stopped", 80
