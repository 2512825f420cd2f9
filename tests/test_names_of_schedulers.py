"""No scheduler is known by name in master/, client/ and cli/: what one of them is or can, its dispatcher says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "trainmaster"
FOLDERS = ("master", "client", "cli")
NAME = re.compile(r"slurm|pbs|docker", re.IGNORECASE)
POOL = "a field of Determined's resource pools"
ENGINE = "the agent starts containers by Docker's engine, whose address it is given"
IMAGES = "a format of images, or the program that makes them"
ALLOWED = {
    "master/api/schemas/entities.py": {
        "agent_docker_image": POOL,
        "agent_docker_network": POOL,
        "agent_docker_runtime": POOL,
    },
    "client/wire.py": {"agentDockerImage": POOL, "agentDockerNetwork": POOL, "agentDockerRuntime": POOL},
    "cli/agent_daemon.py": {
        "--docker": ENGINE,
        "docker": ENGINE,
        "the Docker daemon (default: DOCKER_HOST or its usual socket)": ENGINE,
        "Docker %s, %d slots, agent %s": ENGINE,
    },
    "cli/admin_image.py": {
        "docker://": IMAGES,
        "Make an image from an Apptainer definition, or from a Dockerfile by way of the Docker daemon.": IMAGES,
        "a file, or one of ours: cpu.def, cuda.def, cpu.Dockerfile ...": IMAGES,
        "Fetch an image from a registry, the Docker daemon or a local archive, and convert it.": IMAGES,
        "docker-archive:FILE ... (default: docker://NAME)": IMAGES,
        "Copy a SIF or squashfs file, or convert an archive of docker save.": IMAGES,
    },
}
"""By file: what may stand there, and why."""


def spoken(source: str) -> Iterator[tuple[int, str]]:
    """Identifiers and texts of a module, with their lines. Docstrings and comments do not count."""
    tree = ast.parse(source)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value
        for field in ("id", "attr", "arg", "name", "module", "asname"):
            if isinstance(word := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), word


def names(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in spoken(source) if NAME.search(text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_scheduler_is_known_by_name(folder: str) -> None:
    wrong, seen = [], set()
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        file = str(path.relative_to(PACKAGE))
        for line, text in names(path.read_text()):
            seen.add((file, text))
            if text not in ALLOWED.get(file, {}):
                wrong.append(f"{file}:{line}: {text!r:.80}")
    assert wrong == [], "ask the dispatcher's traits, options or capabilities instead"
    stale = {(file, text) for file, texts in ALLOWED.items() for text in texts if file.startswith(f"{folder}/")} - seen
    assert stale == set(), "these are not there any more; take them out of the list"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("if kind == 'pbs':\n    pass\n", 1),
        ("from x import SlurmManager\n", 1),
        ("def of(docker): return docker.y\n", 2),
        ("config['slurm']\n", 1),
        ('"""Slurm."""\nx = 1  # PBS\nclass A:\n    """Docker."""\n    y: int\n    """PBS."""\n', 0),
    ],
)
def test_the_check_sees_code_and_overlooks_prose(source: str, count: int) -> None:
    assert len(names(source)) == count
