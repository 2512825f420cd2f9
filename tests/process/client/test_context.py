"""The files that are sent with an experiment, and those that `.detignore` excludes."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainmaster.client import ignore
from trainmaster.client.context import FOLDER, LIMIT, REGULAR, collect
from trainmaster.client.errors import ClientError


def tree(root: Path, *paths: str) -> Path:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            target.mkdir(exist_ok=True)
        else:
            target.write_text(path)
    return root


def names(root: Path) -> list[str]:
    return [entry["path"] for entry in collect(root)]


def test_files_come_with_content_mode_and_time(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "lib/net.py")
    (tmp_path / "train.py").chmod(0o755)
    os.utime(tmp_path / "train.py", (1_700_000_000, 1_700_000_000))
    entries = {entry["path"]: entry for entry in collect(tmp_path)}
    assert list(entries) == ["lib", "train.py", "lib/net.py"]
    assert base64.b64decode(entries["train.py"]["content"]) == b"train.py"
    assert (entries["train.py"]["mode"], entries["train.py"]["mtime"]) == (0o755, "1700000000")
    assert (entries["lib"]["type"], entries["train.py"]["type"]) == (FOLDER, REGULAR)
    assert collect(tmp_path).size == len("train.py") + len("lib/net.py")


def test_an_include_comes_under_its_own_name(tmp_path: Path) -> None:
    tree(tmp_path / "code", "train.py")
    tree(tmp_path / "shared", "a.txt", "b.log", ".detignore")
    (tmp_path / "shared/.detignore").write_text("*.log\n")
    tree(tmp_path, "one.txt")
    sent = [entry["path"] for entry in collect(tmp_path / "code", [tmp_path / "shared", tmp_path / "one.txt"])]
    assert sent == ["train.py", "shared", "shared/a.txt", "one.txt"]


def test_two_things_of_one_name_are_refused(tmp_path: Path) -> None:
    tree(tmp_path, "code/data/x", "other/data/y")
    with pytest.raises(ClientError, match="called data; rename one"):
        collect(tmp_path / "code", [tmp_path / "other/data"])


def test_caches_and_hidden_files_are_not_sent(tmp_path: Path) -> None:
    tree(
        tmp_path, "train.py", "__pycache__/train.pyc", "lib/x.pyc", ".git/config", ".idea/x", ".DS_Store", ".detignore"
    )
    assert names(tmp_path) == ["lib", "train.py"]


def test_a_rule_can_be_taken_back(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "model.pyc")
    (tmp_path / ".detignore").write_text("!*.pyc\n")
    assert names(tmp_path) == ["model.pyc", "train.py"]


def test_too_much_names_the_largest_and_reads_nothing(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "data/")
    for name, size in (("small.bin", LIMIT // 3), ("large.bin", 40 * 2**30)):
        with (tmp_path / "data" / name).open("wb") as file:
            file.truncate(size)  # sparse
    started = time.monotonic()
    with pytest.raises(ClientError, match=r"The largest is data/large\.bin \(40960\.0 MB\).*\.detignore"):
        collect(tmp_path)
    assert time.monotonic() - started < 20  # reading it would take minutes
    (tmp_path / ".detignore").write_text("large.bin\n")
    assert "data/small.bin" in names(tmp_path)


def test_a_master_may_take_more(tmp_path: Path) -> None:
    tree(tmp_path, "train.py")
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(LIMIT)
    with pytest.raises(ClientError, match=r"have 95\.0 MB; the master accepts 95 MB"):
        collect(tmp_path)
    assert {file["path"] for file in collect(tmp_path, limit=lambda: 2 * LIMIT)} == {"large.bin", "train.py"}


def test_links(tmp_path: Path) -> None:
    tree(tmp_path, "code/train.py", "elsewhere/data.txt")
    (tmp_path / "code/data").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "code") == ["data", "train.py", "data/data.txt"]
    (tmp_path / "code/loop").symlink_to(tmp_path / "code")
    with pytest.raises(ClientError, match=r"loop is a link to a folder that contains it; name it in \.detignore"):
        collect(tmp_path / "code")
    (tmp_path / "code/loop").unlink()
    (tmp_path / "code/gone").symlink_to(tmp_path / "nothing")
    with pytest.raises(ClientError, match=r"gone cannot be read: No such file or directory\. Name it in \.detignore"):
        collect(tmp_path / "code")


def test_named_pipe_and_missing_folder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ClientError, match="neither a file nor a folder"):
        collect(tmp_path)
    with pytest.raises(ClientError, match=r"nowhere does not exist; the second argument is the folder"):
        collect(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("rules", "kept", "left"),
    [
        ("*.log", ["a.txt"], ["a.log", "deep/b.log"]),
        ("data/", ["x/data.txt"], ["data/x", "deep/data/y"]),
        ("/data", ["deep/data/y"], ["data/x"]),
        ("deep/*.log", ["a.log", "deep/er/b.log"], ["deep/b.log"]),
        ("**/er/x", ["x"], ["deep/er/x", "er/x"]),
        ("deep/**/x", ["x", "deep/y"], ["deep/x", "deep/er/er/x"]),
        ("logs/*\n!logs/keep", ["logs/keep"], ["logs/x"]),
        ("logs/\n!logs/keep", [], ["logs/keep"]),  # what lies in a folder that is left cannot be taken back
        ("logs/**\n!logs/keep", ["logs/keep"], ["logs/x"]),
        ("# comment\n\n\\#x", ["comment"], ["#x"]),
        ("\\!x", ["x"], ["!x"]),
        ("a[0-9].txt", ["ab.txt", "a.txt"], ["a1.txt"]),
        ("a[!0-9].txt", ["a1.txt"], ["ab.txt"]),
        ("a[^0-9].txt", ["a1.txt"], ["ab.txt"]),
        ("?.txt", ["ab.txt"], ["a.txt"]),
        ("a\\*", ["ab"], ["a*"]),
        ("x   ", ["y"], ["x"]),
    ],
)
def test_detignore(tmp_path: Path, rules: str, kept: list[str], left: list[str]) -> None:
    tree(tmp_path, *kept, *left)
    (tmp_path / ".detignore").write_text(rules)
    sent = set(names(tmp_path))
    assert [path for path in kept if path not in sent] == []
    assert [path for path in left if path in sent] == []


# Two stars inside a name are ordinary stars (gitignore(5)). git itself takes those of `a**/` for a leading `**/`, as it
# compares the literal start first; so no part has them here.
part = st.text(alphabet="ab.*?", min_size=1, max_size=3).filter(lambda text: text.strip(".") and "**" not in text)
pattern = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/", "!", "**/"]),
    st.lists(st.one_of(part, st.just("**")), min_size=1, max_size=3),
    st.sampled_from(["", "/", "/**"]),
)
path = st.lists(st.text(alphabet="ab.", min_size=1, max_size=3).filter(lambda t: t.strip(".")), min_size=1, max_size=3)


# git itself is the judge here. scripts/test installs it as root; whoever unpacked an archive may have none.
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pattern, min_size=1, max_size=3), st.lists(path, min_size=1, max_size=6))
def test_detignore_decides_as_git_does(
    tmp_path_factory: pytest.TempPathFactory, rules: list[str], paths: list[list[str]]
) -> None:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("\n".join(rules))
    for parts in paths:
        try:
            (root / Path(*parts)).parent.mkdir(parents=True, exist_ok=True)
            (root / Path(*parts)).touch()
        except OSError:
            pass  # one path's file is another's folder
    listed = ["git", "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard"]
    by_git = set(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")) - {
        "",
        ".gitignore",
    }
    parsed = ignore.parse(rules)
    kept = set()
    for folder, folders, files in os.walk(root):
        here = Path(folder).relative_to(root).as_posix()
        inner = "" if here == "." else f"{here}/"
        folders[:] = [n for n in folders if n != ".git" and not ignore.ignored(inner + n, True, parsed)]
        kept |= {inner + n for n in files if not ignore.ignored(inner + n, False, parsed)}
    assert kept - {".gitignore"} == by_git
