"""Both SSH clients against a real server: host keys, noise, lost connections, deadlines, many commands at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.access.sshd import Sshd
from tests.support.cluster.users import run_as
from tests.support.dispatcher_site import wait
from tests.support.runtime.waiting import has_ended
from trainmaster.dispatchers.base import Rejected, StagedFile, Transient, Unreachable
from trainmaster.dispatchers.cluster.access import helper_client
from trainmaster.dispatchers.cluster.access.access import Access, make_access
from trainmaster.dispatchers.cluster.access.config import AccessOptions, Impersonation

Make = Callable[..., Access]


@pytest.fixture(params=["paramiko", "openssh"])
def make(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path) -> Iterator[Make]:
    """Makes the way to the server as tmalice; keywords are keys of `ssh`, or `impersonation`."""
    made: list[Access] = []

    def make_one(root: Path = tmp_path, impersonation: str = "none", **ssh: object) -> Access:
        keys = {"host": "127.0.0.1", "port": sshd.port, "user": "tmalice", "client": request.param}
        keys |= {"identity_file": str(sshd.key), "known_hosts": str(sshd.known_hosts), **ssh}
        options = AccessOptions.model_validate(
            {"ssh": keys, "impersonation": impersonation, "job_storage_root": "/jobs"}
        )
        made.append(make_access(options, root))
        return made[-1]

    yield make_one
    for access in made:
        access.close()


@pytest.fixture
def frozen(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A context in which the server is frozen, and is not waited for as long as one that is merely slow."""

    @contextmanager
    def frozen() -> Iterator[None]:
        with monkeypatch.context() as patch, sshd.frozen():
            patch.setattr(helper_client, "START", 2.0)
            patch.setattr(helper_client, "MARGIN", 1.0)
            yield

    return frozen


@pytest.fixture
def home() -> Iterator[Path]:
    """Alice's home; what a test leaves in it is removed."""
    home = Path("/home/tmalice")
    before = set(home.iterdir())
    yield home
    for path in set(home.iterdir()) - before:
        subprocess.run(["rm", "-rf", str(path)], check=True)


def test_words_input_and_status_arrive(make: Make) -> None:
    odd = ["a b", "$(id)", "`id`", "'\"", "*", "", "é\x1f", "!x", "a\nb"]
    shell = make().shell()
    done = shell.run(["printf", "%s\\n", *odd], deadline=60)
    assert done.stdout == "".join(f"{word}\n" for word in odd)
    done = shell.run(["sh", "-c", "id -un; cat; echo why >&2; exit 3"], stdin="script\n", deadline=60)
    assert (done.stdout, done.stderr, done.returncode) == ("tmalice\nscript\n", "why\n", 3)
    assert shell.run(["no-such-command-here"], deadline=60).not_found


def test_job_folders_lie_at_the_far_end(make: Make, tmp_path: Path) -> None:
    root = Path("/home/tmalice/jobs of det")  # is made there: this account's own folder
    access = make(root)
    folder = access.folder("det-1")
    folder.stage({"secrets/token": StagedFile(b"s" * 300_000), "start.sh": StagedFile(b"x", 0o700)})
    assert (root / "det-1").owner() == "tmalice"
    assert (root / "det-1/secrets/token").stat().st_mode & 0o777 == 0o600
    run_as("tmalice", ["sh", "-c", "echo '{}' >exit/3.json; echo out >output.txt"], cwd=str(folder.path))
    with (folder.path / "spool/core.jsonl").open("wb") as stream:
        stream.write(b'{"n": 1}\n' * 500_000)
    os.chown(folder.path / "spool/core.jsonl", folder.path.stat().st_uid, -1)
    remains = folder.collect({})
    assert (remains.exits, remains.output_tail) == ({3: b"{}\n"}, "out\n")
    first = remains.streams["core"]
    rest = folder.collect({"core": first.end}).streams["core"]
    assert first.content + rest.content == b'{"n": 1}\n' * 500_000
    assert (first.more, rest.more, rest.end.line) == (True, False, 500_000)
    folder.forget()
    assert list(root.iterdir()) == []
    root.rmdir()
    assert access.output("det-1") is None


def test_remote_jobs_are_told_address_of_master(make: Make, tmp_path: Path) -> None:
    root = Path("/home/tmalice/jobs of det")
    access = make(root)
    for url in ("http://login1:8080", "http://login2:8080"):
        owner = access.announce(url)
        told = root / "master-url"
        assert owner == told.stat().st_uid
        assert (told.read_text(), told.owner(), told.stat().st_mode & 0o777) == (f"{url}\n", "tmalice", 0o644)
    with pytest.raises(Rejected, match="is not the address of a master"):
        access.announce("http://evil\nhttp://x")
    assert [path.name for path in root.iterdir()] == ["master-url"]
    told.unlink()
    root.rmdir()


def test_announce_refuses_address_file_of_another_account(make: Make) -> None:
    root = Path(tempfile.mkdtemp(prefix="tm-jobs-", dir="/var/tmp"))
    try:
        root.chmod(0o1777)
        run_as("tmbob", ["sh", "-c", "echo http://mine >master-url"], cwd=str(root))
        with pytest.raises(Transient, match="The master's address cannot be written into"):
            make(root).announce("http://login1:8080")
        assert (root / "master-url").read_text() == "http://mine\n"
    finally:
        shutil.rmtree(root)


def test_a_deadline_ends_the_command_at_the_far_end(make: Make, home: Path) -> None:
    shell, pid = make().shell(), home / "pid"
    for deadline in (0.5, 5, 50):  # a slow machine may need more to begin at all
        assert shell.run(["sh", "-c", "echo $$ >~/pid.new; mv ~/pid.new ~/pid; sleep 600"], deadline=deadline).timed_out
        if pid.exists():
            break
    wait(lambda: has_ended(int(pid.read_text())), "the end of the command")


def test_the_noise_of_a_login_is_not_in_the_output(make: Make, home: Path) -> None:
    shell = make().shell()
    profile = home / ".bashrc"
    before = profile.read_bytes() if profile.exists() else None
    profile.write_text("echo 'Welcome! Maintenance on Monday.'; echo oops >&2; seq 1 50000\n")
    try:
        done = shell.run(["echo", "only this"], deadline=60)
    finally:
        profile.write_bytes(before) if before is not None else profile.unlink()
    assert (done.stdout, done.stderr) == ("only this\n", "")


def test_an_unknown_host_key_is_refused_with_the_mend(make: Make, sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    done = make().shell().run(["true"], deadline=60)
    assert f"127.0.0.1:{sshd.port} is not in {sshd.known_hosts}" in done.unreached
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1" in done.unreached


def test_a_changed_host_key_is_refused_with_the_mend(make: Make, sshd: Sshd) -> None:
    other = sshd.folder / "other"
    sshd.make_key(other)
    kind, key, *_ = other.with_suffix(".pub").read_text().split()
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    access = make()
    assert "is not the one in" in access.shell().run(["true"], deadline=60).unreached
    with pytest.raises(Unreachable, match="fingerprint"):
        access.folder("det-1").stage({})


def test_error_says_server_rejects_users_key(make: Make, sshd: Sshd) -> None:
    sshd.make_key(sshd.folder / "stranger")
    done = make(identity_file=str(sshd.folder / "stranger")).shell().run(["true"], deadline=60)
    assert "does not let tmalice in" in done.unreached


def test_stopped_ssh_server_is_unreachable_not_cut(make: Make, sshd: Sshd) -> None:
    sshd.stop()
    done = make().shell().run(["true"], deadline=60)
    assert "SSH to 127.0.0.1" in done.unreached
    assert not done.cut


def test_a_connection_is_made_again_after_it_broke(make: Make, sshd: Sshd) -> None:
    shell = make().shell()
    assert shell.run(["true"], deadline=60).ok
    sshd.cut()
    assert shell.run(["true"], deadline=60).ok
    sshd.stop()
    assert shell.run(["true"], deadline=60).unreached
    sshd.start()
    assert shell.run(["true"], deadline=60).ok


def test_cut_during_command_is_ambiguous_unless_repeatable(make: Make, sshd: Sshd, home: Path) -> None:
    shell = make().shell()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(shell.run, ["sh", "-c", "touch ~/begun; sleep 30"], deadline=30)
        wait((home / "begun").exists, "the start of the command")
        sshd.cut()
        done = running.result(60)
    assert done.cut
    assert not done.unreached
    assert type(done.way_failure("t", repeatable=False)).__name__ == "Ambiguous"
    assert type(done.way_failure("t")).__name__ == "Unreachable"


def test_a_frozen_server_is_not_waited_for_and_comes_back(
    make: Make, frozen: Callable[[], AbstractContextManager[None]]
) -> None:
    shell = make().shell()
    assert shell.run(["true"], deadline=60).ok
    with frozen():
        begun = time.monotonic()
        done = shell.run(["true"], deadline=1)
        assert done.unreached
        assert time.monotonic() - begun < 30
    assert shell.run(["true"], deadline=60).ok


def test_a_server_that_freezes_in_the_middle_is_a_cut(
    make: Make, sshd: Sshd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_client, "MARGIN", 1.0)
    shell = make().shell()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(shell.run, ["sh", "-c", "touch ~/begun; sleep 60"], deadline=5)
        wait((home / "begun").exists, "the start of the command")
        with sshd.frozen():
            done = running.result(60)
    assert "No answer on 127.0.0.1" in done.cut


def test_many_commands_at_once_share_one_connection(make: Make, sshd: Sshd) -> None:
    shell = make(sessions=8).shell()
    assert shell.run(["true"], deadline=60).ok
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda n: shell.run(["sh", "-c", f"sleep 0.1; echo {n}"], deadline=30), range(32)))
    assert [done for done in found if not done.ok] == []
    assert [done.stdout for done in found] == [f"{n}\n" for n in range(32)]
    # One process of sshd's with privileges and one without for each connection.
    wait(lambda: len(sshd.connections()) == 2, "one connection only")


def test_each_user_logs_in_for_himself(make: Make, sshd: Sshd) -> None:
    for user in ("tmalice", "tmbob"):
        (sshd.folder / f"key-{user}").write_bytes(sshd.key.read_bytes())
        (sshd.folder / f"key-{user}").chmod(0o600)
    access = make(Path("/tmp"), Impersonation.SSH.value, identity_file=str(sshd.folder / "key-{user}"))
    names = [access.shell(user).run(["id", "-un"], deadline=60).stdout.strip() for user in (None, "tmalice", "tmbob")]
    assert names == ["tmalice", "tmalice", "tmbob"]
    access.folder("det-ssh-1", "tmbob").stage({})
    assert Path("/tmp/det-ssh-1").owner() == "tmbob"
    access.folder("det-ssh-1", "tmbob").forget()
    assert access.why_not("root")


def test_a_jump_host_is_gone_through(make: Make, sshd: Sshd) -> None:
    shell = make(jump_host=f"tmbob@127.0.0.1:{sshd.port}").shell()
    assert shell.run(["id", "-un"], deadline=60).stdout == "tmalice\n"
    sshd.known_hosts.write_text("")
    sshd.cut()
    assert str(sshd.known_hosts) in shell.run(["true"], deadline=60).unreached


def test_a_system_account_is_refused_at_the_far_end(make: Make, sshd: Sshd) -> None:
    subprocess.run(["usermod", "--shell", "/bin/bash", "games"], check=True)
    try:
        access = make(Path("/tmp"), Impersonation.SSH.value)
        assert "never run as games" in access.shell("games").run(["id"], deadline=60).refused
    finally:
        subprocess.run(["usermod", "--shell", "/usr/sbin/nologin", "games"], check=True)


def test_a_connection_that_a_person_opened_is_used_and_kept(sshd: Sshd, tmp_path: Path, home: Path) -> None:
    """As with a second factor: no key of ours is let in, only the open connection."""
    place = f"{tmp_path}/c"
    stranger = sshd.folder / "stranger"
    sshd.make_key(stranger)
    keys = {"host": "127.0.0.1", "port": sshd.port, "user": "tmalice", "client": "openssh", "control_path": place}
    options = AccessOptions.model_validate(
        {
            "ssh": {**keys, "identity_file": str(stranger), "known_hosts": str(sshd.known_hosts)},
            "job_storage_root": "/jobs",
        }
    )
    access = make_access(options, tmp_path)
    refused = access.shell().run(["true"], deadline=60).unreached
    command = f"ssh -M -S {place} -fN -p {sshd.port} tmalice@127.0.0.1"
    assert refused.endswith(f"Open one: {command}.") or command in refused
    known = ["-o", f"UserKnownHostsFile={sshd.known_hosts}", "-o", "BatchMode=yes", "-i", str(sshd.key)]
    subprocess.run([*command.split()[:-1], *known, command.split()[-1]], check=True, stderr=subprocess.DEVNULL)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: access.shell().run(["id", "-un"], deadline=60).stdout, range(16)))
    assert found == ["tmalice\n"] * 16
    access.close()
    assert os.path.exists(place)
    sshd.cut()
    wait(lambda: not os.path.exists(place), "the end of the connection")
    assert "There is no open connection" in access.shell().run(["true"], deadline=60).unreached


def test_an_identity_that_others_can_read_is_a_problem(make: Make, sshd: Sshd) -> None:
    key = sshd.folder / "loose"
    key.write_bytes(sshd.key.read_bytes())
    key.chmod(0o644)
    assert "can be read by others" in make(identity_file=str(key)).problems()[0].text


@pytest.mark.parametrize("jump", ["a b", "-oProxyCommand=x", "h:port", "-x@h"])
def test_hosts_that_could_be_options_are_refused(jump: str) -> None:
    with pytest.raises(ValueError, match="jump_host"):
        AccessOptions.model_validate({"ssh": {"host": "h", "jump_host": jump}, "job_storage_root": "/jobs"})
    with pytest.raises(ValueError, match="host"):
        AccessOptions.model_validate({"ssh": {"host": jump.replace(":", " ")}})


def test_nothing_is_left_running(make: Make, sshd: Sshd) -> None:
    access = make()
    shell = access.shell()
    assert shell.run(["true"], deadline=60).ok
    access.close()
    wait(lambda: not sshd.connections(), "the end of the connection")
    ours = ["pgrep", "-P", str(os.getpid()), "-x", "ssh"]
    wait(lambda: subprocess.run(ours, stdout=subprocess.DEVNULL).returncode == 1, "the end of our own processes")
