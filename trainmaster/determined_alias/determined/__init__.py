"""`import determined` in a job whose image does not have the package: the same names, from trainmaster.

Where the image does have it, the real package wins: this one looks for it first, tells it where the job's things are
and steps aside. TRAINMASTER_DETERMINED=ours in the job's environment takes ours instead.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Optional


def _the_real_one() -> Optional[ModuleSpec]:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.environ.get("TRAINMASTER_DETERMINED") == "ours":
        return None
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or os.getcwd()) != here]
    spec = importlib.machinery.PathFinder.find_spec("determined", elsewhere)
    # A folder of that name without an __init__ (data, say) is a namespace package and not meant.
    return spec if spec is not None and spec.loader is not None and spec.origin is not None else None


_spec = _the_real_one()
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["determined"] = _module
    _spec.loader.exec_module(_module)

    from trainmaster.runtime.published import settle

    settle(os.environ, os.path.dirname(os.path.dirname(__file__)))
else:
    from trainmaster import core
    from trainmaster.core import ClusterInfo, RendezvousInfo, ResourcesInfo, TrialInfo, get_cluster_info
    from trainmaster.core.errors import InvalidHP
    from trainmaster.core.importing import import_from_path

    from . import errors  # noqa: TID252 - a checker of types does not find this package by its name

    LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
    __version__ = "0.38.1"  # the release whose names these are
    __all__ = [
        "LOG_FORMAT",
        "ClusterInfo",
        "InvalidHP",
        "RendezvousInfo",
        "ResourcesInfo",
        "TrialInfo",
        "core",
        "errors",
        "get_cluster_info",
        "import_from_path",
    ]

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            "determined.%s is not part of trainmaster; an image that has the package determined has it" % name
        )
