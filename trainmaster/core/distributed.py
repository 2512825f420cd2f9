"""DistributedContext: what the ranks of one trial tell each other, with the calls of Determined 0.38.1."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, List, Mapping, Optional, Tuple, Union

from trainmaster.core.errors import DistributedError
from trainmaster.core.star import Address, Hub, Spoke

DEFAULT_PUB_PORT = 12360
DEFAULT_PULL_PORT = 12376
_PATIENCE = 600.0  # seconds until all ranks must have come; imports from a busy file system take minutes


class DistributedContext:
    """Connects the ranks of one trial.

    `rank` of `size` over all nodes, `local_rank` of `local_size` on this node, `cross_rank` of `cross_size`
    nodes. Every collective call must be made by all ranks (or, for the `_local` ones, by all ranks of the
    node) in the same order. Values are pickled; connections are authenticated with a key derived from the
    job's session token, so that no stranger can send any.

    Ranks of one node talk over a Unix socket unless `force_tcp`; over several nodes over TCP to `chief_ip`
    (default: DET_CHIEF_IP). The port is `pub_port + port_offset`; where `pub_port` is left at its default the
    one that the job's rendezvous agreed upon is taken. `pull_port` is accepted for compatibility; one port is
    enough.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        local_rank: int,
        local_size: int,
        cross_rank: int,
        cross_size: int,
        chief_ip: Optional[str] = None,
        pub_port: int = DEFAULT_PUB_PORT,
        pull_port: int = DEFAULT_PULL_PORT,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        _check(rank, size, "rank", "size")
        _check(local_rank, local_size, "local_rank", "local_size")
        _check(cross_rank, cross_size, "cross_rank", "cross_size")
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size
        self.cross_rank = cross_rank
        self.cross_size = cross_size
        self.pull_port = pull_port
        self._ends: List[Union[Hub, Spoke]] = []
        chief_ip = chief_ip or os.environ.get("DET_CHIEF_IP")
        if cross_size > 1 and not chief_ip:
            raise ValueError("chief_ip is needed for more than one node (DET_CHIEF_IP is not set either)")
        port = pub_port + port_offset
        if pub_port == DEFAULT_PUB_PORT and os.environ.get("TRAINMASTER_DISTRIBUTED_PORT"):
            port = int(os.environ["TRAINMASTER_DISTRIBUTED_PORT"])
        by_tcp = cross_size > 1 or force_tcp
        address: Address = (chief_ip or "127.0.0.1", port) if by_tcp else _socket_path("all", port, 0)
        key = _key(one_node=cross_size == 1, port=port) if size > 1 else b""
        self._all = self._join(address, rank, size, key)
        # With one node the two stars are one.
        if cross_size == 1:
            self._local = self._all
        else:
            self._local = self._join(_socket_path("local", port, cross_rank), local_rank, local_size, key)

    @classmethod
    def from_torch_distributed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the variables that torchrun sets."""
        return cls(
            rank=_variable("RANK"),
            size=_variable("WORLD_SIZE"),
            local_rank=_variable("LOCAL_RANK"),
            local_size=_variable("LOCAL_WORLD_SIZE"),
            cross_rank=_variable("GROUP_RANK"),
            cross_size=_variable("GROUP_WORLD_SIZE"),
            chief_ip=chief_ip,
        )

    @classmethod
    def from_deepspeed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the variables that deepspeed's launcher sets."""
        return cls(
            rank=_variable("RANK"),
            size=_variable("WORLD_SIZE"),
            local_rank=_variable("LOCAL_RANK"),
            local_size=_variable("LOCAL_SIZE"),
            cross_rank=_variable("CROSS_RANK"),
            cross_size=_variable("CROSS_SIZE"),
            chief_ip=chief_ip,
        )

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: Optional[str] = None) -> DistributedContext:
        """From an initialised `horovod.torch` or `horovod.tensorflow` module."""
        return cls(
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
            cross_rank=hvd.cross_rank(),
            cross_size=hvd.cross_size(),
            chief_ip=chief_ip,
        )

    @classmethod
    def from_tf_config(cls) -> Tuple[DistributedContext, Any]:
        """From TF_CONFIG, with the strategy that fits: one worker process a node."""
        tf = importlib.import_module("tensorflow")  # only where TensorFlow is trained with

        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        if not config:
            strategy = tf.distribute.MirroredStrategy()
            return cls(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1), strategy
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        rank, size, chief_ip = parse_tf_config(config)
        context = cls(
            rank=rank,
            size=size,
            local_rank=0,
            local_size=1,
            cross_rank=rank,
            cross_size=size,
            chief_ip=chief_ip,
        )
        return context, strategy

    def get_rank(self) -> int:
        """This process's rank over all nodes; 0 is the chief."""
        return self.rank

    def get_local_rank(self) -> int:
        """This process's rank on its node."""
        return self.local_rank

    def get_size(self) -> int:
        """Number of processes."""
        return self.size

    def get_num_agents(self) -> int:
        """Number of nodes."""
        return self.cross_size

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        """The chief gets everybody's value in rank order, the others None."""
        return _gather(self._all, "gather", stuff)

    def gather_local(self, stuff: Any) -> Optional[List[Any]]:
        """The same among the ranks of this node."""
        return _gather(self._local, "gather_local", stuff)

    def allgather(self, stuff: Any) -> List[Any]:
        """Everybody gets everybody's value in rank order."""
        return _allgather(self._all, "allgather", stuff)

    def allgather_local(self, stuff: Any) -> List[Any]:
        """The same among the ranks of this node."""
        return _allgather(self._local, "allgather_local", stuff)

    def broadcast(self, stuff: Any) -> Any:
        """Everybody gets the chief's value."""
        return _broadcast(self._all, "broadcast", stuff)

    def broadcast_local(self, stuff: Any = None) -> Any:
        """Everybody on this node gets the value of its local rank 0."""
        return _broadcast(self._local, "broadcast_local", stuff)

    def close(self) -> None:
        """Part from the other ranks."""
        while self._ends:
            self._ends.pop().close()

    def __enter__(self) -> DistributedContext:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _join(self, address: Address, rank: int, size: int, key: bytes) -> Union[Hub, Spoke]:
        end: Union[Hub, Spoke]
        try:
            end = Hub(address, size, key, _PATIENCE) if rank == 0 else Spoke(address, rank, key, _PATIENCE)
        except OSError as error:
            self.close()
            raise DistributedError("rank %d cannot open %s for the others: %s" % (rank, address, error)) from error
        except DistributedError:
            self.close()
            raise
        self._ends.append(end)
        return end


def single() -> DistributedContext:
    """The context of a process that is alone."""
    return DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


def parse_tf_config(config: Mapping[str, Any]) -> Tuple[int, int, str]:
    """Rank, number of workers and the chief's host of a TF_CONFIG object. Raises ValueError."""
    try:
        cluster = config["cluster"]
        workers = list(cluster.get("chief", [])) + list(cluster.get("worker", []))
        rank = int(config["task"]["index"])
        if config["task"]["type"] == "worker":
            rank += len(cluster.get("chief", []))
        return rank, len(workers), str(workers[0]).rsplit(":", 1)[0]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError("TF_CONFIG has no usable cluster and task: %r" % error) from error


def _gather(end: Union[Hub, Spoke], name: str, stuff: Any) -> Optional[List[Any]]:
    if isinstance(end, Hub):
        return end.gather(name, stuff)
    end.send(name, stuff)
    return None


def _allgather(end: Union[Hub, Spoke], name: str, stuff: Any) -> List[Any]:
    if isinstance(end, Hub):
        values = end.gather(name, stuff)
        end.send_all(name, values)
        return values
    end.send(name, stuff)
    values = end.receive(name)
    assert isinstance(values, list)
    return values


def _broadcast(end: Union[Hub, Spoke], name: str, stuff: Any) -> Any:
    if isinstance(end, Hub):
        end.send_all(name, stuff)
        return stuff
    return end.receive(name)


def _check(rank: int, size: int, rank_name: str, size_name: str) -> None:
    if not 0 <= rank < size:
        raise ValueError("%s=%r does not fit %s=%r" % (rank_name, rank, size_name, size))


def _variable(name: str) -> int:
    text = os.environ.get(name)
    if text is None or not text.lstrip("-").isdigit():
        raise ValueError("%s is not set to a number: was this process started by the distributed launcher?" % name)
    return int(text)


_LONGEST_PARENT = 60  # characters; a Unix socket's whole path may have 107


def _private_folder() -> Path:
    """A folder of this user alone, for sockets: the job's, or one under the system's temporary folder."""
    run_dir = os.environ.get("TRAINMASTER_RUN_DIR")
    if run_dir:
        return Path(run_dir)
    parent = tempfile.gettempdir()
    if len(parent) > _LONGEST_PARENT:
        parent = "/tmp"  # noqa: S108 - the folder below is this user's alone, or refused
    folder = Path(parent) / ("trainmaster-%d" % os.getuid())
    folder.mkdir(mode=0o700, exist_ok=True)
    status = os.lstat(str(folder))
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise DistributedError("%s must be a folder that only this user can enter; remove it" % folder)
    return folder


def _socket_path(star: str, port: int, node: int) -> str:
    # Outside a job several trainings of one user may run on one machine; torchrun's own meeting point tells
    # them apart.
    where = "%s %d %d %s" % (star, port, node, os.environ.get("MASTER_PORT", ""))
    name = hashlib.sha256(where.encode()).hexdigest()[:12]
    return str(_private_folder() / ("core-%s.sock" % name))


def _key(*, one_node: bool, port: int) -> bytes:
    """The key of this training's connections.

    Derived from the session token, or from TRAINMASTER_DISTRIBUTED_KEY; without either, on one machine, a
    random one in a file that only this user can read.
    """
    secret = os.environ.get("DET_SESSION_TOKEN") or os.environ.get("TRAINMASTER_DISTRIBUTED_KEY")
    if secret is None:
        if not one_node:
            raise ValueError(
                "outside a job, several nodes need a common secret: set TRAINMASTER_DISTRIBUTED_KEY to the same "
                "random text on all of them"
            )
        secret = _key_file(port)
    return hmac.new(secret.encode("utf-8"), b"trainmaster distributed context", hashlib.sha256).digest()


def _key_file(port: int) -> str:
    path = _private_folder() / ("core-%d.key" % port)
    try:
        file = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # Another rank made it, perhaps just now.
        deadline = time.monotonic() + 5
        while not path.read_text(encoding="ascii") and time.monotonic() < deadline:
            time.sleep(0.01)
        return path.read_text(encoding="ascii")
    secret = secrets.token_hex(32)
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(secret)
    return secret
