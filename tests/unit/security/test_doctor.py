"""`trainmaster doctor` reports a master that is open to more than its administrator may expect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.config.master import parse_master
from trainmaster.master import authority, exposure

SLURM = "resource_manager: {type: slurm, job_storage_root: /shared/jobs"


def told(text: str, data: Path) -> list[str]:
    return [f"{finding.text} -> {finding.fix}" for finding in exposure.findings(parse_master(text), data)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host: 0.0.0.0", "listens on 0.0.0.0 without TLS"),
        ("host: '::'", "listens on :: without TLS"),
        ("host: login1.cluster", "listens on login1.cluster without TLS"),
        ("master_url: http://login1:80", "jobs reach the master at http://login1:80 without TLS"),
        ("", "all jobs on default run as one account, the master's"),
        ("unauthenticated_services: true", "may ask for no log-in"),
        ("host: 0.0.0.0", "share the master's origin"),
        ("trusted_proxies: [10.0.0.0/8]", "trusted_proxies names a whole network"),
        ("webhooks: {allow_networks: [10.1.2.3/32]}", "webhooks reach inside (10.1.2.3/32)"),
        (f"{SLURM}}}", "all jobs on default run as one account, the master's"),
        (f"{SLURM}, impersonation: sudo}}", "users without a linked account run as the account of the master"),
    ],
)
def test_doctor_names_open_setting_and_key_that_closes_it(text: str, said: str, tmp_path: Path) -> None:
    found = told(text, tmp_path)
    assert any(said in finding for finding in found), found
    assert all(not finding.endswith("-> ") for finding in found)


def test_nothing_is_named_that_is_closed(tmp_path: Path) -> None:
    authority.init(tmp_path / "tls", ["login1"])
    names = {"cert": authority.CERT, "key": authority.KEY, "ca": authority.CA}
    tls = ", ".join(f"{key}: {tmp_path / 'tls' / name}" for key, name in names.items())
    text = f"""
host: 0.0.0.0
master_url: https://login1:8443
services_url: https://services.login1
security: {{tls: {{{tls}}}}}
{SLURM}, impersonation: sudo, require_user_link: true}}
"""
    root = ["the master runs as root: its jobs have a"] if os.geteuid() == 0 else []
    found = [finding for finding in told(text, tmp_path) if not finding.startswith("for login1; good for")]
    assert [finding[:40] for finding in found] == root or found == []
    other = told(text.replace("https://login1", "https://login2"), tmp_path)
    assert any("jobs reach the master as login2, and the certificate is not for that name" in one for one in other)


def test_first_passwords_that_lie_about_are_named(tmp_path: Path) -> None:
    (tmp_path / "initial-password").write_text("x")
    assert any("still holds the first passwords" in finding for finding in told("", tmp_path))
