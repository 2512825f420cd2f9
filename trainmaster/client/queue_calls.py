"""Calls about the queue of jobs, its pools, and the agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainmaster.client.models import QueuedJob
from trainmaster.client.resource import Json, Resource, word

if TYPE_CHECKING:
    from trainmaster.client import wire


class QueueCalls(Resource):
    """Calls about the queue of jobs and the agents; a part of `Master`.

    Arguments of several calls:
        agent_id: Name of the agent.
    """

    def jobs(
        self,
        *,
        pool: str | None = None,
        limit: int = 100,
        offset: int = 0,
        everything: bool = True,
        reverse: bool = False,
    ) -> list[QueuedJob]:
        """List the jobs in the queue.

        Args:
            pool: Only those of one resource pool.
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            reverse: Last job of the queue first.

        Returns:
            The jobs in the order of the queue.
        """
        query = {"resourcePool": pool, "orderBy": "ORDER_BY_DESC" if reverse else "ORDER_BY_ASC"}
        return [
            QueuedJob.parse(raw)
            for raw in self._pages("/api/v1/job-queues-v2", "jobs", query, limit, offset, everything)
        ]

    def pools(self) -> list[wire.ResourcePool]:
        """List the resource pools.

        Returns:
            The pools with the API's fields.
        """
        return list(self._http.request("GET", "/api/v1/resource-pools")["resourcePools"])

    def resume_pool(self, name: str) -> None:
        """Close the circuit breaker of a pool that is paused after failures. For administrators.

        Args:
            name: Name of the pool.

        Raises:
            NoSuchThing: There is no such pool.
            NotAllowed: The caller is not an administrator.
        """
        self._http.request("POST", f"/api/x1/resource-pools/{word(name)}/resume")

    def update_job(self, job_id: str, **changes: Any) -> None:
        """Change a job's place in the queue.

        Args:
            job_id: Id of the job.
            changes: Named as in the API: priority, weight, resourcePool, aheadOf, behindOf. None is not sent.

        Raises:
            NoSuchThing: There is no such job.
            NotAllowed: The caller may not change it.
        """
        update = {"jobId": job_id, **{key: value for key, value in changes.items() if value is not None}}
        self._http.request("POST", "/api/v1/job-queues", body={"updates": [update]})

    # -- agents ---------------------------------------------------------------------------------------------------

    def agents(self) -> list[Json]:
        """List the agents on Docker hosts.

        Returns:
            The agents by name, with the API's fields.
        """
        return list(self._http.request("GET", "/api/v1/agents")["agents"])

    def enable_agent(self, agent_id: str, slot: int | None = None) -> None:
        """Let an agent or one of its slots take work again. For administrators.

        Args:
            slot: Number of the slot; None for the whole agent.

        Raises:
            NoSuchThing: There is no such agent or slot.
            NotAllowed: The caller may not manage agents.
        """
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/enable", body={})

    def revoke_agent(self, agent_id: str) -> None:
        """Invalidate the agent's secret, and the key with which new agents enrol. For administrators.

        Raises:
            NoSuchThing: There is no such agent.
            NotAllowed: The caller may not manage agents.
        """
        self._http.request("DELETE", f"/api/x1/agent-secrets/{word(agent_id)}")

    def disable_agent(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """Give an agent or one of its slots no more work. For administrators.

        Args:
            slot: Number of the slot; None for the whole agent.
            drain: Let running jobs finish; False ends them.

        Raises:
            NoSuchThing: There is no such agent or slot.
            NotAllowed: The caller may not manage agents.
        """
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/disable", body={"drain": drain})


def _place(agent_id: str, slot: int | None) -> str:
    name = word(agent_id)
    return name if slot is None else f"{name}/slots/{slot}"
