"""
Sessions with the credentials of a role, taken when first needed and renewed before they run out.

A chain is a role assumed with the credentials of the role before it. AWS gives the sessions of a chain one hour at most,
so none is asked for longer.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reaper.clouds.aws.clients import HOME_REGION, home_of
from reaper.clouds.aws.permissions import HUB, Permission
from reaper.model.policy import AwsAccount

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.config import Config

NEEDS = (Permission("sts:AssumeRole", HUB, "reach the accounts by their roles", on="arn:{partition}:iam::*:role/{role}"),)

LIVES_S = 3600

Open = Callable[[], "Session"]


def role_arns(account: AwsAccount, region: str) -> tuple[str, ...]:
    """What has to be assumed, in order; nothing where the credentials at hand are the account's own."""
    if account.role is None:
        return ()
    last = account.role if account.role.startswith("arn:") else f"arn:{partition_of(region)}:iam::{account.id}:role/{account.role}"
    return (*account.via, last)


def partition_of(region: str) -> str:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html"""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def assuming(base: Open, account: AwsAccount, endpoint: str | None, config: "Callable[[], Config]") -> Open:
    """Opens sessions of the account's role, and of the process itself where it has none."""
    opened = base
    for step in range(0 if account.role is None else len(account.via) + 1):
        opened = _one(opened, account, step, endpoint, config)
    return opened


def _one(parent: Open, account: AwsAccount, step: int, endpoint: str | None, config: "Callable[[], Config]") -> Open:
    def open_session() -> "Session":
        import botocore.session
        from boto3.session import Session
        from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials

        above = parent()
        region = home_of(account.regions) or above.region_name or HOME_REGION
        arns = role_arns(account, region)
        asked: dict[str, Any] = {"RoleArn": arns[step], "RoleSessionName": account.session_name, "DurationSeconds": LIVES_S}
        if step == len(arns) - 1 and account.external_id is not None:  # the last role is the account's own, which asks for it
            asked["ExternalId"] = account.external_id
        made: list[Any] = []

        def fetch() -> dict[str, Any]:
            if not made:
                made.append(above.client("sts", region_name=region, endpoint_url=endpoint, config=config()))
            given = made[0].assume_role(**asked)["Credentials"]
            return {
                "access_key": given["AccessKeyId"],
                "secret_key": given["SecretAccessKey"],
                "token": given["SessionToken"],
                "expiry_time": given["Expiration"].isoformat(),
            }

        class Provider(CredentialProvider):
            METHOD = CANONICAL_NAME = "assume-role"

            def load(self) -> Any:
                return DeferredRefreshableCredentials(refresh_using=fetch, method=self.METHOD)

        core = botocore.session.Session()
        core.register_component("data_loader", above._session.get_component("data_loader"))  # read once, not once an account
        core.register_component("credential_provider", CredentialResolver([Provider()]))
        return Session(botocore_session=core, region_name=region)

    return open_session
