"""The helper under a real sudo: an unprivileged service account and two real users."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.access.installed import GROUP, PROGRAM, SERVICE, SUDOERS, Installed
from tests.support.cluster.users import run_as
from trainmaster.dispatchers.base import Rejected, StagedFile, Transient, Unreachable
from trainmaster.dispatchers.cluster.access import setup
from trainmaster.dispatchers.cluster.access.access import SUDO, Access, make_access
from trainmaster.dispatchers.cluster.access.config import AccessOptions, Impersonation
from trainmaster.dispatchers.cluster.access.helper_client import HelperClient, RefusedByHelper
from trainmaster.dispatchers.cluster.access.transport import LocalTransport
from trainmaster.dispatchers.cluster.jobfolder import helper
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.pbs.options import PbsOptions

# Runs a few calls as the service account, as a master would: root needs no sudoers line.
AS_SERVICE = """
import json, sys
from pathlib import Path
from trainmaster.dispatchers.cluster.access.config import AccessOptions
from trainmaster.dispatchers.cluster.access.access import make_access
from trainmaster.dispatchers.base import StagedFile
asked = json.load(sys.stdin)
access = make_access(AccessOptions(impersonation="sudo", helper=asked["helper"]), Path(asked["root"]))
try:
    found = eval(asked["call"])
    print(repr(found))
except Exception as error:
    print(type(error).__name__, error)
"""


def as_service(installed: Installed, call: str) -> str:
    asked = json.dumps({"helper": str(PROGRAM), "root": str(installed.root), "call": call})
    repository = str(Path(__file__).resolve().parents[4])
    done = run_as(SERVICE, [sys.executable, "-c", AS_SERVICE], stdin=asked, environment={"PYTHONPATH": repository})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def access(installed: Installed) -> Access:
    return make_access(AccessOptions(impersonation=Impersonation.SUDO, helper=str(PROGRAM)), installed.root)


def test_the_service_account_works_as_each_user(installed: Installed) -> None:
    for user in ("tmalice", "tmbob"):
        token = f"det-{user}"
        assert as_service(installed, f"access.folder({token!r}, {user!r}).stage({{'a/b': StagedFile(b'x')}})") == "None"
        folder = installed.root / token
        facts = folder.stat()
        assert (pwd.getpwuid(facts.st_uid).pw_name, stat.S_IMODE(facts.st_mode)) == (user, 0o700)
        (folder / "exit/0.json").write_text("{}")
        os.chown(folder / "exit/0.json", facts.st_uid, -1)
        assert "exits={0: b'{}'}" in as_service(installed, f"access.folder({token!r}, {user!r}).collect()")
    for other in ("tmbob", SERVICE):
        assert run_as(other, ["cat", str(installed.root / "det-tmalice/a/b")]).returncode != 0
    for user in ("tmalice", "tmbob"):
        as_service(installed, f"access.folder('det-{user}', {user!r}).forget()")
    assert list(installed.root.iterdir()) == []


@pytest.mark.parametrize("name", ["tmcarol@site.org", "tm carol", "4711", "TM\\carol"])
def test_accounts_have_the_names_that_their_directory_gives(installed: Installed, name: str) -> None:
    passwd = Path("/etc/passwd")
    before = passwd.read_text()
    group = grp.getgrnam(GROUP).gr_gid
    passwd.write_text(f"{before}{name}:x:47110:{group}::/nonexistent:/bin/bash\n")
    try:
        folder = f"access.folder('det-carol', {name!r})"
        assert as_service(installed, f"{folder}.stage({{'a': StagedFile(b'x')}})") == "None"
        assert (installed.root / "det-carol").stat().st_uid == 47110
        as_service(installed, f"{folder}.forget()")
    finally:
        passwd.write_text(before)


def test_a_groups_name_is_written_as_sudo_reads_it(tmp_path: Path) -> None:
    for group in ("domain users", "SITE\\hpc", "hpc@site.org", "a=b,c"):
        rule = tmp_path / "rule"
        rule.write_text(setup.sudoers_line("svc@site.org", str(PROGRAM), group) + "\n")
        rule.chmod(0o440)
        done = subprocess.run(["visudo", "-cf", str(rule)], capture_output=True, text=True)
        assert done.returncode == 0, (rule.read_text(), done.stderr)


def test_shared_files_planted_by_another_account_are_not_used(installed: Installed, access: Access) -> None:
    """Each account has shared files of its own, and a folder that another one made under that name is not used."""
    program = programs.runtime("print('hello')")
    folders = {user: access.folder(f"det-{user}", user) for user in ("tmalice", "tmbob")}
    for user, folder in folders.items():
        folder.stage_sharing(program)
        (shared,) = folder.shared_folders(program)
        facts = shared.parent.stat()
        assert (pwd.getpwuid(facts.st_uid).pw_name, stat.S_IMODE(facts.st_mode)) == (user, 0o700)
        assert os.readlink(folder.path / "runtime.zip") == os.path.relpath(shared / "runtime.zip", folder.path)
        assert run_as(user, ["test", "-r", str(folder.path / "runtime.zip")]).returncode == 0
        shutil.rmtree(shared.parent)
    planted = folders["tmalice"].shared_folders(program)[0]
    run_as("tmbob", ["sh", "-c", f"umask 0; mkdir -p {planted}; echo evil >{planted}/runtime.zip"])
    folders["tmalice"].stage_sharing(program)
    copy = folders["tmalice"].path / "runtime.zip"
    assert not copy.is_symlink()
    assert copy.read_bytes() == program["runtime.zip"].content
    shutil.rmtree(planted.parent)
    for folder in folders.values():
        folder.forget()
    assert list(installed.root.iterdir()) == []


def test_checkpoint_files_are_removed_only_by_their_account(installed: Installed, tmp_path: Path) -> None:
    storage = installed.root.parent / f"{installed.root.name}-storage"
    storage.mkdir()
    storage.chmod(0o1777)
    try:
        for user in ("tmalice", "tmbob"):
            run_as(user, ["mkdir", "-m", "700", str(storage / user)])
            run_as(user, ["touch", str(storage / user / "weights")])
        run_as("tmbob", ["ln", "-s", str(storage / "tmalice"), str(storage / "link")])

        def remove(name: str, user: str) -> str:
            return as_service(installed, f"access.files({user!r}).remove({str(storage / name)!r}, ['**/*'], None)")

        assert remove("tmalice", "tmalice").startswith("Rejected")
        installed.allow(installed.root, storage_roots=[str(storage)])
        assert "Permission denied" in remove("tmalice", "tmbob")
        assert "is a link" in remove("link", "tmbob")
        assert remove("../etc", "tmbob").startswith("Rejected")
        assert (storage / "tmalice" / "weights").exists()
        (storage / "tmalice").chmod(0o777)
        assert "belongs to uid" in remove("tmalice", "tmbob")
        assert remove("tmalice", "tmalice") == "{}"
        assert sorted(path.name for path in storage.iterdir()) == ["link", "tmbob"]
    finally:
        shutil.rmtree(storage)


def test_documented_installation_has_no_problems(installed: Installed) -> None:
    assert as_service(installed, "access.problems()") == "[]"


@pytest.mark.parametrize(("user", "word"), [("root", "never run as root"), ("daemon", "system account")])
def test_root_and_system_accounts_are_refused_in_words(access: Access, user: str, word: str) -> None:
    assert word in (access.why_not(user) or "")


@pytest.mark.parametrize("user", ["root", "daemon"])
def test_the_helper_refuses_them_too(installed: Installed, user: str) -> None:
    # This process is root, which sudo lets be anybody: only the helper stands in the way.
    there = HelperClient(
        LocalTransport({"PATH": "/usr/bin:/bin"}), [SUDO, "-n", "-H", "-u", user, "--", str(PROGRAM)], user=user
    )
    for verb in ("stage", "run", "check", "announce"):
        with pytest.raises(RefusedByHelper, match=f"jobs never run as {user}"):
            there.ask(verb, 60, root=str(installed.root), token="det-1", files={}, argv=["squeue"])


def test_helper_refuses_denied_users_and_groups(access: Access, installed: Installed) -> None:
    installed.allow(installed.root, denied_groups=[GROUP])
    with pytest.raises(Rejected, match=f"member of the group {GROUP}"):
        access.folder("det-1", "tmalice").stage({})
    installed.allow(installed.root, denied_users=["tmalice", "trainmaster-tests"])
    with pytest.raises(Rejected, match="denied"):
        access.folder("det-1", "tmalice").stage({})


def test_sudo_refuses_an_account_outside_the_group_with_the_mend(installed: Installed) -> None:
    subprocess.run(["gpasswd", "--delete", "tmbob", GROUP], check=True, capture_output=True)
    try:
        said = as_service(installed, "access.folder('det-1', 'tmbob').stage({})")
    finally:
        subprocess.run(["usermod", "--append", "--groups", GROUP, "tmbob"], check=True)
    assert said.startswith("Unreachable sudo does not let tmservice run")
    assert "trainmaster helper show" in said


def test_no_user_announces_a_master(installed: Installed) -> None:
    argv = [SUDO, "-n", "-H", "-u", "tmbob", "--", str(PROGRAM)]
    for user in ("tmbob", None):
        there = HelperClient(LocalTransport({"PATH": "/usr/bin:/bin"}), argv, user=user)
        with pytest.raises(RefusedByHelper, match="only the master's account"):
            there.ask("announce", 60, root=str(installed.root), url="http://evil:1")
    assert list(installed.root.iterdir()) == []


def test_sudo_takes_no_arguments_and_no_environment(installed: Installed) -> None:
    for words in (["--", str(PROGRAM), "extra"], ["FOO=bar", str(PROGRAM)], ["--", "/bin/sh"]):
        done = run_as(SERVICE, ["sudo", "-n", "-H", "-u", "tmalice", *words])
        assert done.returncode != 0
        assert "sudo:" in done.stderr


def test_only_the_schedulers_commands_are_run(access: Access, installed: Installed) -> None:
    shell = access.shell("tmalice")
    assert "not one of the scheduler's commands" in shell.run(["/bin/sh", "-c", "id"], deadline=60).refused
    for words in (["update", "jobid=1"], ["-M", "show", "update", "jobid=1"], []):
        assert "may only be used as scontrol show" in shell.run(["scontrol", *words], deadline=60).refused
    installed.allow(installed.root, programs={"squeue": "/usr/bin/env"})  # shows what the program is given
    done = shell.run(["/somewhere/squeue"], deadline=60)
    given = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert set(given) == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL"}
    assert (given["USER"], given["HOME"]) == ("tmalice", "/home/tmalice")


def test_a_variable_must_be_in_the_policy_with_its_value(installed: Installed) -> None:
    options = AccessOptions(impersonation=Impersonation.SUDO, helper=str(PROGRAM))
    access = make_access(options, installed.root, environment={"SLURM_CONF": "/tmp/evil.conf"})
    for allowed in ({}, {"SLURM_CONF": "/etc/slurm/slurm.conf"}):
        installed.allow(installed.root, allowed, programs={"squeue": "/usr/bin/env"})
        done = access.shell("tmalice").run(["squeue"], deadline=60)
        assert "SLURM_CONF=/tmp/evil.conf is not in environment" in done.unreached
    installed.allow(installed.root, {"SLURM_CONF": "/tmp/evil.conf"}, programs={"squeue": "/usr/bin/env"})
    assert "SLURM_CONF=/tmp/evil.conf" in access.shell("tmalice").run(["squeue"], deadline=60).stdout


def test_a_path_may_name_the_systems_folders_only(installed: Installed) -> None:
    options = AccessOptions(impersonation=Impersonation.SUDO, helper=str(PROGRAM))
    installed.allow(installed.root, programs={"qsub": "/usr/bin/env"})
    for path in ("/tmp/evil/bin:/usr/bin", "/usr/bin:", "bin"):
        shell = make_access(options, installed.root, path=path).shell("tmalice")
        assert f"PATH={path} is not in environment" in shell.run(["qsub"], deadline=60).unreached
    usual = PbsOptions(environment={"PBS_EXEC": "/opt/pbs"}).command_path
    shell = make_access(options, installed.root, path=usual).shell("tmalice")
    assert f"PATH={usual}\n" in shell.run(["qsub"], deadline=60).stdout


def test_folders_outside_the_job_roots_are_out_of_reach(access: Access, installed: Installed, tmp_path: Path) -> None:
    for root in (Path("/home/tmalice"), installed.root.parent, Path(f"{installed.root}-2")):
        elsewhere = make_access(AccessOptions(impersonation=Impersonation.SUDO, helper=str(PROGRAM)), root)
        with pytest.raises(Transient, match="not below a folder that job_roots"):
            elsewhere.folder("det-1", "tmalice").stage({})
    (installed.root / "link").symlink_to("/home")
    below = make_access(AccessOptions(impersonation=Impersonation.SUDO, helper=str(PROGRAM)), installed.root / "link")
    with pytest.raises(Transient):
        below.folder("tmalice", "tmalice").stage({})


def test_job_folder_of_another_account_is_not_used(access: Access, installed: Installed) -> None:
    run_as("tmbob", ["mkdir", "-m", "777", str(installed.root / "det-1")])
    with pytest.raises(Transient, match="belongs to uid"):
        access.folder("det-1", "tmalice").stage({"secrets/token": StagedFile(b"secret")})
    run_as("tmbob", ["ln", "-s", "/home/tmbob", str(installed.root / "det-2")])
    with pytest.raises(Transient):
        access.folder("det-2", "tmalice").stage({"secrets/token": StagedFile(b"secret")})
    assert list((installed.root / "det-1").iterdir()) == []
    run_as("tmalice", ["mkdir", "-m", "777", str(installed.root / "det-3")])
    run_as("tmbob", ["mkdir", str(installed.root / "det-3/secrets")])
    with pytest.raises(Transient, match="belongs to another account"):
        access.folder("det-3", "tmalice").stage({"secrets/token": StagedFile(b"secret")})
    assert list((installed.root / "det-3/secrets").iterdir()) == []


def test_links_that_a_user_plants_lead_nowhere(access: Access, installed: Installed) -> None:
    secret = Path("/home/tmalice/of-alice")
    run_as("tmalice", ["sh", "-c", "echo secret >of-alice; chmod 600 of-alice"])
    folder = access.folder("det-1", "tmalice")
    folder.stage({})
    # Alice's own file, linked and put in place of folders by herself: even that is not handed out.
    plant = "cd $0; ln -s ~/of-alice exit/0.json; ln -s ~/of-alice output.txt; rmdir spool; mkdir ~/sp; "
    plant += "cp ~/of-alice ~/sp/core.jsonl; ln -s ~/sp spool; mkfifo exit/1.json"
    assert run_as("tmalice", ["sh", "-c", plant, str(folder.path)]).returncode == 0
    remains = folder.collect()
    assert (remains.exits, remains.streams, remains.output_tail) == ({}, {}, "")
    with pytest.raises(Transient):
        folder.stage({"spool/x": StagedFile(b"")})
    folder.forget()
    assert not folder.path.exists()
    assert secret.read_text() == "secret\n"
    assert Path("/home/tmalice/sp/core.jsonl").exists()
    run_as("tmalice", ["rm", "-r", "of-alice", "sp"])


def test_a_deep_and_closed_tree_is_removed(access: Access) -> None:
    folder = access.folder("det-1", "tmalice")
    folder.stage({})
    deep = "import os\nfor n in range(2000):\n    os.mkdir('d')\n    os.chdir('d')\nos.chmod('.', 0)\n"
    assert run_as("tmalice", ["python3", "-c", deep], cwd=str(folder.path)).returncode == 0
    folder.forget()
    assert not folder.path.exists()
    folder.forget()


def test_helper_rejects_policy_writable_by_others_or_invalid(access: Access, installed: Installed) -> None:
    for mode, owner in ((0o666, 0), (0o644, pwd.getpwnam("tmbob").pw_uid)):
        os.chown(installed.policy, owner, -1)
        installed.policy.chmod(mode)
        with pytest.raises(Transient, match="must belong to root"):
            access.folder("det-1", "tmalice").stage({})
        assert any("can be changed by other accounts" in problem.text for problem in access.problems())
    os.chown(installed.policy, 0, -1)
    for text in ('{"job_rots": []}', '{"job_roots": "/"}', '{"job_roots": [7]}', '{"programs": []}', "[]", "{"):
        installed.policy.write_text(text)
        with pytest.raises(Transient, match="not a helper policy"):
            access.folder("det-1", "tmalice").stage({})


def test_faults_of_sudo_setup_are_named(installed: Installed, access: Access) -> None:
    installed.root.chmod(0o777)
    assert "not sticky" in access.problems()[0].text
    installed.root.chmod(0o755)
    assert "cannot make their job folders" in access.problems()[0].text
    installed.root.chmod(0o1777)
    nowhere = make_access(
        AccessOptions(impersonation=Impersonation.SUDO, helper="/usr/local/libexec/none"), installed.root
    )
    assert "is not installed" in nowhere.problems()[0].text
    with pytest.raises(Unreachable, match="is not installed"):
        nowhere.folder("det-1", "tmalice").stage({})
    PROGRAM.chmod(0o775)
    assert "could then act as any user" in access.problems()[0].text
    PROGRAM.chmod(0o755)
    SUDOERS.write_text(SUDOERS.read_text().replace("NOPASSWD", "PASSWD"))
    try:
        assert "without a password" in as_service(installed, "access.problems()[0].text")
    finally:
        SUDOERS.write_text(setup.sudoers_line(SERVICE, str(PROGRAM), GROUP) + "\n")


def test_helper_of_another_version_is_reported(access: Access) -> None:
    text = PROGRAM.read_text()
    try:
        other = helper.VERSION + 1
        PROGRAM.write_text(text.replace(f"\nVERSION = {helper.VERSION}\n", f"\nVERSION = {other}\n"))
        with pytest.raises(Unreachable, match=f"is of version {other}"):
            access.folder("det-1", "tmalice").stage({})
        assert f"is of version {other}" in access.problems()[0].text
    finally:
        PROGRAM.write_text(text)
