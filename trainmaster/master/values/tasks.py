"""What is kept of services in jobs: the columns `allocations.proxy`, `standalone_tasks.shows` and `secrets`."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.master.values.stored import Json, StoredJson


class ServiceAddress(StoredJson):
    """Where the service in a job listens, as the job announced it."""

    @classmethod
    def of(cls, address: str, port: int, user: str | None) -> ServiceAddress:
        return cls({"address": address, "port": port, "user": user})

    @property
    def address(self) -> str:
        return str(self._stored.get("address") or "")

    @property
    def port(self) -> int:
        return int(self._stored.get("port") or 0)

    @property
    def user(self) -> str:
        """The account in which a shell logs its user in; empty when the job has not announced it."""
        return str(self._stored.get("user") or "")


class ShownEvents(StoredJson):
    """What a TensorBoard shows."""

    @property
    def experiment_ids(self) -> list[int]:
        return list(self._stored.get("experiment_ids") or ())

    @property
    def trial_ids(self) -> list[int]:
        return list(self._stored.get("trial_ids") or ())

    @property
    def folders(self) -> Mapping[str, str]:
        """The folders with event files, by the names under which it shows them."""
        return self._stored.get("folders") or {}

    @property
    def unmounted(self) -> list[str]:
        """Names of the folders that the user's own mounts provide."""
        return list(self._stored.get("unmounted") or ())


class ShellKeys(StoredJson):
    """The keys of a shell, as texts in OpenSSH's format."""

    IN_JOB = ("host_key", "authorized_keys")

    @property
    def private_key(self) -> str:
        return str(self._stored.get("private_key") or "")

    @property
    def public_key(self) -> str:
        return str(self._stored.get("public_key") or "")

    @property
    def host_public_key(self) -> str:
        return str(self._stored.get("host_public_key") or "")

    @property
    def of_job(self) -> Json:
        """The keys that the job itself needs, by their file names."""
        return {name: text for name, text in self._stored.items() if name in self.IN_JOB}
