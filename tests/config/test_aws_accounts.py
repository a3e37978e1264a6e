"""Accounts by their roles, as an operator writes them."""

from typing import Any

import pytest

import reaper.config
from reaper.errors import ConfigurationError
from reaper.model.policy import AwsAccount
from tests.config.documents import minimal

TWO = ["111122223333", "444455556666"]
HUB = "arn:aws:iam::999988887777:role/hub"


def accounts_of(**aws: Any) -> tuple[AwsAccount, ...]:
    configuration = reaper.config.parse({**minimal(), "clouds": {"aws": aws}}, "test")
    assert configuration.aws is not None
    return configuration.aws.accounts


def test_a_role_is_assumed_in_every_account_and_an_exception_wins() -> None:
    special = {"role": "none", "regions": ["eu-west-1"], "owner": "eva", "project": "eval", "environment": "lab"}

    got = accounts_of(accounts=TWO, role="idle-reaper", external_id="ml-7", session_name="r-1", via=[HUB], account={"444455556666": special})

    assert got == (
        AwsAccount("111122223333", role="idle-reaper", external_id="ml-7", session_name="r-1", via=(HUB,)),
        AwsAccount("444455556666", session_name="r-1", regions=("eu-west-1",), owner="eva", project="eval", environment="lab"),
    )


def test_a_role_of_its_own_may_be_a_whole_arn() -> None:
    arn = "arn:aws:iam::444455556666:role/ops/idle-reaper"

    assert [a.role for a in accounts_of(accounts=TWO, account={"444455556666": {"role": arn}})] == [None, arn]


@pytest.mark.parametrize(("aws", "problem"), [
    ({"accounts": TWO}, "clouds.aws.role: accounts 111122223333, 444455556666 have no role"),
    ({"accounts": TWO, "role": "none"}, "have no role, and the credentials at hand belong to one account only"),
    ({"accounts": TWO, "role": "arn:aws:iam::111122223333:role/r"}, "clouds.aws.role: is a role of account 111122223333 and not of 444455556666"),
    ({"role": "idle-reaper"}, "clouds.aws.role: is a role in no account"),
    ({"accounts": TWO[:1], "external_id": "ml-7"}, "clouds.aws.external_id: means nothing without a role"),
    ({"accounts": TWO[:1], "via": [HUB]}, "clouds.aws.via: means nothing without a role"),
    ({"accounts": TWO, "role": "r", "via": ["hub"]}, 'clouds.aws.via[0]: "hub" is not the ARN of a role'),
    ({"accounts": TWO, "role": "a role"}, 'clouds.aws.role: "a role" is not the name of a role'),
    ({"accounts": TWO, "role": "r", "session_name": "x y"}, "is not a session name"),
    ({"accounts": TWO, "role": "r", "external_id": "x"}, "clouds.aws.external_id: is not an external id"),
    ({"accounts": TWO[:1], "account": {"444455556666": {"role": "r"}}}, "is not among accounts; add"),
    ({"accounts": TWO[:1], "account": {"12": {}}}, "is not an AWS account"),
])  # fmt: skip
def test_accounts_that_cannot_be_reached_are_refused(aws: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        accounts_of(**aws)

    assert problem in "\n".join(refused.value.problems)
