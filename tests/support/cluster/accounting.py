"""A test cluster with accounting: slurmdbd on a private MariaDB, and enforced limits."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

from tests.support.cluster import packages
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.configuration import Profile
from tests.support.cluster.daemons import Daemon, wait_until
from tests.support.cluster.layout import USERS, Layout

OFFSET = 10  # of its ports from those of the first cluster
DBD_PORT = 9  # after its own first port
DATABASE_ACCOUNT = "mysql"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ACCOUNT = "research"


class AccountedCluster(Cluster):
    """Two nodes. Ended jobs are forgotten by the controller after two seconds, so that accounting has to be asked."""

    def __init__(self, layout: Layout | None = None) -> None:
        layout = (layout or Layout.from_environment()).beside("accounted", OFFSET)
        self._folder = layout.run / "database"
        self._port = layout.first_port + DBD_PORT
        settings = {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(self._port),
            "AccountingStoragePass": str(layout.munge_socket),
            "AccountingStorageEnforce": "limits,qos",
            "AccountingStorageTRES": "gres/gpu",
        }
        super().__init__(layout, Profile(settings))

    def up(self, min_job_age: int = 2) -> None:
        packages.install(packages.ACCOUNTING)
        super().up(min_job_age)

    @property
    def accountant(self) -> Daemon:
        return Daemon("slurmdbd", self.layout.pid_file("slurmdbd"), self.layout.log("slurmdbd"))

    @property
    def database(self) -> Daemon:
        return Daemon("mariadbd", self.layout.pid_file("mariadbd"), self.layout.log("mariadbd"))

    def services(self) -> list[Daemon]:
        return [self.database, self.accountant]

    def start_accountant(self) -> None:
        """Start slurmdbd, and wait until it answers."""
        # libmariadb takes the socket's place from the environment; slurmdbd.conf has no key for it.
        environment = {"PATH": PATH, "MYSQL_UNIX_PORT": str(self._socket), **self.environment}
        self.accountant.start(["slurmdbd", "-D"], environment)
        wait_until(
            lambda: self.run("sacctmgr", "-n", "-P", "list", "cluster").returncode == 0,
            60,
            f"slurmdbd ({self.accountant.last_words()})",
        )

    def limit(self, user: str, **limits: int) -> None:
        """Set limits of a user's association, -1 for none, and wait until the controller knows them."""
        words = [f"{key}={value}" for key, value in limits.items()]
        self.command("sacctmgr", "-i", "modify", "user", "where", f"name={user}", "set", *words)
        wait_until(lambda: self._knows(user, limits), 60, f"slurmctld's knowledge of {words}")

    def _knows(self, user: str, limits: dict[str, int]) -> bool:
        shown = self.command("scontrol", "-o", "show", "assoc_mgr", f"users={user}", "flags=assoc")
        return all(f"{key}={'' if value < 0 else value}" in shown for key, value in limits.items())

    # -- inside ----------------------------------------------------------------------------------------

    @property
    def _socket(self) -> Path:
        return self._folder / "socket"

    def _start_services(self) -> None:
        self._start_database()
        conf = self.layout.run / "etc" / "slurmdbd.conf"
        conf.touch(mode=0o600)  # slurmdbd refuses a file that others can read
        conf.write_text(self._slurmdbd_conf())
        self.start_accountant()
        known = self.command("sacctmgr", "-n", "-P", "list", "user", "format=user").split()
        if set(USERS) <= set(known):
            return
        for words in (
            ("add", "cluster", "trainmaster"),
            ("add", "account", ACCOUNT, "cluster=trainmaster"),
            *(("add", "user", user, f"account={ACCOUNT}") for user in USERS),
        ):
            self.command("sacctmgr", "-i", *words)

    def _start_database(self) -> None:
        data = self._folder / "data"
        if not (data / "mysql").exists():
            account = pwd.getpwnam(DATABASE_ACCOUNT)
            self._folder.mkdir(exist_ok=True)
            subprocess.run(
                ["mariadb-install-db", "--no-defaults", f"--user={account.pw_name}", f"--datadir={data}",
                 "--auth-root-authentication-method=socket", "--skip-test-db"],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        self.database.start(
            ["mariadbd", "--no-defaults", f"--user={DATABASE_ACCOUNT}", f"--datadir={data}", f"--socket={self._socket}",
             "--skip-networking", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2",
             f"--pid-file={self._folder}/own.pid"],
            {"PATH": PATH},
        )  # fmt: skip
        ask = ["mariadb-admin", "--no-defaults", f"--socket={self._socket}", "ping"]
        wait_until(
            lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0,
            60,
            f"mariadbd ({self.database.last_words()})",
        )

    def _slurmdbd_conf(self) -> str:
        run = self.layout.run
        lines = [
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self._port}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.layout.munge_socket}",
            "CommunicationParameters=NoInAddrAny",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
            "StorageLoc=slurm_acct_db",
            f"LogFile={run}/log/slurmdbd.daemon.log",
            f"PidFile={run}/pid/own-slurmdbd.pid",
        ]
        return "\n".join(lines) + "\n"
