"""`python3 -m trainmaster.launchers.notebook [--idle KIND]`: JupyterLab for the job's owner.

It takes requests with a secret that only this job and the master know: other users of the node have no part in it.
Every half a minute it reports to the master whether it is in use, by KIND: `kernels_or_terminals` (there are some),
`kernel_connections` (a browser is connected to a kernel), `activity` (a kernel is busy, or has such a connection).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, List, Mapping, Sequence

from trainmaster.launchers.service import Service
from trainmaster.runtime.connection import Connection

_TIMEOUT = 10.0  # seconds for each wait on JupyterLab
LOST = (
    "The files in this notebook's folder (%s) are removed when it ends: keep work elsewhere, or set work_dir to a "
    "folder that stays, as your home without a container, or one of bind_mounts."
)
KINDS = ("kernels_or_terminals", "kernel_connections", "activity")


def main(arguments: Sequence[str]) -> int:
    """Run JupyterLab to its end; returns the status to leave with."""
    kind = arguments[1] if len(arguments) == 2 and arguments[0] == "--idle" else KINDS[0]
    if kind not in KINDS:
        print("--idle must be one of %s, not %r" % (", ".join(KINDS), kind), file=sys.stderr)
        return 64
    service = Service()
    folder = os.path.realpath(os.getcwd())
    if folder.startswith(os.path.realpath(str(service.run_dir)) + os.sep):
        print(LOST % folder, flush=True)

    def report_idle() -> None:
        kernels, terminals = (
            list_running(service.address, service.port, service.prefix + what, service.secret)
            for what in ("api/kernels", "api/terminals")
        )
        body = {"notebookId": service.info.task_id, "idle": not in_use(kernels, terminals, kind)}
        service.report("PUT", "/api/v1/notebooks/%s/report_idle" % service.info.task_id, body)

    every = float(os.environ.get("TRAINMASTER_IDLE_LOOK", "30"))
    environment = {**os.environ, "JUPYTER_TOKEN": service.secret}
    return service.run(lambda: command(service.address, service.port, service.prefix), environment, report_idle, every)


def command(address: str, port: int, prefix: str) -> List[str]:
    """Build JupyterLab's argument vector; its token comes by JUPYTER_TOKEN, which no listing of processes shows."""
    return [
        "jupyter",
        "lab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=%s" % address,
        "--ServerApp.port=%d" % port,
        "--ServerApp.port_retries=0",
        "--ServerApp.base_url=%s" % prefix,
        "--ServerApp.allow_remote_access=True",
        "--ServerApp.quit_button=False",
    ]


def list_running(address: str, port: int, path: str, secret: str) -> List[Mapping[str, Any]]:
    """List the kernels or terminals that JupyterLab has under `path`; none when it does not answer with a list."""
    try:
        connection = Connection(address, port, _TIMEOUT)
        try:
            answer = connection.request("GET", path, {"Authorization": "token " + secret}, None, _TIMEOUT)
        finally:
            connection.close()
        data = json.loads(answer.body.decode("utf-8")) if answer.status == 200 else None
    except (OSError, ValueError):
        return []
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []


def in_use(kernels: Sequence[Mapping[str, Any]], terminals: Sequence[Mapping[str, Any]], kind: str) -> bool:
    """Whether the notebook counts as used, by `kind` (the module's docstring)."""
    if kind == "kernels_or_terminals":
        return bool(kernels or terminals)
    connected = any(int(kernel.get("connections") or 0) > 0 for kernel in kernels)
    if kind == "kernel_connections":
        return connected
    return connected or any(kernel.get("execution_state") == "busy" for kernel in kernels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
