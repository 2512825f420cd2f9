"""Who may enter a service in a job, and which addresses a job may name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.master.services import proxies
from trainmaster.master.services.errors import Forbidden, Invalid
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.permissions import ROLES
from trainmaster.master.services.proxies import Service, enter
from trainmaster.master.services.store import Settings

OWNER, OTHER, HOME, ELSEWHERE = 1, 2, 10, 11
BASIC = Settings("", "", "", b"", "", "", b"")
RULED = replace(BASIC, roles=True)
ROLE = {role.name: role for role in ROLES.values()}


def service(kind: str) -> Service:
    return Service("t", kind, OWNER, HOME, "10.0.0.1", 80)


def enters(settings: Settings, kind: str, caller: Caller) -> bool:
    try:
        enter(settings, service(kind), caller)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("kind", ["NOTEBOOK", "SHELL", "COMMAND", "GENERIC", "TRIAL"])
def test_without_roles_only_its_owner_enters_what_runs_as_them(kind: str) -> None:
    assert enters(BASIC, kind, Caller(OWNER, "o", False))
    assert enters(BASIC, kind, Caller(OTHER, "a", True))
    assert not enters(BASIC, kind, Caller(OTHER, "x", False))


def test_without_roles_everybody_looks_at_tensorboards() -> None:
    assert enters(BASIC, "TENSORBOARD", Caller(OTHER, "x", False))


@pytest.mark.parametrize(
    ("role", "kinds"),
    [
        ("Viewer", {"TENSORBOARD"}),
        ("Editor", {"TENSORBOARD", "NOTEBOOK", "SHELL", "TRIAL"}),
        ("EditorRestricted", {"TENSORBOARD", "TRIAL"}),
        ("ModelRegistryViewer", set()),
    ],
)
def test_with_roles_it_is_they_who_say(role: str, kinds: set[str]) -> None:
    grants = {permission: frozenset({HOME}) for permission in ROLE[role].permissions}
    here = Caller(OTHER, "x", False, grants=grants)
    away = replace(here, grants={permission: frozenset({ELSEWHERE}) for permission in grants})
    every = ("TENSORBOARD", "NOTEBOOK", "SHELL", "TRIAL")
    assert {kind for kind in every if enters(RULED, kind, here)} == kinds
    assert not any(enters(RULED, kind, away) for kind in every)


def test_a_job_enters_nothing() -> None:
    job = Caller(OWNER, "o", False, allocation_id="t.1")
    assert not enters(BASIC, "NOTEBOOK", job)
    assert not enters(RULED, "TENSORBOARD", replace(job, grants={}))


@pytest.mark.parametrize(
    ("address", "fine"),
    [
        ("10.1.1.1", True),  # where it speaks from
        ("10.2.2.2", True),  # another network of its node
        ("fd00::2", True),
        ("10.3.3.3", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("::1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("master.example", False),
    ],
)
def test_what_a_job_may_name(address: str, fine: bool) -> None:
    nodes = {"10.2.2.2", "fd00::2", "127.0.0.1", "169.254.169.254"}  # what it said with its lease
    try:
        proxies._check(address, "10.1.1.1", nodes)
    except Invalid:
        assert not fine
    else:
        assert fine


def test_a_job_on_the_masters_machine_may_name_the_loopback() -> None:
    proxies._check("127.0.0.1", "127.0.0.1", set())
