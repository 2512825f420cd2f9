"""The dispatcher contract: a dispatcher turns a job specification into a job of a scheduler, and observes it.

This page is the plugin author's guide. A dispatcher is a class that implements `Dispatcher` and is announced
under the entry-point group ``trainmaster.dispatchers``; the administrator's configuration chooses it by that
short name. Several can run at once. Beside its methods it declares the model of its section in the master's file
(`Options`), the model of its section in experiments (`UserOptions`), and the properties that all its clusters
share (`Traits`). No other part of trainmaster knows it by name.

Rules that every dispatcher keeps:

* **The token is the job.** The master commits a row with a unique token before it calls `submit`; the token
  becomes the scheduler's job name (``[A-Za-z0-9_.-]``, at most 64 characters, starts with a letter). A second
  `submit` under the same token happens only after the master has looked for the first one.
* **Report what is known, not what is likely.** A submit that timed out is `Ambiguous`, never "failed". A job that is
  absent from a snapshot is only absent; the master decides what that means.
* **CANCELLED is a person's word.** Many schedulers call jobs cancelled that they ended on their own account. What the
  record shows to be the cluster's doing is INFRASTRUCTURE (or the state that fits); what may be either is CANCELLED,
  with what is known of it (`Observation.canceller`, `started_at`, `Explanation.script_began`,
  `Snapshot.controller_started_at`); the master weighs that.
* **One query for all jobs.** `observe` is one bulk query, however many jobs there are.
* **Nothing is decided here.** No retries beyond one call, no states of trials, no policies.
* **Errors.** A dispatcher raises only `Rejected`, `Transient`, `Ambiguous` and `Unreachable`, whose tree is drawn in
  `contract/errors.py`; anything else is a bug and is logged as one.

The methods are in `contract/dispatcher.py`, what they take and return in `contract/values.py`; plugins import all of it
from here.

Times are seconds since the epoch (UTC) unless a name says otherwise; sizes are bytes.
"""

from __future__ import annotations

from trainmaster.config.resource_managers import ClusterFacts as ClusterFacts
from trainmaster.config.resource_managers import DispatcherOptions as DispatcherOptions
from trainmaster.config.user_options import UserOptions as UserOptions
from trainmaster.dispatchers.contract.dispatcher import Announces as Announces
from trainmaster.dispatchers.contract.dispatcher import Dispatcher as Dispatcher
from trainmaster.dispatchers.contract.dispatcher import HeldFiles as HeldFiles
from trainmaster.dispatchers.contract.dispatcher import HoldsFiles as HoldsFiles
from trainmaster.dispatchers.contract.dispatcher import SeesFolders as SeesFolders
from trainmaster.dispatchers.contract.errors import Ambiguous as Ambiguous
from trainmaster.dispatchers.contract.errors import DispatcherError as DispatcherError
from trainmaster.dispatchers.contract.errors import Rejected as Rejected
from trainmaster.dispatchers.contract.errors import Transient as Transient
from trainmaster.dispatchers.contract.errors import Unreachable as Unreachable
from trainmaster.dispatchers.contract.errors import sentence as sentence
from trainmaster.dispatchers.contract.values import BindMount as BindMount
from trainmaster.dispatchers.contract.values import Canceller as Canceller
from trainmaster.dispatchers.contract.values import Capabilities as Capabilities
from trainmaster.dispatchers.contract.values import ContainerSpec as ContainerSpec
from trainmaster.dispatchers.contract.values import DeviceMount as DeviceMount
from trainmaster.dispatchers.contract.values import Explanation as Explanation
from trainmaster.dispatchers.contract.values import ExternalJob as ExternalJob
from trainmaster.dispatchers.contract.values import FolderFacts as FolderFacts
from trainmaster.dispatchers.contract.values import JobFeature as JobFeature
from trainmaster.dispatchers.contract.values import JobFile as JobFile
from trainmaster.dispatchers.contract.values import JobRef as JobRef
from trainmaster.dispatchers.contract.values import JobSpec as JobSpec
from trainmaster.dispatchers.contract.values import JobState as JobState
from trainmaster.dispatchers.contract.values import NotStarted as NotStarted
from trainmaster.dispatchers.contract.values import Observation as Observation
from trainmaster.dispatchers.contract.values import Pool as Pool
from trainmaster.dispatchers.contract.values import PoolNode as PoolNode
from trainmaster.dispatchers.contract.values import Problem as Problem
from trainmaster.dispatchers.contract.values import Remains as Remains
from trainmaster.dispatchers.contract.values import Setup as Setup
from trainmaster.dispatchers.contract.values import SharedFile as SharedFile
from trainmaster.dispatchers.contract.values import Signal as Signal
from trainmaster.dispatchers.contract.values import Snapshot as Snapshot
from trainmaster.dispatchers.contract.values import StagedFile as StagedFile
from trainmaster.dispatchers.contract.values import StreamPiece as StreamPiece
from trainmaster.dispatchers.contract.values import StreamPosition as StreamPosition
from trainmaster.dispatchers.contract.values import Traits as Traits
from trainmaster.slots import SlotType as SlotType
