"""DistributedContext among real processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import free_port, run_ranks
from tests.support.runtime.waiting import until
from trainmaster.core import DistributedContext, DistributedError
from trainmaster.core.collectives_transport import Coordinator, Member
from trainmaster.core.distributed import parse_tf_config

ALL_CALLS = """
from trainmaster.core import DistributedContext

with DistributedContext.from_torch_distributed() as distributed:
    rank = distributed.get_rank()
    assert distributed.get_size() == 4 and distributed.get_num_agents() == 1
    for turn in range(50):
        assert distributed.allgather((rank, turn)) == [(r, turn) for r in range(4)]
        gathered = distributed.gather(rank * 10)
        assert gathered == ([0, 10, 20, 30] if rank == 0 else None)
        assert distributed.broadcast("chief" if rank == 0 else None) == "chief"
        assert distributed.allgather_local(rank) == [0, 1, 2, 3]
        assert distributed.broadcast_local(rank) == 0
    assert len(distributed.broadcast(b"x" * 10_000_000 if rank == 0 else None)) == 10_000_000
print("well")
"""


def test_four_processes_on_one_node() -> None:
    with tempfile.TemporaryDirectory(prefix="tm-") as temporary:
        assert run_ranks(ALL_CALLS, 4, Path(temporary)) == [(0, "well\n")] * 4
        # Without a job the key is in a file of the user's own.
        folder = Path(temporary) / f"trainmaster-{os.getuid()}"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")] == [0o600]
        assert not list(folder.glob("*.sock"))


def test_four_processes_work_with_long_temporary_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 50)
    folder.mkdir()
    assert run_ranks(ALL_CALLS, 4, folder) == [(0, "well\n")] * 4
    assert list(folder.glob("trainmaster-*")) == []


def test_four_processes_over_tcp(tmp_path: Path) -> None:
    script = """
import os
from trainmaster.core import DistributedContext

rank = int(os.environ["RANK"])
with DistributedContext(
    rank=rank, size=4, local_rank=rank % 2, local_size=2, cross_rank=rank // 2, cross_size=2, chief_ip="127.0.0.1"
) as distributed:
    assert distributed.allgather(rank) == [0, 1, 2, 3]
    assert distributed.allgather_local(rank) == [rank // 2 * 2, rank // 2 * 2 + 1]
    assert distributed.broadcast_local(rank) == rank // 2 * 2
    assert distributed.gather_local(rank) == ([rank, rank + 1] if rank % 2 == 0 else None)
"""
    port = str(free_port())
    results = run_ranks(script, 4, tmp_path, DET_SESSION_TOKEN="t0ken", TRAINMASTER_DISTRIBUTED_PORT=port)
    assert results == [(0, "")] * 4


def test_values_travel_by_plain_pickle(tmp_path: Path) -> None:
    """Torch registers picklers with multiprocessing that pass tensors as open files: no good on another machine."""
    script = """
from multiprocessing.reduction import ForkingPickler
from trainmaster.core import DistributedContext

class Tensor:
    value = 0

def shared(tensor):
    raise RuntimeError("an open file of this machine")

ForkingPickler.register(Tensor, shared)
with DistributedContext.from_torch_distributed() as distributed:
    mine = Tensor()
    mine.value = distributed.rank
    assert [each.value for each in distributed.allgather(mine)] == [0, 1]
"""
    assert run_ranks(script, 2, tmp_path) == [(0, "")] * 2


def test_several_nodes_without_a_secret_are_refused() -> None:
    with pytest.raises(ValueError, match="TRAINMASTER_DISTRIBUTED_KEY"):
        DistributedContext(rank=1, size=2, local_rank=0, local_size=1, cross_rank=1, cross_size=2, chief_ip="127.0.0.1")


def test_a_dead_rank_is_named(tmp_path: Path) -> None:
    script = """
import os, signal
from trainmaster.core import DistributedContext, DistributedError

with DistributedContext.from_torch_distributed() as distributed:
    distributed.allgather(0)
    if distributed.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        distributed.allgather(1)
    except DistributedError as error:
        print(error)
"""
    results = run_ranks(script, 3, tmp_path)
    assert results[2][0] == -9
    assert results[0] == (0, "rank 2 has gone during allgather\n")
    assert results[1] == (0, "rank 0 has gone during allgather\n")


def test_calls_that_do_not_match_are_named(tmp_path: Path) -> None:
    script = """
from trainmaster.core import DistributedContext, DistributedError

with DistributedContext.from_torch_distributed() as distributed:
    try:
        distributed.gather(1) if distributed.rank else distributed.allgather(1)
    except DistributedError as error:
        print(error)
"""
    results = run_ranks(script, 2, tmp_path)
    assert "rank 1 called gather while this rank called allgather" in results[0][1]


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/unpickled-by-a-stranger",)


def listens(port: Any) -> Any:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def coordinator() -> Iterator[Any]:
    """A coordinator for two ranks that waits in a thread; the value is (port, finish)."""
    port = free_port()
    made = []
    waiting = threading.Thread(target=lambda: made.append(Coordinator(("127.0.0.1", port), 2, b"right", 60.0)))
    waiting.start()
    until(lambda: listens(port))

    def finish() -> Any:
        waiting.join(60)
        return made[0]

    yield port, finish
    if not made:
        with contextlib.suppress(DistributedError):
            Member(("127.0.0.1", port), 1, b"right", 60.0).close()
    waiting.join(60)
    for each in made:
        each.close()


def test_a_wrong_key_is_refused_and_nothing_is_unpickled(coordinator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, finish = coordinator
    with pytest.raises(DistributedError, match="cannot be reached"):
        Member(("127.0.0.1", port), 1, b"wrong", 0.5)
    # Somebody who does not greet at all but sends a pickle.
    stranger = socket.create_connection(("127.0.0.1", port), timeout=60)
    payload = pickle.dumps(Bomb())
    stranger.sendall(len(payload).to_bytes(4, "big") + payload)
    # Somebody who only listens.
    silent = socket.create_connection(("127.0.0.1", port), timeout=60)
    member = Member(("127.0.0.1", port), 1, b"right", 60.0)
    try:
        made = finish()
        member.gather("gather", "hello")
        assert made.gather("gather", None) == [None, "hello"]
    finally:
        member.close()
        stranger.close()
        silent.close()
    assert not os.path.exists("/tmp/unpickled-by-a-stranger")


def test_a_false_coordinator_is_not_believed(tmp_path: Path) -> None:
    address = str(tmp_path / "ranks.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connection.sendall((32).to_bytes(4, "big") + b"n" * 32)
                connection.recv(1000)
                connection.sendall((32).to_bytes(4, "big") + b"p" * 32)
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(DistributedError, match="does not hold this job's key"):
        Member(address, 1, b"right", 0.3)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)


def test_the_librarys_own_client_gets_nowhere(coordinator: Any) -> None:
    port, finish = coordinator
    with contextlib.closing(Client(("127.0.0.1", port))) as client:
        assert len(client.recv_bytes()) == 32  # the coordinator's challenge
        client.send(Bomb())
        with pytest.raises((EOFError, ConnectionResetError)):
            client.recv_bytes()
    member = Member(("127.0.0.1", port), 1, b"right", 60.0)
    finish()
    member.close()
    assert not os.path.exists("/tmp/unpickled-by-a-stranger")


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    with pytest.raises(DistributedError, match=r"ranks \[1, 2\] did not come within 0 s"):
        Coordinator(str(tmp_path / "ranks.sock"), 3, b"key", 0.2)


@pytest.mark.parametrize("changes", [{"rank": 2}, {"local_rank": -1}, {"cross_size": 0}])
def test_ranks_must_fit(changes: Any) -> None:
    arguments = dict(rank=0, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=1) | changes
    with pytest.raises(ValueError, match="does not fit"):
        DistributedContext(**arguments)


def test_from_horovod() -> None:
    class Hvd:
        rank = local_rank = cross_rank = staticmethod(lambda: 0)
        size = local_size = cross_size = staticmethod(lambda: 1)

    with DistributedContext.from_horovod(Hvd) as distributed:
        assert distributed.allgather("alone") == ["alone"]


def test_from_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "CROSS_RANK"):
        monkeypatch.setenv(name, "0")
    for name in ("WORLD_SIZE", "LOCAL_SIZE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("CROSS_SIZE", raising=False)
    with pytest.raises(ValueError, match="CROSS_SIZE is not set"):
        DistributedContext.from_deepspeed()
    monkeypatch.setenv("CROSS_SIZE", "1")
    with DistributedContext.from_deepspeed() as distributed:
        assert distributed.gather_local(1) == [1]


def test_tf_config() -> None:
    config = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
    assert parse_tf_config(config) == (2, 3, "a")
    with pytest.raises(ValueError, match="TF_CONFIG"):
        parse_tf_config({"cluster": {}})
