"""The keys for reaching a cluster, and for the account that its jobs run as."""

from __future__ import annotations

import pytest

from trainmaster.config.master import parse_master
from trainmaster.config.messages import ConfigError
from trainmaster.dispatchers.cluster.access.config import Impersonation, SshClient
from trainmaster.dispatchers.slurm.options import SlurmOptions

FAR = """
resource_manager:
  type: slurm
  job_storage_root: /shared/jobs
  impersonation: sudo
  helper: /opt/helper
  require_user_link: true
  external_jobs: false
  ssh:
    host: login.site
    user: svc
    identity_file: /etc/trainmaster/key
    client: openssh
    control_path: /run/trainmaster/ssh
    jump_host: gate.site:2222
    sessions: 4
"""


def test_access_settings_reach_dispatcher() -> None:
    options = SlurmOptions.read(parse_master(FAR, source="master.yaml").managers[0].settings())
    assert options.ssh is not None
    assert (options.ssh.host, options.ssh.port, options.ssh.user) == ("login.site", 22, "svc")
    assert (options.ssh.client, options.ssh.control_path) == (SshClient.OPENSSH, "/run/trainmaster/ssh")
    assert (options.ssh.jump_host, options.ssh.sessions) == ("gate.site:2222", 4)
    assert (options.impersonation, options.helper) == (Impersonation.SUDO, "/opt/helper")
    assert (options.require_user_link, options.external_jobs) == (True, False)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("impersonation: ssh", ":3: resource_manager.impersonation: users can log in over SSH only"),
        ("require_user_link: true", "resource_manager.require_user_link: has no effect while impersonation is none"),
        ("ssh: {host: h}", "resource_manager.job_storage_root: is required with ssh"),
        (
            "ssh: {host: h, control_path: /x}\n  job_storage_root: /jobs",
            ":3: resource_manager.ssh.control_path: only the system's OpenSSH can share a connection",
        ),
        ("ssh: {hst: h}\n  job_storage_root: /jobs", "did you mean host?"),
        ("impersonation: setuid", ":3: resource_manager.impersonation:"),
        ("helper: helper", ":3: resource_manager.helper: must be an absolute path"),
    ],
)
def test_unusable_access_settings_are_reported_by_key_or_line(keys: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_master(f"resource_manager:\n  type: slurm\n  {keys}\n", source="master.yaml")
    assert any(words in str(complaint) for complaint in caught.value.complaints), list(
        map(str, caught.value.complaints)
    )
