"""What Python runs first in a job: `__main__.py` of runtime.zip. Also read by Pythons that are too old for the rest.

A job's first and last tenths of a second are paid by every trial. The runtime's own modules come from one piece of
bytecode (out of the zip each costs a tenth of a millisecond), there is no collection of garbage until all are read
(`main` goes on from there: what is read stays), and nobody needs Python taken apart at the end.
"""

import gc
import marshal
import os
import sys
import zipimport
from _frozen_importlib import ModuleSpec  # `importlib.machinery` is another module to read
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Dict, Tuple

    Codes = Dict[str, Tuple[bool, CodeType]]  # of each module: whether it is a package, and its code

TOGETHER = "runtime.marshal"  # in the zip: the number of a Python's bytecode, and Codes


class Together:
    """Finds and loads modules of which the code is at hand (PEP 451)."""

    def __init__(self, root: str, codes: "Codes") -> None:
        self._root = root
        self._codes = codes

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":  # noqa: ARG002 the protocol's
        if name not in self._codes:
            return None
        spec = ModuleSpec(name, self, origin=self._root)  # type: ignore[arg-type]  # the protocol is no base class
        if self._codes[name][0]:
            # What does not stand here is found in the zip.
            spec.submodule_search_locations = [self._root + "/" + name.replace(".", "/")]
        return spec

    def create_module(self, spec: object) -> None:
        """Python's own way will do."""

    def exec_module(self, module: "ModuleType") -> None:
        exec(self._codes[module.__name__][1], module.__dict__)  # noqa: S102 as every import does


def read_together(root: str) -> None:
    """Have the modules that stand together in the zip `root` found there, if their bytecode is this Python's."""
    content = zipimport.zipimporter(root).get_data(TOGETHER)
    if content.startswith(MAGIC_NUMBER):
        codes = marshal.loads(content[len(MAGIC_NUMBER) :])  # noqa: S302 from the zip that this code is from
        sys.meta_path.insert(0, Together(root, codes))


if __name__ == "__main__":
    if sys.version_info < (3, 8):
        sys.exit("trainmaster: the job's image needs Python 3.8 or newer, this is " + sys.version.split()[0])
    gc.disable()
    read_together(sys.path[0])
    from trainmaster.runtime.main import main

    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(status)
