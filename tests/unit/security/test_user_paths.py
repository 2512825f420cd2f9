"""Only one module walks, resolves or removes trees of users' files; the exceptions are listed with reasons."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster

HOME = Path(trainmaster.__file__).parent
PARTS = ("master", "dispatchers", "agent", "containers")
THE_MODULE = "dispatchers/cluster/jobfolder/trees.py"
WALKS = {
    *("rmtree", "copytree", "glob", "iglob", "rglob", "iterdir", "walk", "fwalk", "realpath", "removedirs"),
    "scandir",
}
NO_USERS = {
    ("master/db/embedded.py", "resolve"): (1, "the master's own data folder"),
    ("master/db/binaries.py", "resolve"): (1, "PostgreSQL's programs"),
    ("master/db/binaries.py", "glob"): (2, "PostgreSQL's programs"),
    ("dispatchers/cluster/access/openssh_transport.py", "rmtree"): (1, "the folder of the master's own sockets"),
    ("dispatchers/docker/dispatcher.py", "glob"): (2, "job folders of the master's side, which no job sees"),
    ("containers/cache.py", "walk"): (1, "the folder of images, by the account whose folder it is"),
    ("containers/cache.py", "glob"): (1, "the same"),
    ("containers/cache.py", "rglob"): (1, "the same"),
    ("containers/cache.py", "iterdir"): (1, "recipes of this package"),
    ("containers/cache.py", "rmtree"): (1, "drafts in it; rmtree goes by descriptors"),
    ("dispatchers/local/processes.py", "scandir"): (1, "folders for temporary files, of which this account's own"),
    ("dispatchers/local/processes.py", "rmtree"): (1, "are removed; rmtree goes by descriptors"),
    ("master/api/webui.py", "rglob"): (2, "the page's files in this package"),
    ("master/services/tasks/listeners.py", "iterdir"): (1, "/proc, which the kernel writes"),
    ("agent/mounts.py", "realpath"): (2, "what the host's administrator names"),
    ("agent/folders.py", "walk"): (1, "a new job folder, before it is given to the job's account"),
    ("agent/shared.py", "iterdir"): (3, "the agent's own folders: what its jobs share, and theirs, by their names"),
    ("agent/shared.py", "rmtree"): (1, "the same"),
    ("agent/folders.py", "rmtree"): (1, "folders in the agent's own, by their tokens; rmtree goes by descriptors"),
}
"""What walks over files that no user can write: how often, and why."""


def walks(source: str) -> Iterator[str]:
    """The names of the calls and imports in `source` by which files are walked."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.name in WALKS and node.module != "ast")
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name == "glob")
        elif isinstance(node, ast.Attribute) and node.attr in WALKS and ast.unparse(node) != "ast.walk":
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".resolve") and not node.args:
            yield "resolve"  # with arguments it is a pool that is looked for


def found() -> dict[tuple[str, str], int]:
    counted: Counter[tuple[str, str]] = Counter()
    for part in PARTS:
        for path in sorted((HOME / part).rglob("*.py")):
            place = path.relative_to(HOME).as_posix()
            if place != THE_MODULE:
                counted.update((place, name) for name in walks(path.read_text()))
    return counted


def test_no_other_module_walks_over_files() -> None:
    assert found() == {key: count for key, (count, _) in NO_USERS.items()}


@pytest.mark.parametrize(
    "line",
    [
        "shutil.rmtree(folder)",
        "from shutil import rmtree as gone",
        "import glob",
        "folder.glob('*')",
        "list(map(Path.rglob, roots))",
        "root = folder.resolve()",
        "folder.resolve(strict=True)",
        "os.walk(folder)",
        "for path in folder.iterdir(): pass",
        "os.path.realpath(path)",
    ],
)
def test_the_check_sees_a_new_use(line: str) -> None:
    assert list(walks(line))


def test_the_check_lets_others_be() -> None:
    assert not list(walks("clusters.resolve(pool, 1)\nos.unlink(name, dir_fd=folder)\nast.walk(tree)"))
