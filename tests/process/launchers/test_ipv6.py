"""Jobs on nodes that have IPv6 addresses alone, in a network namespace of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.launchers.conftest import find_python
from trainmaster.launchers.place import Place
from trainmaster.launchers.torchrun import build_command

ROOT = Path(__file__).resolve().parents[3]
TORCH = find_python("torch", "TRAINMASTER_TORCH_PYTHON", "torch-venv")


@pytest.fixture
def ipv6_only() -> Iterator[list[str]]:
    """A network namespace of its own, whose one interface (and loopback) have IPv6 addresses alone; `ip netns exec`."""
    name = f"tm-{os.getpid()}"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and iproute2")
    commands = [
        f"netns add {name}",
        f"-n {name} link add data0 type veth peer name data1",
        f"-n {name} addr add fd00:7::1/64 dev data0 nodad",
        f"-n {name} link set data0 up",
        f"-n {name} link set data1 up",
        f"-n {name} link set lo up",
        f"-n {name} addr del 127.0.0.1/8 dev lo",
    ]
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


MEET_BY_IPV6 = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from trainmaster.core import DistributedContext
from trainmaster.runtime.ports import ReservedPorts
from trainmaster.runtime.rendezvous import choose_address

address, interface = choose_address("", "http://[fd00:7::2]:8080")
ports = ReservedPorts(2)
if os.fork() == 0:
    DistributedContext(rank=1, size=2, local_rank=0, local_size=1, cross_rank=1, cross_size=2, chief_ip=address,
                       pub_port=ports.numbers[0]).allgather("b")
    os._exit(0)
with DistributedContext(rank=0, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2, chief_ip=address,
                        pub_port=ports.numbers[0]) as nodes:
    print(json.dumps([address, interface, choose_address("data0", "http://x")[0], nodes.allgather("a")]))
"""


def test_nodes_with_ipv6_addresses_alone_find_each_other(ipv6_only: list[str]) -> None:
    done = subprocess.run(
        [*ipv6_only, sys.executable, "-c", MEET_BY_IPV6, str(ROOT)],
        env={"PATH": os.environ["PATH"], "DET_SESSION_TOKEN": "t0ken"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["fd00:7::1", "data0", "fd00:7::1", ["a", "b"]]


ALLREDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", total.item(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.skipif(TORCH is None, reason="no Python with torch: set TRAINMASTER_TORCH_PYTHON")
def test_torchrun_trains_over_ipv6(ipv6_only: list[str], tmp_path: Path) -> None:
    assert TORCH is not None
    (tmp_path / "train.py").write_text(ALLREDUCE)
    nodes = []
    for rank in (0, 1):
        place = Place(addresses=("fd00:7::1",) * 2, slots=(2, 2), rank=rank, worker_ports=((1, 2), (3, 4)))
        words = [TORCH, *build_command(place, [], [TORCH, str(tmp_path / "train.py")])[1:]]
        command = [TORCH if word == sys.executable else word for word in words]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "data0"}
        environment["HOME"] = str(tmp_path)
        nodes.append(
            subprocess.Popen(
                [*ipv6_only, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    for node in nodes:
        output, errors = node.communicate(timeout=200)
        assert node.returncode == 0, errors
        assert output.count("sum 10.0") == 2
