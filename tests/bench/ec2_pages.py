"""
A canned EC2 endpoint that costs nothing itself: pages of DescribeInstances made beforehand, and the few other answers a listing
asks for. `python -m tests.bench.ec2_pages COUNT` prints its port and serves until its standard input closes.

An entry is as long as EC2's own for a GPU machine with one interface, two disks and ten tags (about 3.5 KB).
"""

import json
import sys
import threading
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ACCOUNT, REGION, PAGE = "123456789012", "us-east-1", 1000
TYPES = (("p3.2xlarge", "V100", 1), ("p3.16xlarge", "V100", 8), ("g5g.xlarge", "T4g", 1))
_NS = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def entry(n: int) -> str:
    native, type_ = f"i-{n:017x}", TYPES[n % len(TYPES)][0]
    tags = "".join(
        f"<item><key>{key}</key><value>{value}</value></item>"
        for key, value in [
            ("Name", f"trainer-{n}"), ("team", "ml"), ("owner", f"user-{n % 97}@example.org"), ("phase", ("exploration", "training", "evaluation")[n % 3]),
            ("project", f"project-{n % 41}"), ("environment", "research"), ("cost-centre", f"cc-{n % 13}"), ("created-by", "terraform"),
            ("aws:ec2launchtemplate:id", "lt-0123456789abcdef0"), ("aws:ec2launchtemplate:version", "7"),
        ]
    )  # fmt: skip
    disks = "".join(
        f"<item><deviceName>/dev/sd{letter}</deviceName><ebs><volumeId>vol-{n:016x}{letter}</volumeId><status>attached</status>"
        "<attachTime>2026-11-02T08:14:11.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></ebs></item>"
        for letter in "ab"
    )
    address = f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"
    nic = (
        f"<item><networkInterfaceId>eni-{n:017x}</networkInterfaceId><subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>"
        f"<description/><ownerId>{ACCOUNT}</ownerId><status>in-use</status><macAddress>0a:ff:c2:00:00:01</macAddress><privateIpAddress>{address}</privateIpAddress>"
        f"<privateDnsName>ip-{address.replace('.', '-')}.ec2.internal</privateDnsName><sourceDestCheck>true</sourceDestCheck>"
        "<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>trainers</groupName></item></groupSet>"
        f"<attachment><attachmentId>eni-attach-{n:017x}</attachmentId><deviceIndex>0</deviceIndex><networkCardIndex>0</networkCardIndex><status>attached</status>"
        "<attachTime>2026-11-02T08:14:10.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></attachment>"
        f"<privateIpAddressesSet><item><privateIpAddress>{address}</privateIpAddress><primary>true</primary></item></privateIpAddressesSet>"
        "<ipv6AddressesSet/><interfaceType>interface</interfaceType><operator><managed>false</managed></operator></item>"
    )
    return (
        f"<item><reservationId>r-{n:017x}</reservationId><ownerId>{ACCOUNT}</ownerId><groupSet/><instancesSet><item><instanceId>{native}</instanceId>"
        "<imageId>ami-0123456789abcdef0</imageId><instanceState><code>16</code><name>running</name></instanceState>"
        f"<privateDnsName>ip-{address.replace('.', '-')}.ec2.internal</privateDnsName><dnsName/><reason/><keyName>ml</keyName><amiLaunchIndex>0</amiLaunchIndex>"
        f"<productCodes/><instanceType>{type_}</instanceType><launchTime>2026-11-02T08:14:10.000Z</launchTime>"
        f"<placement><availabilityZone>{REGION}a</availabilityZone><groupName>{'train-' + str(n // 8) if n % 5 == 0 else ''}</groupName><tenancy>default</tenancy></placement>"
        f"<monitoring><state>disabled</state></monitoring><subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>"
        f"<privateIpAddress>{address}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>"
        "<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>trainers</groupName></item></groupSet>"
        "<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/sda1</rootDeviceName>"
        f"<blockDeviceMapping>{disks}</blockDeviceMapping><virtualizationType>hvm</virtualizationType><clientToken>0a1b2c3d-{n:012x}</clientToken>"
        f"<tagSet>{tags}</tagSet><hypervisor>xen</hypervisor><networkInterfaceSet>{nic}</networkInterfaceSet>"
        "<iamInstanceProfile><arn>arn:aws:iam::123456789012:instance-profile/trainer</arn><id>AIPA0123456789ABCDEF0</id></iamInstanceProfile>"
        "<ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport><cpuOptions><coreCount>4</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>"
        "<capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference></capacityReservationSpecification>"
        "<hibernationOptions><configured>false</configured></hibernationOptions><enclaveOptions><enabled>false</enabled></enclaveOptions>"
        "<metadataOptions><state>applied</state><httpTokens>required</httpTokens><httpPutResponseHopLimit>2</httpPutResponseHopLimit>"
        "<httpEndpoint>enabled</httpEndpoint><httpProtocolIpv6>disabled</httpProtocolIpv6><instanceMetadataTags>disabled</instanceMetadataTags></metadataOptions>"
        "<platformDetails>Linux/UNIX</platformDetails><usageOperation>RunInstances</usageOperation><usageOperationUpdateTime>2026-11-02T08:14:10.000Z</usageOperationUpdateTime>"
        "<privateDnsNameOptions><hostnameType>ip-name</hostnameType><enableResourceNameDnsARecord>false</enableResourceNameDnsARecord>"
        "<enableResourceNameDnsAAAARecord>false</enableResourceNameDnsAAAARecord></privateDnsNameOptions><maintenanceOptions><autoRecovery>default</autoRecovery></maintenanceOptions>"
        "<currentInstanceBootMode>uefi</currentInstanceBootMode><operator><managed>false</managed></operator></item></instancesSet></item>"
    )


def pages(count: int) -> list[bytes]:
    made = []
    for begin in range(0, count, PAGE):
        end = min(begin + PAGE, count)
        token = f"<nextToken>{end // PAGE}</nextToken>" if end < count else ""
        items = "".join(entry(n) for n in range(begin, end))
        made.append(f"<DescribeInstancesResponse {_NS}><requestId>r</requestId><reservationSet>{items}</reservationSet>{token}</DescribeInstancesResponse>".encode())
    return made or [f"<DescribeInstancesResponse {_NS}><reservationSet/></DescribeInstancesResponse>".encode()]


def others() -> dict[str, bytes]:
    types = "".join(
        f"<item><instanceType>{name}</instanceType><instanceStorageSupported>false</instanceStorageSupported>"
        f"<gpuInfo><gpus><item><name>{model}</name><count>{count}</count></item></gpus></gpuInfo></item>"
        for name, model, count in TYPES
    )
    who = f"<GetCallerIdentityResult><Account>{ACCOUNT}</Account></GetCallerIdentityResult>"
    return {
        "DescribeInstanceTypes": f"<R {_NS}><instanceTypeSet>{types}</instanceTypeSet></R>".encode(),
        "GetCallerIdentity": f'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{who}</GetCallerIdentityResponse>'.encode(),
    }


def serve(count: int) -> None:
    listing, rest, calls = pages(count), others(), Counter[str]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            action = asked["Action"][0]
            calls[action] += 1
            body = listing[int(asked.get("NextToken", ["0"])[0])] if action == "DescribeInstances" else rest.get(action)
            self._answer(200 if body is not None else 500, body or b"<R/>", "text/xml")

        def do_GET(self) -> None:
            """What was asked since the last time."""
            body = json.dumps(calls).encode()
            calls.clear()
            self._answer(200, body, "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
