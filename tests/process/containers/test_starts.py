"""The command line of each container runtime: the real `start.sh`, with a program that records its call."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.support.container_starts import Call, called
from tests.support.master import wait_for
from trainmaster import plugins
from trainmaster.containers import (
    SHARED_FILES,
    Bind,
    CannotStart,
    ContainerStart,
    Device,
    UnknownRuntime,
    container_runtime,
)
from trainmaster.containers.causes import DAMAGED, NO_IMAGE, NO_PYTHON, NO_TOOL, NOT_FETCHED, OLD_PYTHON
from trainmaster.containers.engines import NO_INIT
from trainmaster.containers.script import FORWARDED
from trainmaster.dispatchers.base import SharedFile
from trainmaster.dispatchers.cluster.folder import JobFolder
from trainmaster.dispatchers.conformance import programs

RUNTIMES = ("apptainer", "singularity", "docker", "podman", "enroot", "pyxis", "charliecloud")
OPTIONS = Path(__file__).resolve().parents[2] / "data" / "container-tools"
RECORDED = {
    "apptainer": ("apptainer-1.4.5",),
    "docker": ("docker-28.2.2",),
    "podman": ("podman-4.3.1", "podman-5.8.6"),
    "enroot": ("enroot-4.1.2",),
    "pyxis": ("pyxis-0.24",),
    "charliecloud": ("charliecloud-0.45.2",),
}


def start_of(folder: Path, **more: object) -> ContainerStart:
    (folder / "data").mkdir(exist_ok=True)
    given = {"binds": [Bind(str(folder / "data"), "/mnt/data")], **more}
    return ContainerStart(folder / "jobs" / "det-1", "/images/a.sif", **given)  # type: ignore[arg-type]


def of(runtime: str, folder: Path, environment: dict[str, str] | None = None, **more: object) -> Call:
    call, done = called(runtime, start_of(folder, **more), folder, environment)
    assert done.stderr == ""
    assert call.argv, "the program was not called"
    return call


def passed(runtime: str, call: Call) -> dict[str, str]:
    """What gets into the container, with its values."""
    prefix = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}.get(runtime)
    if prefix:
        return {key.removeprefix(prefix): value for key, value in call.environment.items() if key.startswith(prefix)}
    if runtime == "charliecloud":
        return dict(call.environment)
    names = call.values("--export")[0].split(",") if runtime == "pyxis" else call.values("--env")
    return {name: call.environment[name] for name in names}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_container_gets_only_listed_variables_unchanged(runtime: str, tmp_path: Path) -> None:
    evil = "$(touch /tmp/evaluated) `id` ${HOME} \"'; exit 9"
    given = {pattern.prefix + ("X" if pattern.open else ""): evil for pattern in FORWARDED}
    given |= {"PBS_O_PATH": "x", "DET_USER_TOKEN": "x", "LD_PRELOAD": "", "https_proxy": "http://proxy"}
    found = passed(runtime, of(runtime, tmp_path, given, variables={"LITERAL": evil}))
    assert found["LITERAL"] == evil
    assert {name for name in given if name in found} == {p.prefix + ("X" if p.open else "") for p in FORWARDED}
    changed = {"NVIDIA_VISIBLE_DEVICES", "TRAINMASTER_NODE_RANK", "TRAINMASTER_NUM_NODES"}
    assert {found[name] for name in given if name in found and name not in changed} == {evil}
    assert "SECRET_OF_THE_NODE" not in found
    assert found["TRAINMASTER_NODE_DIR"] == "/run/determined"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_job_sees_its_folders_and_private_ones(runtime: str, tmp_path: Path) -> None:
    job = f"{tmp_path}/jobs/det-1"
    call = of(
        runtime, tmp_path, binds=[Bind(f"{tmp_path}/data", "/mnt/data"), Bind(f"{tmp_path}/data", "/run/determined/d")]
    )
    said = " ".join(
        [*call.argv, *(f"TMPDIR={call.environment.get('TMPDIR')}" for _ in "1" if runtime == "charliecloud")]
    )
    said = said.replace('"', "")
    for source, target in (
        (job, job),
        (f"{tmp_path}/data", "/mnt/data"),
        (f"{tmp_path}/data", "/run/determined/d"),
        ("PRIVATE/run", "/run/determined"),
        ("PRIVATE/tmp", "/tmp"),
        ("PRIVATE/home", "/home/ada"),
    ):
        forms = (f"source={source},destination={target}", f"{source}:{target}", f"TMPDIR={source}")
        assert any(form in said for form in forms), f"{source} is not mounted on {target}: {said}"
    assert call.argv[-2:] == [f"{job}/runtime.zip", job]


@pytest.mark.parametrize("runtime", [r for r in RUNTIMES if r != "charliecloud"])
def test_a_mount_can_be_read_only(runtime: str, tmp_path: Path) -> None:
    call = of(runtime, tmp_path, binds=[Bind(f"{tmp_path}/data", "/mnt/data", read_only=True)])
    (mount,) = [part for word in call.argv for part in word.split(",PRIVATE") if "/mnt/data" in part]
    assert {"ro", "readonly"} & set(
        mount.replace("+", ",").split("/mnt/data")[1].replace('"', "").replace(":", ",").split(",")
    )


@pytest.mark.parametrize("runtime", [r for r in RUNTIMES if SHARED_FILES in container_runtime(r).supports])
def test_shared_files_are_seen_and_not_changed(runtime: str, tmp_path: Path) -> None:
    there, gone = tmp_path / "jobs/.shared-ada/ab", tmp_path / "jobs/.shared-ada/cd"
    there.mkdir(parents=True)
    words = of(runtime, tmp_path, shared=[there, gone]).argv
    (mount,) = [part for word in words for part in word.split(",PRIVATE") if str(there) in part]
    read_only = mount.replace("+", ",").replace('"', "").rsplit(str(there), 1)[1].replace(":", ",").split(",")
    assert {"ro", "readonly"} & set(read_only)
    assert not [word for word in words if str(gone) in word]


def test_charliecloud_shares_nothing() -> None:
    """It cannot mount read-only, and the file is that of other jobs too."""
    assert SHARED_FILES not in container_runtime("charliecloud").supports


@pytest.mark.parametrize("damage", ["", "short", "gone"])
def test_a_shared_runtime_is_checked_before_it_runs(damage: str, tmp_path: Path) -> None:
    program = next(iter(programs.runtime("print('it ran')").values()))
    assert isinstance(program, SharedFile)
    folder = JobFolder(tmp_path / "jobs", "det-1")
    folder.stage_sharing({"runtime.zip": program})
    file = (folder.path / "runtime.zip").resolve()
    if damage:
        file.unlink()
    if damage == "short":
        file.write_bytes(program.content[:-1])
    words = [sys.executable, *ContainerStart(folder.path).process[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == ((75, "") if damage else (0, "it ran\n"))
    cause = container_runtime("apptainer").explain(done.stderr)
    if damage:
        assert done.stderr.count("\n") == 1
        assert cause is not None
        assert (cause.final, cause.uncharged) == (False, True)
        assert str(folder.path) in cause.text


def test_charliecloud_refuses_read_only_mounts(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot mount '/data' read-only"):
        container_runtime("charliecloud").start_script(
            start_of(tmp_path, binds=[Bind("/data", "/mnt", read_only=True)])
        )


@pytest.mark.parametrize("runtime", sorted(RECORDED))
@pytest.mark.parametrize("gpus", [False, True])
def test_every_option_is_one_that_the_program_has(runtime: str, gpus: bool, tmp_path: Path) -> None:
    call = of(
        runtime,
        tmp_path,
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        gpus=gpus,
        shm_size=2**20,
        devices=[Device("/dev/fuse", "/dev/fuse")],
    )
    ends = call.argv.index("python3") if "--entrypoint" not in call.argv else call.argv.index("/images/a.sif")
    used = {word.partition("=")[0] for word in call.argv[:ends] if word.startswith("-")} - {"--"}
    for release in RECORDED[runtime]:
        assert used <= set((OPTIONS / f"{release}.txt").read_text().split()), release


@pytest.mark.parametrize(
    ("runtime", "options"),
    [
        ("docker", ["--gpus", '"device=GPU-0000-1,GPU-0000-3"']),
        ("podman", ["--device", "nvidia.com/gpu=GPU-0000-1", "--device", "nvidia.com/gpu=GPU-0000-3"]),
        ("enroot", []),
        ("pyxis", []),
    ],
)
def test_gpus_are_given_by_their_uuids(runtime: str, options: Sequence[str], tmp_path: Path) -> None:
    """A scheduler counts the GPUs of the job, these programs count those of the node."""
    call = of(runtime, tmp_path, {"CUDA_VISIBLE_DEVICES": "1,3"}, gpus=True)
    assert json.dumps(options)[1:-1] in json.dumps(call.argv)
    found = passed(runtime, call)
    assert found["CUDA_VISIBLE_DEVICES"] == found["NVIDIA_VISIBLE_DEVICES"] == "GPU-0000-1,GPU-0000-3"
    assert found["TRAINMASTER_SLOT_IDS"] == "[1,3]"


@pytest.mark.parametrize("runtime", ["docker", "podman", "enroot", "pyxis"])
@pytest.mark.parametrize(
    ("devices", "seen"), [("GPU-1b,GPU-2c", "GPU-1b,GPU-2c"), ("MIG-1", "MIG-1"), ("NoDevFiles", "void"), (None, "all")]
)
def test_gpus_by_other_words(runtime: str, devices: str | None, seen: str, tmp_path: Path) -> None:
    call = of(runtime, tmp_path, {"CUDA_VISIBLE_DEVICES": devices} if devices else {}, gpus=True)
    assert passed(runtime, call)["NVIDIA_VISIBLE_DEVICES"] == seen


@pytest.mark.parametrize("runtime", ["docker", "podman", "enroot", "pyxis"])
def test_no_gpu_without_gpus(runtime: str, tmp_path: Path) -> None:
    """Images for GPUs ask for all that a node has."""
    call = of(runtime, tmp_path, {"NVIDIA_VISIBLE_DEVICES": "all"})
    assert passed(runtime, call)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "--gpus" not in call.argv


def test_gpus_that_are_not_there_end_the_job_with_a_sentence(tmp_path: Path) -> None:
    call, done = called("docker", start_of(tmp_path, gpus=True), tmp_path, {"CUDA_VISIBLE_DEVICES": "7"})
    assert (call.argv, done.returncode) == ([], 1)
    assert done.stderr == "trainmaster: nvidia-smi does not find the job's GPUs (7) on n1: No devices were found\n"
    cause = container_runtime("docker").explain(done.stderr)
    assert cause is not None
    assert "No devices were found" in cause.text
    assert not cause.final


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_shared_memory_and_devices(runtime: str, tmp_path: Path) -> None:
    call = of(
        runtime, tmp_path, shm_size=2**30, devices=[Device("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0", "rw")]
    )
    assert call.values("--shm-size") == [str(2**30)]
    assert call.values("--device") == ["/dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rw"]
    assert container_runtime(runtime).supports == {"shm_size", "devices", SHARED_FILES}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_fresh_image(runtime: str, tmp_path: Path) -> None:
    wanted = {"docker": "always", "podman": "always"}
    call = of(runtime, tmp_path, fresh=True)
    assert call.values("--pull") == ([wanted[runtime]] if runtime in wanted else [])


@pytest.mark.parametrize(
    ("runtime", "image", "resolved"),
    [
        ("docker", "org/name:1", "org/name:1"),
        ("docker", "docker://org/name:1", "org/name:1"),
        ("podman", "docker-archive:/a.tar", "docker-archive:/a.tar"),
        ("enroot", "org/name:1", "org+name+1"),
        ("enroot", "/a.sqsh", "/a.sqsh"),
        ("pyxis", "nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io#nvidia/pytorch:24.01-py3"),
        ("pyxis", "org/name:1", "org/name:1"),
        ("pyxis", "localhost:5000/name", "localhost:5000#name"),
        ("charliecloud", "org/name:1", "org/name:1"),
        ("none", "whatever", "whatever"),
    ],
)
def test_names_of_images(runtime: str, image: str, resolved: str, tmp_path: Path) -> None:
    assert container_runtime(runtime).resolve(image, str(tmp_path)) == resolved
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name:1.sqsh").touch()
    found = container_runtime("enroot").resolve("org/name:1", str(tmp_path))
    assert found == str(tmp_path / "org" / "name:1.sqsh")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("image", ["", "-v", "a\nb"])
def test_no_image_is_an_option(runtime: str, image: str, tmp_path: Path) -> None:
    start = ContainerStart(tmp_path / "det-1", image)
    if image == "-v" and runtime in ("apptainer", "singularity"):
        return  # `resolve` makes it docker://-v
    if image == "" and runtime in ("apptainer", "singularity"):
        assert "No container image is given" in container_runtime(runtime).check(image)[0]
        return
    if image == "-v" and runtime == "pyxis":
        return  # behind an equals sign
    with pytest.raises(ValueError, match=r"image|container|control characters"):
        container_runtime(runtime).start_script(start)


@pytest.mark.parametrize(
    ("runtime", "path"), [("enroot", "/a b"), ("enroot", "/a:b"), ("pyxis", "/a,b"), ("charliecloud", "/a:b")]
)
def test_paths_that_cannot_be_written_are_refused(runtime: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="no path may hold"):
        container_runtime(runtime).start_script(start_of(tmp_path, binds=[Bind(path, "/mnt")]))


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_daemon_mounts_only_sources_that_account_can_open(runtime: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/run")
    for source, words in (("/run/docker.sock", "may not be mounted by a job"), ("/", "may not be mounted by a job")):
        with pytest.raises(CannotStart, match=words):
            container_runtime(runtime).start_script(start_of(tmp_path, binds=[Bind(source, "/mnt")]))
    for source, words in ((f"{tmp_path}/link", "no job may mount"), (f"{tmp_path}/gone", "cannot be opened by")):
        call, done = called(runtime, start_of(tmp_path, binds=[Bind(source, "/mnt")]), tmp_path)
        assert (call.argv, done.returncode) == ([], 1)
        assert words in done.stderr


def test_image_mounter_ignores_schedulers_signals(tmp_path: Path) -> None:
    """squashfuse as Apptainer finds it: on the PATH that start.sh gives it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    ignores = "[signal.getsignal(number) == signal.SIG_IGN for number in (15, 2, 1, 12)]"
    tells = f"import json, signal; json.dump({ignores}, open({{!r}}, 'w'))"
    (tools / "squashfuse_ll").write_text(f"#!{sys.executable} -S\n{tells.format(str(tmp_path / 'told'))}\n")
    (tools / "apptainer").write_text("#!/bin/sh\nexec squashfuse_ll\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    start = start_of(tmp_path)
    start.job_folder.mkdir(parents=True)
    (start.job_folder / "start.sh").write_text(
        container_runtime("apptainer", str(tools / "apptainer")).start_script(start)
    )
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    subprocess.run(["bash", str(start.job_folder / "start.sh")], env=environment, check=True, timeout=60)
    assert json.loads((tmp_path / "told").read_text()) == [True] * 4


def test_a_container_ends_with_its_start_script(tmp_path: Path) -> None:
    """By the lock alone: what stands for the container is no child of the script's process group."""
    tools = tmp_path / "tools"
    tools.mkdir()
    # Stands for the daemon: finds the file with the lock among the mounts, and waits for it as the container does.
    (tools / "docker").write_text(
        f"#!{sys.executable} -S\n"
        "import fcntl, os, re, sys\n"
        "if sys.argv[1] == 'rm': sys.exit()\n"
        f"alive = re.search('source=([^,]*/alive)', ' '.join(sys.argv).replace(chr(34), ''))[1]\n"
        f"open({str(tmp_path / 'begun')!r}, 'w').close()\n"
        "os.setsid()\n"
        "fcntl.flock(os.open(alive, os.O_RDONLY), fcntl.LOCK_EX)\n"
        f"open({str(tmp_path / 'ended')!r}, 'w').close()\n"
    )
    (tools / "docker").chmod(0o755)
    start = start_of(tmp_path)
    start.job_folder.mkdir(parents=True)
    (start.job_folder / "start.sh").write_text(container_runtime("docker", str(tools / "docker")).start_script(start))
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(["bash", str(start.job_folder / "start.sh")], env=environment) as process:
        wait_for((tmp_path / "begun").exists, "the container")
        assert not (tmp_path / "ended").exists()
        os.kill(process.pid, signal.SIGKILL)
        wait_for((tmp_path / "ended").exists, "the end of the container", 10)


@pytest.mark.parametrize(
    ("runtime", "line", "meaning", "final"),
    [
        ("apptainer", "FATAL:   While checking container encryption: could not open image /x.sif: failed to retrieve path for /x.sif: lstat /x.sif: no such file or directory", NO_IMAGE, True),  # noqa: E501
        ("apptainer", "FATAL:   While checking container encryption: could not open image /x: image format not recognized", DAMAGED, True),  # noqa: E501
        ("apptainer", 'FATAL:   "python3": executable file not found in $PATH', NO_PYTHON, True),
        ("apptainer", "FATAL:   stat /opt/conda/bin/python3: no such file or directory", NO_PYTHON, True),
        ("apptainer", "FATAL:   Unable to handle docker://h/x uri: failed to get checksum for docker://h/x: dial tcp", NOT_FETCHED, False),  # noqa: E501
        ("docker", "docker: Error response from daemon: pull access denied for x, repository does not exist", NO_IMAGE, True),  # noqa: E501
        ("docker", 'docker: Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup x', NOT_FETCHED, False),  # noqa: E501
        ("docker", 'docker: Error response from daemon: exec: "docker-init": executable file not found', NO_INIT, False),  # noqa: E501
        ("podman", "Error: container-init binary not found on the host: stat /usr/libexec/podman/catatonit", NO_INIT, False),  # noqa: E501
        ("docker", "[FATAL tini (7)] exec python3 failed: No such file or directory", NO_PYTHON, True),
        ("charliecloud", "ch-run[24735]: error: can't exec: python3: No such file or directory (misc.c:50 13)", NO_PYTHON, True),  # noqa: E501
        ("charliecloud", "ch-run[24737]: error: can't stat: /nowhere/x: No such file or directory (core.c:474 2 ENOENT)", NO_IMAGE, True),  # noqa: E501
        ("enroot", "[ERROR] No such file or directory: /home/ada/.local/share/enroot/org+name", NO_IMAGE, True),
        ("none", "trainmaster: the job's image needs Python 3.8 or newer, this is 3.6.9", OLD_PYTHON, True),
    ],
)  # fmt: skip
def test_failed_start_output_is_explained(runtime: str, line: str, meaning: str, final: bool) -> None:
    cause = container_runtime(runtime).explain(f"some warning\n{line}\nmore\n")
    assert cause is not None
    assert cause.text.startswith(f"{meaning}: ")
    assert cause.final is final
    assert container_runtime(runtime).explain("all is well\n") is None


@pytest.mark.parametrize("tool", ["/nowhere/tool", "no-such-tool"])
@pytest.mark.parametrize("runtime", [*RUNTIMES, "none"])
def test_a_program_that_is_not_there_is_understood(runtime: str, tool: str, tmp_path: Path) -> None:
    start = ContainerStart(tmp_path / "det-1", "/images/a.sif", python=tool if runtime == "none" else "python3")
    start.job_folder.mkdir()
    (start.job_folder / "start.sh").write_text(container_runtime(runtime, tool).start_script(start))
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/home/ada", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", ". ./start.sh"],
        cwd=start.job_folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 127
    cause = container_runtime(runtime).explain(done.stderr)
    assert cause is not None, done.stderr
    assert cause.text.startswith("The node has no working Python" if runtime == "none" else NO_TOOL)
    assert not cause.final
    assert [path.name for path in tmp_path.iterdir()] == ["det-1"], "the private folder stayed behind"


class Lacking:
    """A plugin without a method."""

    resolve = check = start_script = lambda self, *given, **named: None


def test_a_plugin_is_checked_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    here = f"{__name__}:Lacking"
    points = {"mine": here, "gone": "no_such_module:X"}
    found = {name: EntryPoint(name, value, "trainmaster.containers") for name, value in points.items()}
    monkeypatch.setattr(plugins, "installed", lambda kind: found)
    plugins.load.cache_clear()
    with pytest.raises(UnknownRuntime, match=r"'mine' \(.*Lacking\) has no method 'explain'.*Update the plugin"):
        container_runtime("mine")
    with pytest.raises(UnknownRuntime, match=r"'gone' .* cannot be imported: No module named 'no_such_module'"):
        container_runtime("gone")
    with pytest.raises(UnknownRuntime, match="Did you mean 'mine'"):
        container_runtime("mina")
    monkeypatch.setattr(Lacking, "explain", lambda self, output: None, raising=False)
    monkeypatch.setattr(Lacking, "__init__", lambda self, command: None)
    assert isinstance(container_runtime("mine"), Lacking)
    plugins.load.cache_clear()


@pytest.mark.parametrize("runtime", [*RUNTIMES, "none"])
def test_no_value_of_a_variable_is_a_word_of_a_program(runtime: str, tmp_path: Path) -> None:
    """All accounts of a node see the words of a process. Stand-ins of all programs of the system record theirs."""
    seen, programs_seen = tmp_path / "words", tmp_path / "programs"
    programs_seen.mkdir()
    (programs_seen / "stand-in").write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$0" "$@" >>{seen}\nPATH=/usr/bin:/bin exec "/usr/bin/${{0##*/}}" "$@"\n'
    )
    (programs_seen / "stand-in").chmod(0o755)
    for program in Path("/usr/bin").iterdir():
        (programs_seen / program.name).symlink_to("stand-in")
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\0" "$0" "$@" >>{seen}\n')
    tool.chmod(0o755)
    secrets = {"HF_TOKEN": "value-of-the-user", "LITERAL": "two words of-the-user"}
    forwarded = {pattern.prefix + ("X" if pattern.open else ""): "value-of-the-node" for pattern in FORWARDED}
    forwarded |= {"LD_PRELOAD": "", "TRAINMASTER_NODE_RANK": "0", "TRAINMASTER_NUM_NODES": "1", "SLURMD_NODENAME": "n1"}
    start = start_of(tmp_path, variables=secrets, gpus=True, **({} if runtime != "none" else {"binds": []}))
    if runtime == "none":
        start = dataclasses.replace(start, image="", python=str(tool))
    start.job_folder.mkdir(parents=True)
    command = None if runtime == "none" else str(tool)
    (start.job_folder / "start.sh").write_text(container_runtime(runtime, command).start_script(start))
    given = {**forwarded, "PATH": str(programs_seen), "HOME": "/home/ada", "USER": "ada", "TMPDIR": str(tmp_path)}
    subprocess.run(["/bin/bash", str(start.job_folder / "start.sh")], env=given, check=True, timeout=60)
    words = seen.read_text().split("\0")
    assert str(tool) in words, "the program was not started"
    assert [word for word in words if "of-the-user" in word or "of-the-node" in word] == []
