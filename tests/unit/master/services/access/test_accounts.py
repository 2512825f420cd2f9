"""Names of accounts and groups, as directories of sites have them."""

from __future__ import annotations

import pwd

import pytest

from trainmaster.dispatchers.cluster.access.config import is_account_name
from trainmaster.master.services.access.accounts import Account, check_account
from trainmaster.master.services.errors import Invalid

NAMES = (
    "user@site.org",
    "DOM\\user",
    "domain users",
    "12345",
    "Ada.Lovelace@physics.uni-example.org",
    "x" * 200,
    "jürgen",
    "svc$",
    "a+b",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_a_directory_may_have_is_taken(name: str) -> None:
    account = Account(40001, name, 40001, name)
    assert check_account(account) == account
    assert is_account_name(name)


@pytest.mark.parametrize("name", ["", "-x", "#1000", "a/b", "a:b", "a\nb", "a\0b", "x" * 257, "a\x85b"])
def test_unsafe_account_names_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="cannot be the name"):
        check_account(Account(40001, name, 40001, "people"))
    with pytest.raises(Invalid, match="cannot be the name"):
        check_account(Account(40001, "someone", 40001, name))
    assert not is_account_name(name)


def test_account_gets_name_listed_by_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers print that name of an account, whichever of its names a job was submitted under."""
    known = pwd.struct_passwd(("user", "x", 40001, 40001, "", "/home/user", "/bin/bash"))
    monkeypatch.setattr(pwd, "getpwnam", {"DOM\\user": known}.__getitem__)
    assert check_account(Account(40001, "DOM\\user", 40001, "people")).user == "user"
    with pytest.raises(Invalid, match="has the uid 40001"):
        check_account(Account(40002, "DOM\\user", 40001, "people"))


def test_a_system_account_is_refused_by_its_name_alone() -> None:
    with pytest.raises(Invalid, match="daemon is a system account"):
        check_account(Account(None, "daemon", None, None))
