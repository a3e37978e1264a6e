import json
from argparse import ArgumentParser, Namespace
from datetime import timedelta

import pytest

from reaper.cli import token as command
from reaper.errors import UsageError
from reaper.model.audit import AuditKind
from reaper.model.resource import ResourceId
from reaper.service import tokens
from reaper.service.tokens import Verifier
from reaper.store import open_store
from reaper.wiring import open_state
from tests.service.door import HOST, START, Flaky


@pytest.fixture
def store():
    opened = open_store(":memory:")
    yield opened
    opened.close()


def test_issued_token_is_its_hosts(store):
    text = tokens.issue(store, HOST, START, "ada")

    assert tokens.verify(store, text, START).resource == HOST
    (entry,) = store.audit()
    assert (entry.kind, entry.actor, entry.resource) == (AuditKind.TOKEN, "ada", HOST)


def test_only_a_digest_is_kept(store):
    text = tokens.issue(store, HOST, START, "ada")
    secret = text.split("_", 2)[2]

    assert secret not in repr(store.tokens()) + repr(store.audit())
    assert len(store.tokens()[0].digest) == 32


def test_shared_token_belongs_to_no_host(store):
    text = tokens.issue(store, None, START, "ada")

    assert tokens.verify(store, text, START).resource is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text.replace("irt_", "IRT_"),
        lambda text: "irt_0123456789abcdef_" + text.split("_", 2)[2],
        lambda text: text.replace("irt", "ïrt"),
        lambda text: text + "\n",
    ],
    ids=["empty", "cut", "longer", "another secret", "another prefix", "unknown id", "not ASCII", "a line end"],
)
def test_what_is_not_the_token_is_nobody(store, spoil):
    text = tokens.issue(store, HOST, START, "ada")

    assert tokens.verify(store, spoil(text), START) is None


def test_secret_is_compared_also_when_the_id_is_unknown(store, monkeypatch):
    compared = []
    monkeypatch.setattr(tokens.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or False)

    tokens.verify(store, "irt_0123456789abcdef_" + "A" * 43, START)
    tokens.verify(store, "nonsense", START)

    assert len(compared) == 2


def test_revoked_token_is_refused_within_ten_seconds(store):
    text = tokens.issue(store, HOST, START, "ada")
    verify = Verifier(store)
    assert verify(text, START) is not None

    assert tokens.revoke(store, text.split("_")[1], START, "ada")

    assert verify(text, START + timedelta(seconds=10)) is None
    assert tokens.verify(store, text, START) is None


def test_known_token_does_not_ask_the_store_for_each_report(store):
    text = tokens.issue(store, HOST, START, "ada")
    flaky = Flaky(store)
    verify = Verifier(flaky)
    verify(text, START)
    flaky.down = True

    assert verify(text, START + timedelta(seconds=1)) is not None


def test_revoking_twice_or_nothing_says_so(store):
    text = tokens.issue(store, HOST, START, "ada")
    id = text.split("_")[1]

    assert tokens.revoke(store, id, START, "ada")
    assert not tokens.revoke(store, id, START, "ada")
    assert not tokens.revoke(store, "0123456789abcdef", START, "ada")


def test_a_host_may_have_two_tokens_while_one_is_replaced(store):
    old, new = (tokens.issue(store, HOST, START, "ada") for _ in range(2))

    assert old != new
    assert tokens.verify(store, old, START).resource == tokens.verify(store, new, START).resource == HOST


def test_only_an_instance_gets_a_token(store):
    with pytest.raises(UsageError, match="vol-1"):
        tokens.issue(store, ResourceId.parse("aws:1:eu-west-1:volume:vol-1"), START, "ada")


class Cli:
    def __init__(self, folder, capsys):
        self.folder, self.capsys = folder, capsys
        self.parser = ArgumentParser()
        command.add_arguments(self.parser)

    def __call__(self, *words):
        code = command.run(self.parser.parse_args(words, Namespace(state=self.folder, store=None)))
        return code, self.capsys.readouterr().out.splitlines()


@pytest.fixture
def cli(tmp_path, capsys):
    return Cli(tmp_path / "state", capsys)


def test_command_issues_lists_and_revokes(cli):
    code, lines = cli("issue", str(HOST))
    assert code == 0
    id = lines[-1].split("_")[1]
    store = open_state(cli.folder)
    assert tokens.verify(store, lines[-1], START).id == id
    store.close()

    code, listed = cli("list", "--json")
    assert [row["id"] for row in json.loads(listed[-1])["tokens"]] == [id]
    assert lines[-1].split("_", 2)[2] not in listed[-1]

    assert cli("revoke", id)[0] == 0
    assert cli("revoke", id)[0] == 3
    assert json.loads(cli("list", "--json")[1][-1])["tokens"][0]["revoked_at"] is not None


def test_command_issues_a_shared_token_only_when_asked(cli):
    assert json.loads(cli("issue", "--shared", "--json")[1][-1])["resource"] is None
    assert any("shared" in line for line in cli("list")[1])
    with pytest.raises(UsageError, match="not both"):
        cli("issue", str(HOST), "--shared")
    with pytest.raises(UsageError, match="not both"):
        cli("issue")
    with pytest.raises(UsageError, match="i-0abc"):
        cli("issue", "i-0abc")
