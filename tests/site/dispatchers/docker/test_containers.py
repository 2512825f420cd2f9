"""Settings of a job as its container sees them: rights, devices, an image behind a login."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import packages
from tests.support.docker.engine import IMAGE, DockerEngine
from tests.support.docker.registry import Registry, running_registry
from tests.support.docker.site import Site, ended, eventually, running_site, submitting
from trainmaster.agent_protocol.messages import REGISTRY_LOGIN
from trainmaster.dispatchers.base import (
    BindMount,
    ContainerSpec,
    DeviceMount,
    JobSpec,
    JobState,
    Rejected,
    SlotType,
    StagedFile,
)
from trainmaster.dispatchers.conformance import programs

pytestmark = pytest.mark.docker

LOOKS = """
import json, os, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
facts = {"uid": os.getuid(), "effective": int(status["CapEff"], 16), "bounding": int(status["CapBnd"], 16)}
facts["device"] = os.write(os.open("/dev/sink", os.O_WRONLY), b"gone") if os.path.exists("/dev/sink") else None
facts["secrets"] = os.listdir(sys.argv[1] + "/secrets") if os.path.exists(sys.argv[1] + "/secrets") else []
json.dump(facts, open(sys.argv[1] + "/exit/0.json", "w"))
"""
LIMITS = """
import json, os, sys
def first(*paths):
    return next(open(path).read().strip() for path in paths if os.path.exists(path))
top = "/sys/fs/cgroup/"
facts = {
    "pids": first(top + "pids.max", top + "pids/pids.max"),
    "memory": first(top + "memory.max", top + "memory/memory.limit_in_bytes"),
}
json.dump(facts, open(sys.argv[1] + "/exit/0.json", "w"))
"""
SYS_PTRACE, SINK = 1 << 19, DeviceMount("/dev/null", "/dev/sink", "rw")
# An image from the registry is empty: this machine's own Python stands in it.
PROGRAMS = tuple(BindMount(path, path, read_only=True) for path in ("/usr", "/lib", "/lib64"))


@pytest.fixture(scope="module")
def registry(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    try:
        with running_registry(docker_engine, tmp_path_factory.mktemp("registry")) as registry:
            yield registry
    except packages.Unavailable as reason:
        pytest.skip(str(reason))


def facts_of(site: Site, spec: JobSpec) -> dict[str, Any]:
    end = ended(site, spec)
    assert end.state is JobState.COMPLETED, end.explanation
    exits = eventually(lambda: site.dispatcher.collect(spec.token).exits, "the record")
    found: dict[str, Any] = json.loads(exits[0])
    return found


def test_ordinary_account_gets_devices_without_capabilities(site: Site) -> None:
    wanted = ContainerSpec("docker", IMAGE, devices=(SINK,), add_capabilities=("SYS_PTRACE",))
    with submitting(site) as submit:
        facts = facts_of(site, submit(LOOKS, container=wanted))
    assert (facts["device"], facts["effective"]) == (4, 0)
    assert "capabilities have no effect: it runs as tmalice" in site.agent.log.read_text()


def test_root_container_has_only_requested_capabilities(docker_engine: DockerEngine, tmp_path: Path) -> None:
    wanted = ContainerSpec("docker", IMAGE, add_capabilities=("CAP_SYS_PTRACE", "chown"), drop_capabilities=("CHOWN",))
    with running_site(docker_engine, tmp_path) as site, submitting(site) as submit:
        site.add_agent("rooted", job_user="root")
        asked, none = submit(LOOKS, container=wanted), submit(LOOKS)
        unknown = submit(LOOKS, container=replace(wanted, add_capabilities=("SYS_WISHES",)))
        facts = facts_of(site, asked)
        assert (facts["uid"], facts["effective"], facts["bounding"]) == (0, SYS_PTRACE, SYS_PTRACE)
        assert facts_of(site, none)["effective"] == 0
        end = ended(site, unknown)
        assert (end.state, "SYS_WISHES" in end.explanation) == (JobState.FAILED, True)


def test_impossible_container_settings_are_rejected(site: Site) -> None:
    wanted = ContainerSpec(
        "docker", IMAGE, devices=(DeviceMount("/dev/../etc", "/proc/x", "rx"),), add_capabilities=("to fly",)
    )
    spec = JobSpec("conf-refused", "1.1.1", "default", 1, SlotType.CPU, container=wanted)
    said = " ".join(site.dispatcher.check(spec))
    for part in ("without '..'", "no device can be placed at /proc/x", "'rx'", "'to fly' is not a capability"):
        assert part in said
    with pytest.raises(Rejected, match="to fly"):
        site.dispatcher.submit(spec)


def test_mount_closed_to_account_fails_job_and_says_so(site: Site, tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    (shut / "open").mkdir(parents=True)
    shut.chmod(0o700)
    for path in (shut / "open", tmp_path / "absent"):
        with submitting(site) as submit:
            binds = (BindMount(str(path), "/x"),)
            end = ended(site, submit(LOOKS, container=ContainerSpec("docker", IMAGE, binds=binds)))
        assert (end.state, "cannot be opened by tmalice" in end.explanation) == (JobState.FAILED, True)


def test_a_container_has_a_limit_of_processes_and_memory(site: Site) -> None:
    with submitting(site) as submit:
        facts = facts_of(site, submit(LIMITS, container=ContainerSpec("docker", IMAGE)))
    assert facts["pids"] == "32768"
    assert int(facts["memory"]) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_missing_host_device_fails_job_and_is_named(site: Site) -> None:
    with submitting(site) as submit:
        lacks = ContainerSpec("docker", IMAGE, devices=(DeviceMount("/dev/nosuch", "/dev/nosuch"),))
        end = ended(site, submit(LOOKS, container=lacks))
    assert (end.state, "/dev/nosuch" in end.explanation) == (JobState.FAILED, True)


def test_private_image_is_pulled_and_job_never_sees_login(site: Site, registry: Registry) -> None:
    wanted = ContainerSpec("docker", registry.image, binds=PROGRAMS)

    def behind(**login: str) -> dict[str, StagedFile]:
        return {**programs.runtime(LOOKS), REGISTRY_LOGIN: StagedFile(json.dumps(login).encode())}  # type: ignore[dict-item]

    elsewhere = {**registry.login, "serveraddress": "registry.example.org"}
    with submitting(site) as submit:
        refused = [
            submit(LOOKS, container=wanted),
            submit(container=wanted, files=behind(username="ada", password="guessed-wrong")),
            submit(container=wanted, files=behind(**elsewhere)),
        ]
        for spec in refused:
            end = ended(site, spec)
            assert (end.state, "cannot be pulled" in end.explanation) == (JobState.FAILED, True)
            assert "guessed-wrong" not in end.explanation
        spec = submit(container=wanted, files=behind(**registry.login))
        assert facts_of(site, spec)["secrets"] == []
        registry.remove_image()
        here = submit(container=wanted, files=behind(**registry.login, server=f"http://{registry.address}/v2/"))
        assert ended(site, here).state is JobState.COMPLETED
        for place in (site.agent.log, site.setup.job_root / spec.token / ".docker" / "job.json"):
            assert registry.password not in place.read_text()
        known = {name.name for name in (site.agent.data / "jobs" / spec.token).rglob("*")}
        assert "registry.json" not in known
    assert registry.password not in str(site.dispatcher.agents())
