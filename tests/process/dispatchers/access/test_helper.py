"""The helper program alone: one file for Python 3.8, with valid and invalid requests."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.process.runtime.test_python38 import PYTHON38, needs_python38
from trainmaster.dispatchers.base import Ambiguous, Unreachable
from trainmaster.dispatchers.cluster.access import helper_client
from trainmaster.dispatchers.cluster.access.remote import RemoteShell
from trainmaster.dispatchers.cluster.access.transport import LocalTransport
from trainmaster.dispatchers.cluster.jobfolder import helper, job_files, own_files, shared_files

MARK = "0123456789abcdef" * 2


def ask(python: str, request: object, noise: str = "") -> dict[str, object]:
    """One conversation with the helper as it is run where it is not installed."""
    source = helper_client.own_source()
    told = b"%d\n%s" % (len(source), source) + (noise or json.dumps(request)).encode() + b"\n"
    done = subprocess.run(helper_client.bootstrap(python), input=told, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    greeting, _, said = done.stdout.decode().partition("\n")
    assert greeting == f"trainmaster-helper {helper.VERSION} ready"
    found: dict[str, object] = json.loads(said.strip().removeprefix(MARK).removesuffix(MARK))
    return found


def life(python: str, root: Path) -> None:
    common = {"mark": MARK, "deadline": 20, "user": None, "root": str(root), "token": "det-1"}
    files = {"a/b": {"content": helper.pack(b"x" * 1000), "mode": 0o600}}
    shared = {"sha256": hashlib.sha256(b"code").hexdigest(), "content": helper.pack(b"code")}
    known = {"shelf": ".shared-us", "shared": {"zip": {"sha256": shared["sha256"]}}}
    assert ask(python, {**common, "verb": "stage", "files": files, **known}) == {"ok": {"missing": ["zip"]}}
    assert not (root / "det-1").exists()
    for told in ({**known, "shared": {"zip": shared}}, known):
        assert ask(python, {**common, "verb": "stage", "files": files, **told}) == {"ok": {"missing": []}}
        assert (root / "det-1/zip").read_bytes() == b"code"
    for wrong in ({"shelf": "../us"}, {"shelf": "us"}, {"shared": {"zip": {**shared, "sha256": "0" * 64}}}):
        assert "refused" in ask(python, {**common, "verb": "stage", "files": {}, **known, **wrong})
    assert (root / "det-1/a/b").read_bytes() == b"x" * 1000
    (root / "det-1/exit/0.json").write_text("{}")
    (root / "det-1/spool/core.jsonl").write_text("1\n")
    left = ask(python, {**common, "verb": "collect"})["ok"]
    assert isinstance(left, dict)
    assert left["output_tail"] is None
    (root / "det-1/output.txt").write_text("out")
    left = ask(python, {**common, "verb": "collect", "places": {}})["ok"]
    assert isinstance(left, dict)
    assert helper.unpack(left["exits"]["0"]) == b"{}"
    assert helper.unpack(left["streams"]["core"][0]) == b"1\n"
    assert helper.unpack(left["output_tail"]) == b"out"
    end = ask(python, {**common, "verb": "tail", "limit": 2})["ok"]
    assert isinstance(end, dict)
    assert helper.unpack(end["output_tail"]) == b"ut"
    done = ask(python, {**common, "verb": "run", "argv": ["sh", "-c", "echo $X; cat"], "environment": {"X": "1"}})["ok"]
    assert isinstance(done, dict)
    assert helper.unpack(done["stdout"]) == b"1\n"
    old = time.time() - 2 * shared_files.UNUSED
    for place in (root / ".shared-us" / str(shared["sha256"]), root / ".shared-us"):
        os.utime(place, (old, old))
    assert ask(python, {**common, "verb": "forget"}) == {"ok": {}}
    assert [path.name for path in root.rglob("*")] == [".shared-us"]


def test_a_job_folders_life(tmp_path: Path) -> None:
    life(sys.executable, tmp_path)


@needs_python38
def test_the_same_on_python38(tmp_path: Path) -> None:
    assert PYTHON38 is not None
    life(PYTHON38, tmp_path)


def test_one_file_of_the_standard_library() -> None:
    tree = ast.parse(helper_client.own_source(), feature_version=(3, 8))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_its_parts_name_nothing_twice() -> None:
    tree = ast.parse(helper_client.own_source())
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    given = [target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
             if isinstance(target, ast.Name)]  # fmt: skip
    assert len(set(defined + given)) == len(defined + given)


def clearing(python: str, root: Path) -> None:
    common = {"mark": MARK, "deadline": 20, "user": None, "verb": "clear", "folder": str(root / "key")}
    (root / "key" / "sub").mkdir(parents=True)
    for name in ("a.bin", "b.txt", "sub/c.bin"):
        (root / "key" / name).write_text("12")
    there = {"a.bin": 2, "b.txt": 2, "sub/": 0, "sub/c.bin": 2}
    assert ask(python, {**common, "patterns": []})["ok"] == {"left": there}
    assert ask(python, {**common, "patterns": ["**/*.bin"]})["ok"] == {"left": {"b.txt": 2, "sub/": 0}}
    assert ask(python, {**common, "patterns": ["**/*"]})["ok"] == {"left": {}}
    assert ask(python, {**common, "patterns": ["**/*"]})["ok"] == {"left": {}}, "again"
    assert list(root.iterdir()) == []
    (root / "key").symlink_to("/etc")
    assert "is a link" in str(ask(python, {**common, "patterns": ["**/*"]}))
    for folder in ("relative", "//etc/x", f"{root}/../x"):
        assert set(ask(python, {**common, "folder": folder, "patterns": []})) == {"refused"}
    assert "cannot be understood" in str(ask(python, {**common, "patterns": 7})["refused"])


def test_files_of_a_checkpoint_are_cleared(tmp_path: Path) -> None:
    clearing(sys.executable, tmp_path)


@needs_python38
def test_files_are_cleared_the_same_on_python38(tmp_path: Path) -> None:
    assert PYTHON38 is not None
    clearing(PYTHON38, tmp_path)


def test_malformed_requests_and_unknown_verbs_are_refused() -> None:
    for noise in ("", "{", "[]", "7", '{"mark": "x"}', json.dumps({"mark": MARK})):
        assert "cannot be understood" in str(ask(sys.executable, None, noise or "\n")["refused"])
    request = {"mark": MARK, "deadline": 5, "verb": "format"}
    assert "unknown verb 'format'" in str(ask(sys.executable, request)["refused"])


names = st.text(st.sampled_from("ab./\0\n~$ "), max_size=12)


@given(root=names, token=names, name=names)
@settings(max_examples=200, deadline=None)
def test_no_name_leads_out_of_the_allowed_folder(
    root: str, token: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("base")
    inside = base / "allowed"
    inside.mkdir()
    with contextlib.suppress(own_files.RequestRefused, own_files.RequestFailed, OSError, ValueError):
        job_files.stage(f"{inside}{root}", token, {name: (b"x", 0o600)}, [str(inside)])
    assert [path.name for path in base.iterdir()] == ["allowed"]


def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "MAX_REQUEST", 1000)
    with pytest.raises(own_files.RequestRefused, match="larger than"):
        helper.unpack(helper.pack(b"x" * 1001))


def test_truncated_command_output_counts_as_failure() -> None:
    source = helper_client.own_source()
    small = source.replace(b"MAX_OUTPUT = 192 * 1024**2", b"MAX_OUTPUT = 10")
    assert small != source
    there = helper_client.HelperClient(LocalTransport({}), helper_client.bootstrap(sys.executable), source=small)
    shell = RemoteShell(there, None, {}, "/usr/bin:/bin")
    assert shell.run(["printf", "%s", "0123456789"], deadline=60).stdout == "0123456789"
    more = shell.run(["printf", "%s", "0123456789a"], deadline=60)
    assert isinstance(more.way_failure(), Unreachable)
    assert isinstance(more.way_failure("det-1", repeatable=False), Ambiguous)
    assert more.stdout == ""
