"""Everything that the API and the controller can ask of the master: one service a subject, each bound to it."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.master.services.access.accounts import JobAccounts
from trainmaster.master.services.access.groups import Groups
from trainmaster.master.services.access.identity import Identities
from trainmaster.master.services.access.locations import Locations
from trainmaster.master.services.access.roles import Roles
from trainmaster.master.services.access.sessions import Sessions
from trainmaster.master.services.access.tickets import Tickets
from trainmaster.master.services.access.tokens import AccessTokens
from trainmaster.master.services.access.users import Users
from trainmaster.master.services.allocations.barriers import Barriers
from trainmaster.master.services.allocations.endings import Endings
from trainmaster.master.services.allocations.harness import HarnessReports
from trainmaster.master.services.allocations.leases import Leases
from trainmaster.master.services.allocations.pending_work import WorkSteps
from trainmaster.master.services.allocations.preemption import Preemptions
from trainmaster.master.services.compaction import Compaction
from trainmaster.master.services.context import MasterContext
from trainmaster.master.services.events.log_watch import LogWatch
from trainmaster.master.services.events.updates import UpdateNumbers
from trainmaster.master.services.events.webhook_deliveries import WebhookDeliveries
from trainmaster.master.services.events.webhooks import SiteWebhooks
from trainmaster.master.services.experiments.bulk_actions import BulkActions
from trainmaster.master.services.experiments.continuation import Continuation
from trainmaster.master.services.experiments.creation import ExperimentCreation
from trainmaster.master.services.experiments.custom_search import CustomSearches
from trainmaster.master.services.experiments.experiment_edits import ExperimentEdits
from trainmaster.master.services.experiments.experiment_search import ExperimentSearch
from trainmaster.master.services.experiments.experiments import Experiments
from trainmaster.master.services.experiments.project_columns import ProjectColumns
from trainmaster.master.services.experiments.runs import Runs
from trainmaster.master.services.experiments.trials import Trials
from trainmaster.master.services.experiments.unmanaged import UnmanagedTrainings
from trainmaster.master.services.files.archives import ContextArchives
from trainmaster.master.services.files.event_objects import EventObjectFiles
from trainmaster.master.services.files.git_states import GitStates
from trainmaster.master.services.files.model_files import ContextFiles
from trainmaster.master.services.files.node_data import NodeDataFiles
from trainmaster.master.services.files.uploads import Uploads
from trainmaster.master.services.files.user_files import UserFiles
from trainmaster.master.services.ingest.asked_trials import AskedTrials
from trainmaster.master.services.ingest.calls import ReportCalls
from trainmaster.master.services.ingest.exits import Exits
from trainmaster.master.services.ingest.logs import JobLogs
from trainmaster.master.services.ingest.records import JobRecords
from trainmaster.master.services.ingest.single_calls import SingleCalls
from trainmaster.master.services.logs.log_blocks import LogBlocks
from trainmaster.master.services.logs.log_store import LogStore
from trainmaster.master.services.metrics.metric_names import MetricLists
from trainmaster.master.services.metrics.metric_reports import MetricReports
from trainmaster.master.services.metrics.profiler import ProfilerSeries
from trainmaster.master.services.metrics.series import MetricSeries
from trainmaster.master.services.metrics.series_columns import SeriesColumns
from trainmaster.master.services.model_registry.aliases import ModelAliases
from trainmaster.master.services.model_registry.checkpoint_uses import CheckpointUses
from trainmaster.master.services.model_registry.lineage import Lineages
from trainmaster.master.services.model_registry.registered_models import RegisteredModels
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.propagation import Propagation
from trainmaster.master.services.organisation.pool_bindings import PoolBindings
from trainmaster.master.services.organisation.projects import Projects
from trainmaster.master.services.organisation.site_policies import SitePolicies
from trainmaster.master.services.organisation.templates import Templates
from trainmaster.master.services.organisation.workspaces import Workspaces
from trainmaster.master.services.removal.checkpoint_files import CheckpointArchives
from trainmaster.master.services.removal.checkpoint_gc import CheckpointPolicies
from trainmaster.master.services.removal.checkpoints import Checkpoints
from trainmaster.master.services.removal.removal import Removal
from trainmaster.master.services.removal.retention import LogRetention
from trainmaster.master.services.removal.stored_checkpoints import StoredCheckpoints
from trainmaster.master.services.resources.agents import Agents
from trainmaster.master.services.resources.job_queue import JobQueue
from trainmaster.master.services.scheduling.feasibility import Feasibility
from trainmaster.master.services.scheduling.job_spec import JobSpecs
from trainmaster.master.services.scheduling.observations import Observations
from trainmaster.master.services.scheduling.pool_health import PoolHealth
from trainmaster.master.services.scheduling.queue_control import QueueControl
from trainmaster.master.services.scheduling.slot_limits import SlotLimits
from trainmaster.master.services.scheduling.submission import Submissions
from trainmaster.master.services.tasks.idle import IdleTasks
from trainmaster.master.services.tasks.proxies import JobServices
from trainmaster.master.services.tasks.standalone import StandaloneTasks
from trainmaster.master.services.tasks.task_creation import TaskCreation
from trainmaster.master.services.views.attempts_view import AttemptsViews
from trainmaster.master.services.views.board import Boards
from trainmaster.master.services.views.checkpoint_table import CheckpointTable
from trainmaster.master.services.views.comparison import Comparisons
from trainmaster.master.services.views.curves import Curves
from trainmaster.master.services.views.experiment_story import ExperimentStory
from trainmaster.master.services.views.experiment_table import ExperimentTable
from trainmaster.master.services.views.home import HomePages
from trainmaster.master.services.views.log_window import LogWindows
from trainmaster.master.services.views.node_failures import NodeFailureList
from trainmaster.master.services.views.rung_race import RungRaces
from trainmaster.master.services.views.search_plan import SearchPlans
from trainmaster.master.services.views.search_simulation import SearchSimulations
from trainmaster.master.services.views.slot_usage import SlotUsage
from trainmaster.master.services.views.storage_usage import StorageUsage
from trainmaster.master.services.views.trial_view import TrialViews


@dataclass
class Master(MasterContext):
    """The master's services, by subject: `master.trials.kill(caller, trial_id)`."""

    def __post_init__(self) -> None:
        self.accounts = JobAccounts(self)
        self.agents = Agents(self)
        self.attempts_views = AttemptsViews(self)
        self.barriers = Barriers(self)
        self.boards = Boards(self)
        self.bulk_actions = BulkActions(self)
        self.checkpoint_archives = CheckpointArchives(self)
        self.checkpoint_policies = CheckpointPolicies(self)
        self.checkpoint_table = CheckpointTable(self)
        self.checkpoint_uses = CheckpointUses(self)
        self.checkpoints = Checkpoints(self)
        self.compaction = Compaction(self)
        self.comparisons = Comparisons(self)
        self.context_archives = ContextArchives(self)
        self.context_files = ContextFiles(self)
        self.continuation = Continuation(self)
        self.curves = Curves(self)
        self.endings = Endings(self)
        self.event_object_files = EventObjectFiles(self)
        self.exits = Exits(self)
        self.experiment_creation = ExperimentCreation(self)
        self.experiment_edits = ExperimentEdits(self)
        self.experiment_lock = ExperimentLock(self)
        self.experiment_search = ExperimentSearch(self)
        self.experiment_story = ExperimentStory(self)
        self.experiment_table = ExperimentTable(self)
        self.experiments = Experiments(self)
        self.feasibility = Feasibility(self)
        self.files = UserFiles(self)
        self.git_states = GitStates(self)
        self.groups = Groups(self)
        self.harness_reports = HarnessReports(self)
        self.home_pages = HomePages(self)
        self.identities = Identities(self)
        self.idle_tasks = IdleTasks(self)
        self.job_logs = JobLogs(self)
        self.job_queue = JobQueue(self)
        self.preemptions = Preemptions(self)
        self.job_records = JobRecords(self)
        self.job_services = JobServices(self)
        self.job_specs = JobSpecs(self)
        self.leases = Leases(self)
        self.lineages = Lineages(self)
        self.locations = Locations(self)
        self.log_blocks = LogBlocks(self)
        self.log_store = LogStore(self)
        self.log_watch = LogWatch(self)
        self.log_windows = LogWindows(self)
        self.metric_lists = MetricLists(self)
        self.metric_reports = MetricReports(self)
        self.model_aliases = ModelAliases(self)
        self.node_data_files = NodeDataFiles(self)
        self.node_failure_list = NodeFailureList(self)
        self.observations = Observations(self)
        self.pool_bindings = PoolBindings(self)
        self.pool_health = PoolHealth(self)
        self.profiler = ProfilerSeries(self)
        self.project_columns = ProjectColumns(self)
        self.projects = Projects(self)
        self.propagation = Propagation(self)
        self.queue_control = QueueControl(self)
        self.registered_models = RegisteredModels(self)
        self.removal = Removal(self)
        self.report_calls = ReportCalls(self)
        self.retention = LogRetention(self)
        self.roles = Roles(self)
        self.rung_races = RungRaces(self)
        self.runs = Runs(self)
        self.search_simulations = SearchSimulations(self)
        self.series = MetricSeries(self)
        self.series_columns = SeriesColumns(self)
        self.sessions = Sessions(self)
        self.single_calls = SingleCalls(self)
        self.site_policies = SitePolicies(self)
        self.slot_limits = SlotLimits(self)
        self.slot_usage = SlotUsage(self)
        self.standalone_tasks = StandaloneTasks(self)
        self.submissions = Submissions(self)
        self.task_creation = TaskCreation(self)
        self.templates = Templates(self)
        self.tickets = Tickets(self)
        self.tokens = AccessTokens(self)
        self.trial_views = TrialViews(self)
        self.trials = Trials(self)
        self.unmanaged = UnmanagedTrainings(self)
        self.update_numbers = UpdateNumbers(self)
        self.storage_usage = StorageUsage(self)
        self.stored_checkpoints = StoredCheckpoints(self)
        self.uploads = Uploads(self)
        self.users = Users(self)
        self.webhook_deliveries = WebhookDeliveries(self)
        self.webhooks = SiteWebhooks(self)
        self.asked_trials = AskedTrials(self)
        self.search_plans = SearchPlans(self)
        self.custom_searches = CustomSearches(self)
        self.work_steps = WorkSteps(self)
        self.workspaces = Workspaces(self)
