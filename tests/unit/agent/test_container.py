"""Docker's description of a job's container, the account that runs in it, and the slots of a host."""

from __future__ import annotations

import getpass
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from trainmaster.agent.account import NoAccount, account_for
from trainmaster.agent.engine import split_image
from trainmaster.agent.slots import NoSlots, find_slots
from trainmaster.containers import Bind
from trainmaster.containers.base import runtime_arguments
from trainmaster.containers.docker import (  # type: ignore[attr-defined]
    ContainerUser,
    Device,
    DockerStart,
    check_binds,
    check_capabilities,
    check_devices,
    container_body,
    parents_below_node,
)
from trainmaster.dispatchers.base import SlotType
from trainmaster.templates import ControlCharacter

ALICE = ContainerUser("alice", 1000, 1001, (1001, 50))


def start(**changes: Any) -> DockerStart:
    given: dict[str, Any] = {
        "image": "img:1",
        "job_folder": Path("/d/jobs/t"),
        "node_folder": Path("/d/node/t"),
        "home": Path("/d/home/t"),
        "account": ALICE,
        "labels": {"trainmaster.token": "t"},
        **changes,
    }
    return DockerStart(**given)


def test_a_container_has_no_more_rights_than_its_account() -> None:
    body = container_body(start())
    host = body["HostConfig"]
    assert body["User"] == "1000:1001"
    assert host["GroupAdd"] == ["50"]
    assert (host["CapDrop"], host["SecurityOpt"], host["Privileged"]) == (["ALL"], ["no-new-privileges"], False)
    assert "CapAdd" not in host
    assert "PidMode" not in host
    assert host["Init"] is True
    assert host["RestartPolicy"] == {"Name": "no"}


def test_runtime_starts_in_job_folder_under_hosts_path() -> None:
    body = container_body(start(variables={"TRAINMASTER_JOB_ID": "7", "HOME": "/root"}, python="python3.12"))
    assert (body["Entrypoint"], body["Cmd"]) == (["python3.12"], list(runtime_arguments(Path("/d/jobs/t"))))
    assert body["WorkingDir"] == "/d/jobs/t"
    targets = {mount["Target"]: mount["Source"] for mount in body["HostConfig"]["Mounts"]}
    assert targets == {"/d/jobs/t": "/d/jobs/t", "/run/determined": "/d/node/t", "/home/alice": "/d/home/t"}
    assert "TRAINMASTER_NODE_DIR=/run/determined" in body["Env"]
    assert "TRAINMASTER_JOB_ID=7" in body["Env"]


def test_gpus_shared_memory_network_and_mounts_are_asked_for() -> None:
    wanted = start(
        gpus=["GPU-1", "GPU-2"], shm_size=2**30, network_mode="bridge", binds=[Bind("/data", "/home/alice", True)]
    )
    host = container_body(wanted)["HostConfig"]
    assert host["DeviceRequests"] == [{"Driver": "nvidia", "DeviceIDs": ["GPU-1", "GPU-2"], "Capabilities": [["gpu"]]}]
    assert (host["ShmSize"], host["NetworkMode"]) == (2**30, "bridge")
    # A user's own mount takes the place of the private home.
    assert [m["Source"] for m in host["Mounts"] if m["Target"] == "/home/alice"] == ["/data"]
    assert "DeviceRequests" not in container_body(start())["HostConfig"]
    assert container_body(start(rocm=True))["HostConfig"]["Devices"][0]["PathOnHost"] == "/dev/kfd"


def test_folders_above_a_mount_in_the_trials_own_are_known() -> None:
    """They are made before Docker would make them as root."""
    binds = [Bind("/d", target) for target in ("/run/determined/workdir/a/b", "/run/determined/workdir/c", "/data/x")]
    others = [Bind("/d", "/run//determined/./workdir/a/e"), Bind("/d", "/run/determined/f")]
    assert parents_below_node([*binds, *others]) == ["workdir/a", "workdir"]
    assert check_binds(binds) == []


def test_capabilities_are_those_asked_for_and_not_dropped() -> None:
    host = container_body(start(add_capabilities=["cap_sys_ptrace", "CHOWN", "chown"], drop_capabilities=["CHOWN"]))
    assert (host["HostConfig"]["CapAdd"], host["HostConfig"]["CapDrop"]) == (["SYS_PTRACE"], ["ALL", "CHOWN"])
    # Docker reads these two lists as: all but SYS_ADMIN.
    host = container_body(start(add_capabilities=["ALL"], drop_capabilities=["SYS_ADMIN"]))
    assert (host["HostConfig"]["CapAdd"], host["HostConfig"]["CapDrop"]) == (["ALL"], ["ALL", "SYS_ADMIN"])
    assert "CapAdd" not in container_body(start(add_capabilities=["CHOWN"], drop_capabilities=["ALL"]))["HostConfig"]
    assert check_capabilities(["CAP_NET_RAW", "net_raw", "ALL"]) == []
    assert len(check_capabilities(["NET RAW", "", "-X"])) == 3


def test_devices_are_added_to_those_of_the_slots() -> None:
    fuse = Device("/dev/fuse", "/dev/fuse", "rw")
    host = container_body(start(rocm=True, devices=[fuse]))["HostConfig"]
    assert [device["PathOnHost"] for device in host["Devices"]] == ["/dev/kfd", "/dev/dri", "/dev/fuse"]
    assert host["Devices"][2]["CgroupPermissions"] == "rw"
    assert check_devices([fuse, Device("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0", "mrw")]) == []
    for wrong in (
        Device("dev/x", "/dev/x"),
        Device("/dev/x", "/dev/../x"),
        Device("/dev/x", "/proc/x"),
        Device("/dev/x", "/dev"),
        Device("/dev/x", "/dev/x", "rz"),
        Device("/dev/x", "/dev/x", ""),
    ):
        assert check_devices([wrong])


def test_control_characters_are_refused() -> None:
    for changes in ({"image": "a\nb"}, {"binds": [Bind("/a\n", "/b")]}, {"python": "py\0"}):
        with pytest.raises(ControlCharacter):
            container_body(start(**changes))


@pytest.mark.parametrize(
    "bind",
    [
        Bind("relative", "/x"),
        Bind("/a/../etc", "/x"),
        Bind("/a", "/"),
        Bind("/a", "/proc"),
        Bind("/a", "/sys/fs"),
        Bind("/a", "/run/determined"),
        Bind("/var/run/docker.sock", "/x"),
    ],
)
def test_mounts_that_would_break_out_are_refused(bind: Bind) -> None:
    assert check_binds([bind])
    assert check_binds([Bind("/data", "/data"), Bind("/dev/shm", "/scratch")]) == []


def test_the_account_of_a_job() -> None:
    own = pwd.getpwuid(os.geteuid())
    if own.pw_uid:
        assert account_for(None, None).uid == own.pw_uid
        with pytest.raises(NoAccount, match="as root"):
            account_for("daemon", None)
    else:
        with pytest.raises(NoAccount, match="--job-user"):
            account_for(None, None)
        assert account_for(None, "daemon").name == account_for("daemon", "daemon").name == "daemon"
        with pytest.raises(NoAccount, match="--linked-users"):
            account_for("daemon", "nobody")
        with pytest.raises(NoAccount, match="system account"):
            account_for("daemon", "nobody", linked=True)
        assert account_for("nobody", "daemon", linked=True).name == "nobody"
        with pytest.raises(NoAccount, match="do not run as root"):
            account_for("root", "daemon")
        assert account_for("root", "root").uid == 0
    with pytest.raises(NoAccount, match="no account 'nosuchone'"):
        account_for("nosuchone", getpass.getuser())


def test_slots_of_a_host() -> None:
    found = find_slots("cpu", 3)
    assert [(slot.id, slot.type) for slot in found] == [(0, SlotType.CPU), (1, SlotType.CPU), (2, SlotType.CPU)]
    assert len(find_slots("cpu", None)) == (os.cpu_count() or 1)
    if Path("/dev/nvidiactl").exists():
        assert all(slot.uuid.startswith("GPU-") for slot in find_slots("cuda", None))
    else:
        with pytest.raises(NoSlots, match="NVIDIA"):
            find_slots("cuda", None)
        assert find_slots("auto", 2) == find_slots("cpu", 2)


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("a", ("a", "latest")),
        ("a:1", ("a", "1")),
        ("r:5000/a", ("r:5000/a", "latest")),
        ("r:5000/a:1", ("r:5000/a", "1")),
        ("a@sha256:ab", ("a", "sha256:ab")),
    ],
)
def test_names_of_images(image: str, parts: tuple[str, str]) -> None:
    assert split_image(image) == parts
