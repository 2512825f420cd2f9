"""Who may enter a service in a job, and which addresses a job may name."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tests.support.bound import SETTINGS, bind
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import ROLES
from trainmaster.master.services.addresses import networks
from trainmaster.master.services.context import Settings
from trainmaster.master.services.errors import Forbidden, NotFound
from trainmaster.master.services.store import Store
from trainmaster.master.services.tasks.proxies import JobService, JobServices

OWNER, OTHER, HOME, ELSEWHERE = 1, 2, 10, 11
BASIC = SETTINGS
RULED = replace(BASIC, roles=True)
ROLE = {role.name: role for role in ROLES.values()}


def service(kind: str) -> JobService:
    return JobService("t", kind, OWNER, HOME, "10.0.0.1", 80)


def services(settings: Settings) -> JobServices:
    """No job runs as anybody's account, so that the database is not asked."""
    return JobServices(bind(cast(Store, None), settings=settings))


def enters(settings: Settings, kind: str, caller: Caller) -> bool:
    try:
        services(settings).enter(service(kind), caller)
    except (Forbidden, NotFound):
        return False
    return True


@pytest.mark.parametrize("kind", ["NOTEBOOK", "SHELL", "COMMAND", "GENERIC", "TRIAL"])
def test_without_roles_only_owner_and_admin_enter_service(kind: str) -> None:
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
def test_roles_decide_which_services_user_may_enter(role: str, kinds: set[str]) -> None:
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
        ("10.1.1.1", True),  # where a node asked for its lease
        ("fd00::2", True),
        ("10.2.2.2", False),
        ("10.3.3.3", True),  # a network that the site names
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("::1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("master.example", False),
        ("::ffff:10.1.1.1", False),
        ("64:ff9b::a01:101", False),
        ("2002:a01:101::", False),
        ("10.1.257", False),
        ("0xa010101", False),
        ("167837953", False),
        ("010.1.1.1", False),
        ("10.1.1.1 ", False),
        ("fd00::2%eth0", False),
        ("FD00::2", False),
        ("fd00:0::2", False),
        ("", False),
    ],
)
def test_job_may_name_only_its_nodes_or_site_networks(address: str, fine: bool) -> None:
    site = replace(BASIC, services_networks=networks(["10.3.0.0/16", "169.254.0.0/16", "127.0.0.0/8"]))
    peers = {"10.1.1.1", "fd00::2", ""}
    assert (services(site)._refusal(address, peers) == "") == fine


def test_a_job_on_the_masters_machine_may_name_the_loopback() -> None:
    assert services(BASIC)._refusal("127.0.0.1", {"127.0.0.1"}) == ""
    assert services(BASIC)._refusal("127.0.0.2", {"127.0.0.1"}) != ""
    assert services(BASIC)._refusal("::ffff:127.0.0.1", {"::ffff:127.0.0.1"}) != ""
