"""DistributedContext: collective calls among the ranks of one trial, with the names of Determined 0.38.1."""

from __future__ import annotations

import importlib
import json
import os
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Tuple, Union

from trainmaster.core.errors import DistributedError

if TYPE_CHECKING:
    from trainmaster.core.collectives_transport import Address, Coordinator, Member

DEFAULT_PUB_PORT = 12360
DEFAULT_PULL_PORT = 12376
_TIMEOUT = 600.0  # seconds for all ranks to connect; imports from a busy file system take minutes


class _Alone:
    """The transport of a process that has no other ranks."""

    def gather(self, _: str, value: Any) -> List[Any]:
        return [value]

    def allgather(self, _: str, value: Any) -> List[Any]:
        return [value]

    def broadcast(self, _: str, value: Any) -> Any:
        return value

    def close(self) -> None:
        return


Transport = Union[_Alone, "Coordinator", "Member"]


class DistributedContext:
    """Connects the ranks of one trial for collective calls.

    Every collective call must be made by all ranks (or, for the `_local` ones, by all ranks of the node) in the same
    order; otherwise it raises DistributedError, as it does when another rank has ended. Values are pickled; connections
    are authenticated with a key derived from the job's session token, so that no stranger can send any.

    Args:
        rank: This process among all `size` processes; 0 is the chief.
        size: Number of processes on all nodes.
        local_rank: This process among the `local_size` processes of its node.
        local_size: Number of processes on this node.
        cross_rank: This node among the `cross_size` nodes.
        cross_size: Number of nodes.
        chief_ip: Address of the chief's node, needed for several nodes. Default: DET_CHIEF_IP.
        pub_port: TCP port on the chief's node. Left at its default, the port that the job's rendezvous agreed upon.
        pull_port: Accepted for compatibility with Determined; one port is enough.
        port_offset: Added to `pub_port`.
        force_tcp: Use TCP also on one node, where otherwise a Unix socket is used.

    Raises:
        ValueError: A rank does not fit its size, or several nodes have no address or no common secret.
        DistributedError: The other ranks did not connect within 600 s.
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
        self._transports: List[Transport] = []
        chief_ip = chief_ip or os.environ.get("DET_CHIEF_IP")
        if cross_size > 1 and not chief_ip:
            raise ValueError("chief_ip is needed for more than one node (DET_CHIEF_IP is not set either)")
        self._all: Transport = _Alone()
        self._local: Transport = self._all
        if size == 1:
            return
        from trainmaster.core.collectives_endpoint import connection_key, socket_path  # only several ranks need them

        port = pub_port + port_offset
        if pub_port == DEFAULT_PUB_PORT and os.environ.get("TRAINMASTER_DISTRIBUTED_PORT"):
            port = int(os.environ["TRAINMASTER_DISTRIBUTED_PORT"])
        by_tcp = cross_size > 1 or force_tcp
        address: Address = (chief_ip or "127.0.0.1", port) if by_tcp else socket_path("all", port, 0)
        key = connection_key(one_node=cross_size == 1, port=port)
        self._all = self._connect(address, rank, size, key)
        if cross_size == 1:
            self._local = self._all
        elif local_size > 1:
            self._local = self._connect(socket_path("local", port, cross_rank), local_rank, local_size, key)

    @classmethod
    def from_environment(cls) -> DistributedContext:
        """Read ranks and sizes from the environment variables that the launchers set, whichever launcher it was.

        Returns:
            The context of this rank; that of a process that is alone, where no launcher started it.

        Raises:
            ValueError: Some of the variables are missing, or are no numbers.
        """
        if os.environ.get("WORLD_SIZE", "1") == "1":
            return single()
        return cls.from_torch_distributed() if "GROUP_WORLD_SIZE" in os.environ else cls.from_deepspeed()

    @classmethod
    def from_torch_distributed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """Read ranks and sizes from the environment variables that torchrun sets.

        Args:
            chief_ip: Address of the chief's node. Default: DET_CHIEF_IP.

        Returns:
            The context of this rank.

        Raises:
            ValueError: A variable is not set to a number.
        """
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
        """Read ranks and sizes from the environment variables that DeepSpeed's launcher sets.

        Args:
            chief_ip: Address of the chief's node. Default: DET_CHIEF_IP.

        Returns:
            The context of this rank.

        Raises:
            ValueError: A variable is not set to a number.
        """
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
        """Read ranks and sizes from Horovod.

        Args:
            hvd: An initialised `horovod.torch` or `horovod.tensorflow` module.
            chief_ip: Address of the chief's node. Default: DET_CHIEF_IP.

        Returns:
            The context of this rank.
        """
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
        """Read ranks and sizes from TF_CONFIG, which names one worker process for each node.

        Returns:
            The context, and the `tf.distribute` strategy that fits.

        Raises:
            ValueError: TF_CONFIG has no usable cluster and task.
        """
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
        """Return this process's rank over all nodes; 0 is the chief."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return this process's rank on its node."""
        return self.local_rank

    def get_size(self) -> int:
        """Return the number of processes."""
        return self.size

    def get_num_agents(self) -> int:
        """Return the number of nodes."""
        return self.cross_size

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        """Collect a value from every rank on the chief.

        Args:
            stuff: This rank's value; anything that can be pickled.

        Returns:
            On the chief all values in the order of the ranks, on the others None.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        return self._all.gather("gather", stuff)

    def gather_local(self, stuff: Any) -> Optional[List[Any]]:
        """`gather` among the ranks of this node.

        Args:
            stuff: This rank's value; anything that can be pickled.

        Returns:
            On local rank 0 all values in the order of the local ranks, on the others None.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        return self._local.gather("gather_local", stuff)

    def allgather(self, stuff: Any) -> List[Any]:
        """Collect a value from every rank on every rank.

        Args:
            stuff: This rank's value; anything that can be pickled.

        Returns:
            All values in the order of the ranks.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        return self._all.allgather("allgather", stuff)

    def allgather_local(self, stuff: Any) -> List[Any]:
        """`allgather` among the ranks of this node.

        Args:
            stuff: This rank's value; anything that can be pickled.

        Returns:
            All values in the order of the local ranks.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        return self._local.allgather("allgather_local", stuff)

    def broadcast(self, stuff: Any) -> Any:
        """Give every rank the chief's value.

        Args:
            stuff: The chief's value; ignored on the other ranks.

        Returns:
            The chief's value.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        return self._all.broadcast("broadcast", stuff)

    def broadcast_local(self, stuff: Any = None) -> Any:
        """`broadcast` among the ranks of this node.

        Args:
            stuff: The value of local rank 0; ignored on the other ranks.

        Returns:
            The value of local rank 0.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        return self._local.broadcast("broadcast_local", stuff)

    def close(self) -> None:
        """Close the connections to the other ranks. `with` does this."""
        while self._transports:
            self._transports.pop().close()

    def __enter__(self) -> DistributedContext:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _connect(self, address: Address, rank: int, size: int, key: bytes) -> Transport:
        from trainmaster.core.collectives_transport import Coordinator, Member

        transport: Transport
        try:
            transport = Coordinator(address, size, key, _TIMEOUT) if rank == 0 else Member(address, rank, key, _TIMEOUT)
        except OSError as error:
            self.close()
            raise DistributedError("rank %d cannot open %s for the others: %s" % (rank, address, error)) from error
        except DistributedError:
            self.close()
            raise
        self._transports.append(transport)
        return transport


def single() -> DistributedContext:
    """Return the context of a process that is alone."""
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


def _check(rank: int, size: int, rank_name: str, size_name: str) -> None:
    if not 0 <= rank < size:
        raise ValueError("%s=%r does not fit %s=%r" % (rank_name, rank, size_name, size))


def _variable(name: str) -> int:
    text = os.environ.get(name)
    if text is None or not text.lstrip("-").isdigit():
        raise ValueError("%s is not set to a number: was this process started by the distributed launcher?" % name)
    return int(text)
