"""Prepares the programs that the user's code runs with: environment modules, a virtual or conda environment, and the
user's own lines of shell, as `environment` in the configuration names them.

They become a script that the shell of the entrypoint reads before the startup hooks. Names and paths are quoted; only
`setup` is shell, the user's own, which runs as the user like the entrypoint.
"""

from __future__ import annotations

import os
import re
import shutil
from shlex import quote
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

KEYS = ("modules", "conda", "venv", "setup")  # of `environment`
_FOUND = "interpreter"  # in the run folder: which Python the entrypoint's shell finds
_PYTHON = re.compile(r"python[0-9.]*$")
# Where Lmod and Tcl's environment modules define the shell function `module`, beside $MODULESHOME and $LMOD_PKG.
_MODULE_SCRIPTS = (
    '"${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash"',
    '"${MODULESHOME:-/usr/share/modules}/init/bash"',
    "/etc/profile.d/lmod.sh",
    "/etc/profile.d/modules.sh",
    "/etc/profile.d/z00_lmod.sh",
)


def write_script(environment: Mapping[str, Any], run_dir: str) -> str:
    """Write the script for `environment`, a section of the configuration, and return its path. Raises OSError."""
    lines = script_for(environment)
    record = os.path.join(run_dir, _FOUND)
    lines.append("{ command -v python3 || command -v python || true; } >%s" % quote(record))
    path = os.path.join(run_dir, "interpreter.sh")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines) + "\n")
    return path


def script_for(environment: Mapping[str, Any]) -> List[str]:
    """Build the lines of the script; a step that fails ends the shell with a sentence that names the key."""
    lines: List[str] = []
    modules = [str(name) for name in environment.get("modules") or ()]
    if modules:
        lines += [
            "if ! command -v module >/dev/null 2>&1; then",
            "    set +e",
            "    for script in %s; do" % " ".join(_MODULE_SCRIPTS),
            '        if [ -r "$script" ]; then . "$script"; break; fi',
            "    done",
            "    set -e",
            "fi",
            "command -v module >/dev/null 2>&1 || %s" % _fail("modules", "this node has no environment modules"),
        ]
        lines += [
            "module load %s || %s" % (quote(module), _fail("modules", "%s cannot be loaded" % module))
            for module in modules
        ]
    conda = environment.get("conda")
    if conda:
        lines += [
            "command -v conda >/dev/null 2>&1 || %s" % _fail("conda", "there is no conda on PATH; load its module"),
            'eval "$(conda shell.posix hook)"',
            "conda activate %s || %s" % (quote(str(conda)), _fail("conda", "%s cannot be activated" % conda)),
        ]
    venv = environment.get("venv")
    if venv:
        script = os.path.join(str(venv), "bin", "activate")
        if not os.path.isabs(script):
            script = os.path.join(".", script)
        lines += [
            "[ -r %s ] || %s" % (quote(script), _fail("venv", "%s is no virtual environment that can be read" % venv)),
            ". %s" % quote(script),
        ]
    if environment.get("setup"):
        lines.append(str(environment["setup"]))
    return lines


def _fail(key: str, why: str) -> str:
    return '{ echo %s"$(uname -n)" >&2; exit 1; }' % quote("environment.%s: %s, on node " % (key, why))


def origin(
    environment: Mapping[str, Any],
    entrypoint: Union[str, Tuple[str, ...]],
    variables: Mapping[str, str],
) -> str:
    """Return a sentence on the interpreter that lacks a module, and where it comes from. `variables`: the environment
    of the user's process."""
    program = _program(entrypoint)
    python = program if os.sep in program else _recorded(variables) or shutil.which(program, path=variables.get("PATH"))
    keys = [key for key in KEYS if environment.get(key)]
    if os.sep in program:
        source = "the entrypoint names it"
    elif keys:
        source = "from %s" % " and ".join("environment.%s" % key for key in keys)
    else:
        source = "from PATH of the node or image; environment.venv, conda, modules and setup choose another"
    return "The interpreter that lacks it is %s (%s)." % (python or program, source)


def _program(entrypoint: Union[str, Tuple[str, ...]]) -> str:
    words: Sequence[str] = entrypoint.split() if isinstance(entrypoint, str) else entrypoint
    return next((word for word in words if _PYTHON.search(os.path.basename(word))), "python3")


def _recorded(variables: Mapping[str, str]) -> Optional[str]:
    try:
        with open(os.path.join(variables.get("TRAINMASTER_RUN_DIR", ""), _FOUND), encoding="utf-8") as file:
            return file.read().strip() or None
    except OSError:
        return None
