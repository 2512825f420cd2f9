"""Has data copied to the node's own disk before the training starts, and held there until it ends, by a process of its
own (`trainmaster.core.node_data.keeper`)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional

from trainmaster.runtime.errors import NoData
from trainmaster.runtime.job import JobDescription, Work, with_certificate
from trainmaster.runtime.master import MasterCalls

LINKS = "data"  # below the run folder: a link for each item, by its name
_PATIENCE = 86400.0  # seconds for which other nodes may copy
_END = 600.0  # seconds for removing what is not to be kept


def wanted(work: Work) -> List[Mapping[str, Any]]:
    """Return the items of `data` that are to be on the node; Determined's own `data` is a mapping of the user's."""
    data = work.config.get("data")
    return [item for item in data if isinstance(item, dict)] if isinstance(data, (list, tuple)) else []


class NodeData:
    """The data of one job on one node.

    Args:
        package: The zip with the modules of the job.
        log: Takes sentences for the job's log.
        asked: The reason why the job is to leave, if it is.
    """

    patience = _PATIENCE

    def __init__(
        self,
        job: JobDescription,
        work: Work,
        master: MasterCalls,
        run_dir: str,
        package: str,
        log: Callable[[str], None],
        asked: Callable[[], Optional[str]],
    ) -> None:
        self._log, self._asked = log, asked
        self.links = os.path.join(run_dir, LINKS)
        self._order = {
            "items": wanted(work),
            "folder": job.node_data,
            "limit": job.node_data_limit,
            "links": self.links,
            "allocation_id": job.allocation_id,
            "master": master.arguments,
        }
        # The certificate by which the master is known, as the training gets it.
        self._environ: Dict[str, str] = {**with_certificate(job.folder, os.environ), "PYTHONPATH": package}
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._ready = False

    def bring(self) -> bool:
        """Copy what is not there. Returns False when the job was asked to leave meanwhile. Raises NoData."""
        if not self._order["folder"]:
            raise NoData("data: this cluster has no folder for data on its nodes (the administrator's node_data)")
        self._process = process = subprocess.Popen(
            [sys.executable, "-S", "-m", "trainmaster.core.node_data.keeper", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,  # a signal to the job's processes is not meant for it
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self._order).encode() + b"\n")
        process.stdin.flush()
        output = process.stdout.fileno()
        rest = b""
        while self._asked() is None:
            if not select.select([output], [], [], 0.5)[0]:
                continue
            piece = os.read(output, 65536)
            if not piece:
                raise NoData("data: the process that copies it has ended with status %d" % process.wait())
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                said = json.loads(line.decode())
                if "fault" in said:
                    raise NoData(said["fault"])
                if "ready" in said:
                    self._ready = True
                    return True
                self._log(said["log"])
        return False

    @property
    def pids(self) -> List[int]:
        """The process that holds the data."""
        return [] if self._process is None else [self._process.pid]

    def end(self) -> None:
        """Let go of the data: other jobs may remove it now."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if not self._ready:
            process.kill()  # what it has copied so far is there for the next one
        process.stdin.close()
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
