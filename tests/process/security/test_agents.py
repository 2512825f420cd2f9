"""A compromised Docker host tries to impersonate other agents."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.support.docker.hosts import HubServer
from tests.support.master import wait_for
from trainmaster.agent.master_link import MasterLink, MustLeave, NotEnrolled, NotGiven
from trainmaster.agent_protocol.messages import MAX_CONTAINERS, AgentReport, SlotFact
from trainmaster.dispatchers.base import ContainerSpec, JobSpec, Rejected, Setup, SlotType, StagedFile
from trainmaster.dispatchers.cluster.jobfolder.helper import DENIED_GROUPS
from trainmaster.dispatchers.contract.agents import AlreadyEnrolled, WrongKey
from trainmaster.dispatchers.docker import DockerDispatcher
from trainmaster.dispatchers.docker.enrolment import Enrolment

OPTIONS = {"resource_pools": [{"pool_name": "default"}], "poll_interval": 0.2}


class Yard:
    """A master's side for Docker hosts, and hosts that say what they are told to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dispatcher = DockerDispatcher(Setup(name="hosts", prefix="det-", job_root=root, options=OPTIONS))
        self.server = HubServer(self.dispatcher, root).start()
        self.dispatcher.lead()
        wait_for(lambda: self.dispatcher._leads.is_set(), "the lead")

    @property
    def key(self) -> str:
        return (self.root / "agent-token").read_text().strip()

    def link(self, name: str, secret: str = "") -> MasterLink:
        return MasterLink(self.server.url, name, secret)

    def host(self, name: str) -> MasterLink:
        """One that has enrolled and joined, with a slot."""
        link = self.link(name)
        link.enrol(self.key)
        link.sync(report(name))
        return link


def report(name: str) -> AgentReport:
    slot = SlotFact(id=0, type=SlotType.CPU, brand="cpu")  # type: ignore[call-arg]
    return AgentReport(
        hostname=name, version="1", instance=name, pool="", slots=(slot,), addresses=(), leaving=False, known=""
    )


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.server.stop()
    made.dispatcher.close()


def test_secret_of_one_host_fails_under_name_of_another(yard: Yard) -> None:
    mine, victim = yard.host("broken"), yard.host("victim")
    token = f"det-{secrets.token_hex(6)}"
    spec = JobSpec(
        token=token,
        allocation_id="1.1.1",
        pool="default",
        slots=1,
        slot_type=SlotType.CPU,
        container=ContainerSpec("docker", "image"),
        files={"secrets/token": StagedFile(b"the session token of a job")},
        exclude_nodes=("broken",),
    )
    yard.dispatcher.submit(spec)
    wait_for(lambda: any(order.token == token for order in victim.sync(report("victim")).containers), "the job")
    as_victim = yard.link("victim", mine.secret)
    for call in (lambda: as_victim.sync(report("victim")), lambda: as_victim.wait("")):
        with pytest.raises(NotEnrolled, match="not the secret of an agent victim"):
            call()  # type: ignore[no-untyped-call]
    for link, refusal in ((as_victim, NotEnrolled), (mine, NotGiven)):
        with pytest.raises(refusal), link.files(token) as files:
            files.read()
        with pytest.raises(refusal):
            link.hand_in(token, 0, [b""])
    with victim.files(token) as files:
        assert b"the session token of a job" in files.read()
    assert mine.sync(report("broken")).containers == ()


def test_stolen_host_key_cannot_impersonate_another_agent(yard: Yard) -> None:
    yard.host("victim")
    with pytest.raises(MustLeave, match="An agent victim is enrolled already"):
        yard.link("victim").enrol(yard.key)
    with pytest.raises(NotEnrolled):
        yard.link("victim", yard.key).sync(report("victim"))  # as every agent did before they had secrets


def test_a_revoked_host_is_out_and_the_key_that_it_knew_with_it(yard: Yard) -> None:
    broken, other = yard.host("broken"), yard.host("other")
    known = yard.key
    yard.dispatcher.revoke("broken")
    with pytest.raises(NotEnrolled):
        broken.sync(report("broken"))
    for name in ("broken", "a-new-name"):
        with pytest.raises(MustLeave, match="not the enrolment key of agents"):
            yard.link(name).enrol(known)
    other.sync(report("other"))
    yard.host("broken")  # set up anew, with the new key
    with pytest.raises(Rejected, match="no agent 'nobody'"):
        yard.dispatcher.revoke("nobody")


def test_revocation_uses_up_key_of_administrators_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    with pytest.raises(Rejected, match="does not exist"):
        Enrolment(tmp_path, str(key))
    key.write_text("sixteen characters and more\n")
    enrolment = Enrolment(tmp_path, str(key))
    secret = enrolment.enrol("a", "sixteen characters and more")
    assert enrolment.accepts("a", secret)
    assert not enrolment.accepts("b", secret)
    assert not enrolment.accepts("a", "")
    enrolment.revoke("a")
    with pytest.raises(WrongKey, match="must put another one into"):
        enrolment.enrol("b", "sixteen characters and more")
    key.write_text("another key of many characters\n")
    enrolment.enrol("a", "another key of many characters")
    with pytest.raises(AlreadyEnrolled):
        Enrolment(tmp_path, str(key)).enrol("a", "another key of many characters")


def test_master_keeps_only_private_hash_of_agent_secret(tmp_path: Path) -> None:
    enrolment = Enrolment(tmp_path, None)
    secret = enrolment.enrol("a", enrolment.key_file.read_text().strip())
    kept = tmp_path / ".agent-secrets.json"
    assert secret not in kept.read_text()
    assert {path.stat().st_mode & 0o777 for path in (kept, enrolment.key_file)} == {0o600}
    assert Enrolment(tmp_path, None).accepts("a", secret)  # another master of the same folder


# -- sizes ----------------------------------------------------------------------------------------------------------


def unlimited(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Fields of a message, and of those inside it, that may be of any size."""
    for name, field in model.model_fields.items():
        schema = TypeAdapter(Annotated[field.annotation, field]).json_schema()  # type: ignore[arg-type]
        yield from (f"{above}{name}{path}" for path in _unlimited(schema, schema.get("$defs", {})))


def _unlimited(schema: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    schema = known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for one in schema.get("anyOf", ()):
        yield from _unlimited(one, known)
    kind = schema.get("type")
    if kind == "string" and not {"maxLength", "pattern", "enum", "const"} & schema.keys():
        yield ""
    if kind == "array":
        if "maxItems" not in schema:
            yield "[]"
        yield from (f"[]{path}" for path in _unlimited(schema["items"], known))
    if kind == "integer" and not {"maximum", "exclusiveMaximum"} & schema.keys():
        yield ""
    for name, inner in schema.get("properties", {}).items():
        yield from (f".{name}{path}" for path in _unlimited(inner, known))


def test_nothing_that_an_agent_reports_is_of_any_size() -> None:
    """A new field fails here until it has a limit. Of slots' numbers the hub takes those that the agent has."""
    assert set(unlimited(AgentReport)) == {"containers[].slot_ids[]"}


@pytest.mark.parametrize(
    "more",
    [
        {"addresses": ["1" * 300]},
        {"addresses": ["10.0.0.1"] * 65},
        {"containers": [{"token": "t", "job_id": "j", "state": "running"}] * (MAX_CONTAINERS + 1)},
        {"containers": [{"token": "t", "job_id": "j", "state": "running", "slot_ids": list(range(2000))}]},
        {"containers": [{"token": "t", "job_id": "j", "state": "running", "exit_code": 2**40}]},
    ],
    ids=["long address", "addresses", "containers", "slots", "exit code"],
)
def test_a_report_with_more_than_fits_is_refused(more: dict[str, Any]) -> None:
    said = {"hostname": "h", "version": "1", "instance": "i"}
    AgentReport.model_validate(said)
    with pytest.raises(ValidationError):
        AgentReport.model_validate(said | more)


def test_groups_that_are_as_good_as_root_run_no_jobs() -> None:
    """Of today's distributions: what owns an engine's socket, a hypervisor, disks or memory."""
    for name in ("podman", "incus-admin", "incus", "libvirt", "microk8s", "kmem", "containerd"):
        assert name in DENIED_GROUPS
