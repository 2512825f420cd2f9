"""The groups of calls that `Master` has beside its own, by subject. Each is imported when it is first used."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from trainmaster.client.resource import Resource

if TYPE_CHECKING:
    from trainmaster.client.cluster import ClusterView
    from trainmaster.client.experiments import Experiments
    from trainmaster.client.model_registry import ModelRegistry
    from trainmaster.client.organisation import Organisation
    from trainmaster.client.policies import Policies
    from trainmaster.client.tasks import Tasks
    from trainmaster.client.users import Users
    from trainmaster.client.views import Views


class Subjects(Resource):
    """Groups of calls by subject; a part of `Master`."""

    @cached_property
    def edits(self) -> Experiments:
        """Changes to experiments, trials and checkpoints."""
        from trainmaster.client.experiments import Experiments

        return Experiments(self._http)

    @cached_property
    def organisation(self) -> Organisation:
        """Workspaces, projects, and the pools that are reserved for workspaces."""
        from trainmaster.client.organisation import Organisation

        return Organisation(self._http)

    @cached_property
    def registry(self) -> ModelRegistry:
        """The model registry and templates, with the API's own fields; `models` and `model` return objects with
        methods."""
        from trainmaster.client.model_registry import ModelRegistry

        return ModelRegistry(self._http)

    @cached_property
    def accounts(self) -> Users:
        """Users, groups, roles and access tokens."""
        from trainmaster.client.users import Users

        return Users(self._http)

    @cached_property
    def policies(self) -> Policies:
        """Configuration policies and the site's banner."""
        from trainmaster.client.policies import Policies

        return Policies(self._http)

    @cached_property
    def cluster(self) -> ClusterView:
        """The master's own log and configuration, its live tasks, and the usage of slots."""
        from trainmaster.client.cluster import ClusterView

        return ClusterView(self._http)

    @cached_property
    def tasks(self) -> Tasks:
        """Commands, notebooks, shells, TensorBoards and generic tasks."""
        from trainmaster.client.tasks import Tasks

        return Tasks(self._http)

    @cached_property
    def views(self) -> Views:
        """What the web page shows: boards of experiments and trials, the rung race, comparisons."""
        from trainmaster.client.views import Views

        return Views(self._http)
