"""
A local EC2 API over HTTP (moto's server in a thread), and the guarantee that no other one is ever asked.

Nothing of the user's is changed: the environment is this process's own and is put back, no file outside the demo's
folder is written.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from reaper.demo.story import Machine, tags_of
from reaper.model.resource import ResourceId

REGION = "us-east-1"
HOW_TO_INSTALL = "The demo needs moto, a local EC2 API. Install it with: pip install 'idle-reaper[demo]' (in a checkout: pip install -e '.[demo]')"

_AMI = "ami-12c6146b"  # one of moto's own, so that it does not look through all of them
_OURS = ("AWS_", "BOTO", "MOTO_", "GOOGLE_", "CLOUDSDK_", "GCE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class NotInstalled(Exception):
    """moto, or what its server needs, is not there."""


@contextmanager
def only_local_credentials(folder: Path) -> Iterator[None]:
    """
    While this lasts no AWS or Google client of this process can find a real credential, profile, endpoint or proxy.

    Credentials in the environment come before every other place that boto3 looks at, and there is no file and no
    metadata service to look at either.
    """
    before = {key: value for key, value in os.environ.items() if key.upper().startswith(_OURS)}
    ours = {
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_CONFIG_FILE": str(folder / "no-aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": REGION,
    }
    for key in before:
        del os.environ[key]
    os.environ.update(ours)
    try:
        yield
    finally:
        for key in ours:
            os.environ.pop(key, None)
        os.environ.update(before)


class LocalEc2:
    """``url``: where it listens, on loopback. Raises NotInstalled."""

    def __init__(self) -> None:
        try:
            import boto3
            from botocore.config import Config
            from moto.server import ThreadedMotoServer
        except ImportError as error:
            raise NotInstalled(f"{HOW_TO_INSTALL} ({error.name} is missing)") from error
        self._requests = logging.getLogger("werkzeug")
        self._level = self._requests.level
        self._requests.setLevel(logging.ERROR)  # else it prints a line a request
        _forget_machines()
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        session = boto3.session.Session(aws_access_key_id="demo", aws_secret_access_key="demo", region_name=REGION)
        self._client: Any = session.client("ec2", endpoint_url=self.url, config=Config(proxies={}))
        self.account = str(session.client("sts", endpoint_url=self.url, config=Config(proxies={})).get_caller_identity()["Account"])

    def launch(self, machine: Machine) -> ResourceId:
        """A running machine with its tags, which has been running for its ``age``."""
        tags = [{"Key": key, "Value": value} for key, value in tags_of(machine).items()]
        answer = self._client.run_instances(
            ImageId=_AMI, InstanceType=machine.type, MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
        )
        native = str(answer["Instances"][0]["InstanceId"])
        _age(self.account, native, machine.age)
        return ResourceId("aws", self.account, REGION, "instance", native)

    def states(self) -> Mapping[str, str]:
        """Every machine's state by its name, in EC2's own words: what the demo is judged by."""
        found: dict[str, str] = {}
        for page in self._client.get_paginator("describe_instances").paginate():
            for instance in (i for reservation in page["Reservations"] for i in reservation["Instances"]):
                name = next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "Name")
                found[name] = instance["State"]["Name"]
        return found

    def close(self) -> None:
        self._server.stop()
        self._requests.setLevel(self._level)


def _forget_machines() -> None:
    """moto keeps its machines for the process's life: those of an earlier demo in it are not this one's."""
    from moto.ec2.models import ec2_backends

    ec2_backends.clear()


def _age(account: str, native: str, age: timedelta) -> None:
    """No API sets when a machine was started, so moto's own object is told."""
    from moto.ec2.models import ec2_backends

    ec2_backends[account][REGION].get_instance(native).launch_time -= age
