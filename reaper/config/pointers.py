"""
Values that point at something elsewhere: instances, tags, accounts, regions, folders, addresses.

None of them guesses: an id without its leading zero is another id, and a name or a pattern would quietly select
nothing. Addresses of channels are secrets and stand in no message.
"""

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from reaper.config.values import Unreadable, shown, text
from reaper.model.resource import ResourceId

_REGION = re.compile(r"^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$")
_ACCOUNT = re.compile(r"^[0-9]{12}$")
_PROJECT = re.compile(r"^([a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$")
_PARENT = re.compile(r"^(folders|organizations)/[0-9]{1,19}$")
_GCP_REGION = re.compile(r"^[a-z]+-[a-z]+[0-9]{1,2}$")
_GCP_ZONE = re.compile(r"^[a-z]+-[a-z]+[0-9]{1,2}-[a-z][a-z0-9]{0,5}$")
_SERVICE_ACCOUNT = re.compile(r"^([a-z0-9-]|\{project\})+@([a-z0-9.-]|\{project\})+\.gserviceaccount\.com$")
_NATIVE = re.compile(r"^(i-[0-9a-z]{1,32}|[0-9]{1,32})$")
_TYPE = re.compile(r"^[a-z0-9-]+(\.[a-z0-9-]+)?$")
_ROLE = re.compile(r"^([!-.0-~]+/)*[A-Za-z0-9_+=,.@-]{1,64}$")
_ROLE_ARN = re.compile(r"^arn:(aws|aws-cn|aws-us-gov):iam::([0-9]{12}):role/([!-~]+/)?[A-Za-z0-9_+=,.@-]{1,64}$")
_EXTERNAL_ID = re.compile(r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")
_SESSION = re.compile(r"^[A-Za-z0-9_+=,.@-]{2,64}$")
_ENV = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


NO_ROLE = "none"
"""Written for an account whose credentials are at hand, where the others are reached by a role."""


def instance_id(value: object) -> str:
    """A whole resource id or a native one. A name is refused: it would quietly select nothing."""
    remedy = 'write "aws:123456789012:eu-west-1:instance:i-0abc" or "i-0abc", in quotes'
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not text, and a leading zero counts", remedy)
    if ":" not in value:
        if not _NATIVE.fullmatch(value):
            raise Unreadable(f"{shown(value)} is not an id", f"{remedy}; names and patterns are not ids")
        return value
    try:
        parsed = ResourceId.parse(value)
    except ValueError:
        raise Unreadable(f"{shown(value)} is not an id", remedy) from None
    if parsed.cloud not in ("aws", "gcp") or parsed.kind != "instance":
        raise Unreadable(f"{shown(value)}: only instances of AWS and Google Cloud are available in this version", "remove it")
    if parsed.cloud == "gcp":
        if not _PROJECT.fullmatch(parsed.account) or not _GCP_ZONE.fullmatch(parsed.place) or not parsed.native.isdigit():
            known = 'write "gcp:project-id:us-central1-a:instance:1234567890", with the numeric id, in quotes'
            raise Unreadable(f"{shown(value)} has a project, a zone or an instance that cannot exist", known)
        return value
    if not _ACCOUNT.fullmatch(parsed.account) or not _REGION.fullmatch(parsed.place) or not _NATIVE.fullmatch(parsed.native):
        raise Unreadable(f"{shown(value)} has an account, a region or an instance that cannot exist", remedy)
    return value


def instance_type(value: object) -> str:
    if not isinstance(value, str) or not _TYPE.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not an instance type", 'write it in quotes, as "p5.48xlarge"; patterns are not understood')
    return value


def tag_key(value: object) -> str:
    word = text(value)
    if "*" in word or len(word) > 128:
        raise Unreadable(f"{shown(word)} is not a tag key", "write the whole key, at most 128 characters; patterns are not understood")
    return word


def tag_value(value: object) -> str:
    if not isinstance(value, str):
        raise Unreadable(f"{shown(value)} is not text, as the values of tags are", "write it in quotes")
    word = text(value)
    if "*" in word or len(word) > 256:
        raise Unreadable(f"{shown(word)} is not a tag value", "write the whole value, at most 256 characters; patterns are not understood")
    return word


def claim(value: object) -> tuple[str, str]:
    """``"key=value"``: the tag that says which reaper may act."""
    if not isinstance(value, str) or value.count("=") != 1:
        raise Unreadable(f"{shown(value)} is not a tag", 'write key and value, as "reaper=ml-platform"')
    key, _, tag = value.partition("=")
    return tag_key(key), tag_value(tag)


def gang_rule(value: object) -> str:
    """``"placement-group"`` or ``"tag:KEY"``."""
    if value == "placement-group":
        return "placement-group"
    if isinstance(value, str) and value.startswith("tag:"):
        return f"tag:{tag_key(value[4:])}"
    raise Unreadable(f"{shown(value)} does not say what machines of one job share", 'write "tag:KEY" or "placement-group"')


def owner_rule(value: object) -> str:
    """``"tag:KEY"`` or ``"label:KEY"``."""
    if isinstance(value, str) and value.startswith(("tag:", "label:")):
        prefix, _, key = value.partition(":")
        return f"{prefix}:{tag_key(key)}"
    raise Unreadable(f"{shown(value)} does not say where the owner stands", 'write "tag:KEY", as "tag:owner"')


def account(value: object) -> str:
    if not isinstance(value, str) or not _ACCOUNT.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not an AWS account", 'write its twelve digits in quotes, as "012345678901"; a leading zero counts')
    return value


def region(value: object) -> str:
    if not isinstance(value, str) or not _REGION.fullmatch(value):
        hint = f" (that is a zone of {value[:-1]})" if isinstance(value, str) and _REGION.fullmatch(value[:-1]) else ""
        raise Unreadable(f"{shown(value)} is not an AWS region{hint}", 'write it as "us-east-1"')
    return value


def role(value: object) -> str:
    """A role's name, with its path where it has one; its whole ARN; or "none"."""
    if isinstance(value, str) and value.startswith("arn:"):
        return role_arn(value)
    if not isinstance(value, str) or not _ROLE.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not the name of a role", 'write it as "idle-reaper", with its path where it has one, or "none"')
    return value


def role_arn(value: object) -> str:
    if not isinstance(value, str) or not _ROLE_ARN.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not the ARN of a role", 'write it as "arn:aws:iam::123456789012:role/hub"')
    return value


def account_of_role(arn: str) -> str:
    """The account in a role's ARN that `role_arn` took."""
    return arn.split(":")[4]


def external_id(value: object) -> str:
    if not isinstance(value, str) or not _EXTERNAL_ID.fullmatch(value):
        raise Unreadable("is not an external id", "write 2 to 1224 letters, digits or any of _+=,.@:/-, in quotes")
    return value


def session_name(value: object) -> str:
    if not isinstance(value, str) or not _SESSION.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not a session name", "write 2 to 64 letters, digits or any of _+=,.@-, in quotes")
    return value


def project(value: object) -> str:
    """A project's id, with its domain where it has one. Its number is refused: agents and listings know it by its id."""
    if not isinstance(value, str) or not _PROJECT.fullmatch(value):
        hint = " but its number" if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else ""
        raise Unreadable(f"{shown(value)} is not the id of a Google Cloud project{hint}", 'write it as "ml-research", in quotes')
    return value


def gcp_parent(value: object) -> str:
    if not isinstance(value, str) or not _PARENT.fullmatch(value):
        raise Unreadable(f"{shown(value)} is no folder or organisation of Google Cloud", 'write it as "folders/123456789012" or "organizations/123456789012"')
    return value


def gcp_zone(value: object) -> str:
    if not isinstance(value, str) or not _GCP_ZONE.fullmatch(value):
        hint = " (that is a region; write its zones)" if isinstance(value, str) and _GCP_REGION.fullmatch(value) else ""
        raise Unreadable(f"{shown(value)} is not a zone of Google Cloud{hint}", 'write it as "us-central1-a"')
    return value


def service_account(value: object) -> str:
    if not isinstance(value, str) or not _SERVICE_ACCOUNT.fullmatch(value):
        raise Unreadable(
            f"{shown(value)} is not a service account",
            'write its address, as "idle-reaper@ops.iam.gserviceaccount.com"; "{project}" in it stands for the project',
        )
    return value


def scratch_path(value: object) -> str:
    word = text(value)
    if not word.startswith("/") or word.strip("/") == "" or ".." in word.split("/") or "*" in word:
        raise Unreadable(f"{shown(word)} is not a folder whose content may go", 'write one absolute path, as "/opt/dlami/nvme"')
    return word.rstrip("/")


def absolute(value: object) -> str:
    word = text(value)
    if not word.startswith("/") or word.endswith("/") or ".." in word.split("/"):
        raise Unreadable(f"{shown(word)} is not the absolute path of a file", 'write it as "/var/lib/idle-reaper/prices.json"')
    return word


def endpoint(value: object) -> str:
    """An http or https address without credentials."""
    parts = _split(value)
    if parts is None or parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise Unreadable("is not an address", 'write it as "http://127.0.0.1:5000", without a password')
    return str(value)


def webhook(value: object) -> str:
    """An https address, or http on this very machine. The value is a secret and is in no message."""
    remedy = 'write an address that begins with "https://"'
    parts = _split(value)
    if parts is None or not isinstance(value, str):
        raise Unreadable("is not an address (not shown, it is a secret)", remedy)
    if parts.scheme == "http" and not loopback(value):
        raise Unreadable("would send the secret address in the clear (not shown)", remedy)
    return value


def secret_file(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "://" in value or not value.isprintable():
        raise Unreadable("is not an absolute path (not shown, it may be a secret)", 'write it as "/run/secrets/webhook"')
    return value


def secret_env(value: object) -> str:
    if not isinstance(value, str) or not _ENV.fullmatch(value):
        raise Unreadable("is not the name of an environment variable (not shown, it may be a secret)", 'write it as "WEBHOOK_URL"')
    return value


def loopback(url: str) -> bool:
    """Whether an address can only mean this machine."""
    parts = _split(url)
    host = parts.hostname if parts is not None else None
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _split(value: object) -> SplitResult | None:
    """The parts of an http or https address with a host; None for anything else."""
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return None
    try:
        parts = urlsplit(value)
        _ = parts.port  # raises on a port that is no number
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None
