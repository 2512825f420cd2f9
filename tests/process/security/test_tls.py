"""Eavesdropping and impersonation of the master: its own TLS, for users, jobs and agents."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import json
import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    wait_for,
)
from tests.support.reference import reference
from trainmaster.agent.master_link import MasterLink, MustLeave, NotGiven
from trainmaster.cli.admin import main as admin
from trainmaster.client import tls
from trainmaster.client.errors import MasterUnreachable, NotTrusted
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport
from trainmaster.config.master import parse_master
from trainmaster.config.messages import ConfigError
from trainmaster.master import authority
from trainmaster.master.tls import BadCertificate, ServedTls, read_certificate

NAMES = ["127.0.0.1", "localhost"]
REPORTS = """
import os
from trainmaster import core
with core.init() as context:
    variables = [os.environ[name] for name in ("DET_MASTER", "DET_USE_TLS", "DET_MASTER_CERT_FILE")]
    print("over", *map(os.path.basename, variables))
    context.train.report_validation_metrics(1, {"loss": 0.5})
"""


def section(folder: Path) -> str:
    names = {"cert": authority.CERT, "key": authority.KEY, "ca": authority.CA}
    return json.dumps({key: str(folder / name) for key, name in names.items()})


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    folder = make_folder()
    authority.init(folder / "tls", NAMES)
    yield folder / "tls"
    remove_folder(folder)


@pytest.fixture(scope="module")
def secure(certificates: Path) -> Iterator[MasterProcess]:
    folder = make_folder()
    config = f"security: {{tls: {section(certificates)}}}\nresource_manager: {{type: local, slots: 2}}\n"
    process = MasterProcess(folder, config, certificate=certificates / authority.CA)
    yield process.start()
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


# -- people -----------------------------------------------------------------------------------------------------------


def test_det_and_a_job_talk_over_tls_alone(secure: MasterProcess) -> None:
    text = "name: t\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\nmax_restarts: 0\n"
    master = secure.client()
    number = master.create_experiment(text, files(train__py=REPORTS)).id
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert f"over {secure.url.rpartition('/')[2]} true master.crt" in log_text(master, trial.id)
    assert "determined" in secure.det("user", "whoami").stdout


def test_client_does_not_log_in_to_untrusted_master(
    secure: MasterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path))
    monkeypatch.delenv("DET_MASTER_CERT_FILE", raising=False)
    with pytest.raises(NotTrusted, match="is not trusted"):
        Master(Transport(secure.url)).login("admin", secure.password)
    assert Master(Transport(secure.url, certificate="noverify")).login("admin", secure.password)
    other = secure.url.replace("127.0.0.1", "127.0.0.2")  # a name that is not in the certificate
    with pytest.raises(MasterUnreachable):
        Master(Transport(other, certificate=str(secure.certificate))).login("admin", secure.password)


def test_password_is_not_sent_as_plain_text_to_tls_port(secure: MasterProcess) -> None:
    with pytest.raises(MasterUnreachable, match="If it speaks TLS, write https://"):
        Master(Transport(secure.url.replace("https", "http"))).login("admin", secure.password)


def test_unknown_certificate_is_confirmed_once_at_terminal(secure: MasterProcess, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
    environment |= {"DET_MASTER": secure.url, "DET_USER": "admin", "DET_PASS": secure.password}
    environment["DET_DEBUG_CONFIG_PATH"] = str(tmp_path)

    def det(answer: str) -> tuple[int, str]:
        """At a terminal of its own."""
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "trainmaster.cli.det", "user", "whoami"]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        os.write(ours, answer.encode())
        said = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal's other end is closed
                break
            if not piece:
                break
            said += piece
        os.close(ours)
        return process.wait(60), said.decode()

    shown = tls.fingerprint(tls.presented(secure.url))
    status, said = det("n\n")
    assert (status, shown in said) == (1, True)
    status, said = det("y\n")
    assert (status, "admin" in said) == (0, True)
    status, said = det("")
    assert (status, "fingerprint" in said) == (0, False)
    kept = json.loads((tmp_path / "certs.json").read_text())
    assert list(kept) == [secure.url]
    refused = subprocess.run(
        [sys.executable, "-m", "trainmaster.cli.det", "user", "whoami"],
        env={**environment, "DET_DEBUG_CONFIG_PATH": str(tmp_path / "other")},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (refused.returncode, "is not trusted" in refused.stderr) == (1, True)


def test_the_published_client_believes_the_authoritys_file(secure: MasterProcess, tmp_path: Path) -> None:
    try:
        published = reference.environment()
    except reference.NoReference as error:
        pytest.skip(str(error))
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("DET_", "REQUESTS_", "CURL_"))},
        **{"DET_MASTER": secure.url, "DET_USER": "admin", "DET_PASS": secure.password},
        **{"DET_MASTER_CERT_FILE": str(secure.certificate), "DET_DEBUG_CONFIG_PATH": str(tmp_path)},
    }
    done = subprocess.run(
        [str(published / "bin" / "det"), "user", "whoami"],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, "admin" in done.stdout) == (0, True), done.stderr


def test_an_agent_leaves_a_master_that_it_does_not_believe(secure: MasterProcess) -> None:
    with pytest.raises(MustLeave, match=r"is not trusted .* --certificate"):
        MasterLink(secure.url, "host1", "x" * 20).wait("")
    with pytest.raises(NotGiven, match="no cluster with agents"):  # it was asked, in secret
        MasterLink(secure.url, "host1", "x" * 20, str(secure.certificate)).wait("")


# -- files that change ------------------------------------------------------------------------------------------------


def serial(url: str) -> int:
    return x509.load_pem_x509_certificate(tls.presented(url).encode()).serial_number


def test_renewed_certificate_is_loaded_live_and_broken_one_not(secure: MasterProcess, certificates: Path) -> None:
    before = serial(secure.url)
    parts = secure.url.removeprefix("https://")
    context = ssl.create_default_context(cafile=str(certificates / authority.CA))
    open_before = http.client.HTTPSConnection(parts, context=context, timeout=60)
    open_before.request("GET", "/health")
    open_before.getresponse().read()
    failures: list[BaseException] = []
    over = threading.Event()

    def report() -> None:
        try:
            while not over.is_set():
                with contextlib.closing(http.client.HTTPSConnection(parts, context=context, timeout=60)) as connection:
                    connection.request("GET", "/info")
                    assert connection.getresponse().status == 200
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        authority.renew(certificates)
        os.kill(secure.pid, signal.SIGHUP)
        wait_for(lambda: serial(secure.url) != before, "the new certificate")
        new = serial(secure.url)
        whole = (certificates / authority.CERT).read_bytes()
        (certificates / authority.CERT).write_bytes(whole[:300])
        os.kill(secure.pid, signal.SIGHUP)
        wait_for(lambda: "the certificate stays as it was" in secure.log.read_text(), "the refusal in the log")
        assert serial(secure.url) == new
        (certificates / authority.CERT).write_bytes(whole)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    open_before.request("GET", "/health")  # it goes on with what it began with
    assert open_before.getresponse().status == 200
    open_before.close()
    # The refusal is an error that was asked for.
    secure.log.write_text(
        secure.log.read_text().replace(" ERROR trainmaster.master.tls", " error trainmaster.master.tls")
    )


def test_certificate_by_own_authority_is_renewed_before_expiry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "LIFE", authority.RENEWED - dt.timedelta(days=1))
    authority.init(tmp_path, NAMES)
    old = read_certificate(str(tmp_path / authority.CERT))
    assert authority.due(tmp_path)
    monkeypatch.undo()
    config = parse_master(f"security: {{tls: {section(tmp_path)}}}").security.tls
    assert config is not None
    served = ServedTls(config)
    new = read_certificate(str(tmp_path / authority.CERT))
    assert not authority.due(tmp_path)
    assert new.ends - old.ends > dt.timedelta(days=300)
    assert (sorted(new.names), len(new.roots)) == (sorted(old.names), 1)
    assert served.anchors == (tmp_path / authority.CA).read_text()
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        **{authority.CA: 0o644, authority.CERT: 0o644},
        **{authority.CA_KEY: 0o600, authority.KEY: 0o600},
    }


# -- what cannot be ---------------------------------------------------------------------------------------------------


def test_unusable_certificate_files_are_rejected_with_reason(tmp_path: Path) -> None:
    authority.init(tmp_path / "a", NAMES)
    authority.init(tmp_path / "b", NAMES)
    a, b = tmp_path / "a", tmp_path / "b"
    (tmp_path / "text").write_text("no certificate")
    for cert, key, said in (
        (a / authority.CERT, b / authority.KEY, "do not match"),
        (a / "none.crt", a / authority.KEY, "none.crt cannot be read: No such file"),
        (tmp_path / "text", a / authority.KEY, "holds no certificate in PEM"),
        (a / authority.CERT, a / "none.key", "none.key cannot be read"),
        (a / authority.CERT, tmp_path / "text", "do not match"),
    ):
        config = parse_master(f"security: {{tls: {{cert: {cert}, key: {key}}}}}").security.tls
        assert config is not None
        with pytest.raises(BadCertificate, match=said):
            ServedTls(config)


def test_expired_certificate_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "LIFE", dt.timedelta(minutes=-1))
    authority.init(tmp_path, NAMES)
    with pytest.raises(BadCertificate, match="which is not now"):
        read_certificate(str(tmp_path / authority.CERT))


def test_a_master_with_tls_tells_jobs_no_plain_address() -> None:
    with pytest.raises(ConfigError, match="must begin with https://"):
        parse_master("master_url: http://login1:8080\nsecurity: {tls: {cert: /c, key: /k}}")
    assert parse_master("security: {tls: {cert: /c, key: /k}}").port == 8443
    assert parse_master("port: 9000\nsecurity: {tls: {cert: /c, key: /k}}").port == 9000


def test_an_administrator_makes_a_certificate_with_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert admin(["tls", "init", "--folder", str(tmp_path / "tls"), "--name", "login1.cluster"]) == 0
    said = capsys.readouterr().out
    assert "login1.cluster" in said
    assert socket.gethostname() in said
    assert f"cert: {tmp_path / 'tls' / 'master.crt'}" in said
    assert admin(["tls", "init", "--folder", str(tmp_path / "tls")]) == 1
    assert "already" in capsys.readouterr().err
    assert admin(["tls", "init", "--folder", str(tmp_path / "x"), "--name", "a/b"]) == 1
    assert admin(["tls", "show", "--folder", str(tmp_path / "tls")]) == 0
    assert "SHA-256 fingerprint: " in capsys.readouterr().out
