"""The master's services on a database of a test's, without HTTP and without a controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainmaster.master.services.clusters.clusters import Cluster, Clusters
from trainmaster.master.services.context import Settings, SiteDefaults
from trainmaster.master.services.master import Master
from trainmaster.master.services.store import Store

SETTINGS = Settings("1", "id", "x", b"secret", "det-", "http://master", b"")


def bind(store: Store, clusters: Sequence[Cluster] = (), settings: Settings = SETTINGS, **changes: Any) -> Master:
    """Return services bound to `store`. `changes`: fields of the settings."""
    return Master(store, replace(settings, **changes), Clusters(clusters), SiteDefaults(lambda pool: ()))
