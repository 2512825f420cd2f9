"""`python3 -m trainmaster.launchers.notebook [--idle KIND]`: JupyterLab for the job's owner.

It takes requests with a secret that only this job and the master know: other users of the node have no part in it.
The master hears every half a minute whether anything goes on in it, by KIND: `kernels_or_terminals` (there are some),
`kernel_connections` (somebody looks at a kernel), `activity` (a kernel is busy, or somebody looks at one).
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any, List, Mapping, Sequence

from trainmaster.launchers.service import Service

KINDS = ("kernels_or_terminals", "kernel_connections", "activity")


def main(arguments: Sequence[str]) -> int:
    """Returns the status to leave with."""
    kind = arguments[1] if len(arguments) == 2 and arguments[0] == "--idle" else KINDS[0]
    if kind not in KINDS:
        print("--idle must be one of %s, not %r" % (", ".join(KINDS), kind), file=sys.stderr)
        return 64
    service = Service()

    def look() -> None:
        body = {
            "notebookId": service.info.task_id,
            "idle": not in_use(ask(service, "kernels"), ask(service, "terminals"), kind),
        }
        service.report("PUT", "/api/v1/notebooks/%s/report_idle" % service.info.task_id, body)

    every = float(os.environ.get("TRAINMASTER_IDLE_LOOK", "30"))
    environment = {**os.environ, "JUPYTER_TOKEN": service.secret}
    return service.run(lambda: command(service.address, service.port, service.prefix), environment, look, every)


def command(address: str, port: int, prefix: str) -> List[str]:
    """JupyterLab without a browser; the token comes by JUPYTER_TOKEN, which no listing of processes shows."""
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


def ask(service: Service, what: str) -> List[Mapping[str, Any]]:
    """The kernels or terminals that there are; none when it cannot be told."""
    url = "http://%s:%d%sapi/%s" % (service.address, service.port, service.prefix, what)
    request = urllib.request.Request(url, headers={"Authorization": "token %s" % service.secret})  # noqa: S310
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=10) as answer:
            found = json.loads(answer.read().decode("utf-8"))
    except (OSError, ValueError, urllib.error.URLError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def in_use(kernels: Sequence[Mapping[str, Any]], terminals: Sequence[Mapping[str, Any]], kind: str) -> bool:
    """Whether anything goes on."""
    if kind == "kernels_or_terminals":
        return bool(kernels or terminals)
    connected = any(int(kernel.get("connections") or 0) > 0 for kernel in kernels)
    if kind == "kernel_connections":
        return connected
    return connected or any(kernel.get("execution_state") == "busy" for kernel in kernels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
