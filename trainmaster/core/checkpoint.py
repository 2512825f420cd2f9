"""CheckpointContext: saves, restores and deletes checkpoints."""

from __future__ import annotations

import contextlib
import enum
import os
import socket
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from trainmaster.core.background import Background, all_sent
from trainmaster.core.distributed import DistributedContext, single
from trainmaster.core.errors import CheckpointError, DistributedError, MasterAway
from trainmaster.core.file_tree import inner_links, kept_links, list_files, settle_links
from trainmaster.core.reports import Reports
from trainmaster.core.shards import Shard, assign, assign_links, check_digests, merge_metadata, merge_sizes, same_names
from trainmaster.core.storage import METADATA, Storage, selected
from trainmaster.core.values import check_file_count, counted_steps, storable
from trainmaster.runtime.errors import CallFailed, CallRejected
from trainmaster.runtime.master import MasterCalls

Selector = Callable[[str], bool]
AnyPath = Union[str, "os.PathLike[str]"]


class DownloadMode(enum.Enum):
    """Which ranks download a checkpoint."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"  # one rank a node; every rank must call
    NoSharedDownload = "NO_SHARED_DOWNLOAD"  # each for itself


class CheckpointContext:
    """Saves and restores checkpoints.

    A checkpoint exists for the master once it has been reported, which happens only when all of its files are on disk.
    A save that fails leaves nothing behind.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        storage: Storage,
        reports: Optional[Reports] = None,
        master: Optional[MasterCalls] = None,
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:
        """Store checkpoints; `reports` and `master` are None outside a job. `on_saved` is called after each
        checkpoint."""
        self._distributed = distributed
        self._storage = storage
        self._reports = reports
        self._master = master
        self._on_saved = on_saved
        self._background: Optional[Background] = None
        self._in_job = reports is not None or master is not None

    def upload(
        self,
        ckpt_dir: Optional[AnyPath],
        metadata: Optional[Mapping[str, Any]] = None,
        *,
        shard: bool = False,
        selector: Optional[Selector] = None,
    ) -> str:
        """Copy a folder into a new checkpoint.

        Args:
            ckpt_dir: The folder. None, with `shard`, for a rank that has no files of its own.
            metadata: Stored with the checkpoint. In a job it must hold `steps_completed`, a number of steps.
            shard: Every rank calls and copies its part; otherwise only the chief may call.
            selector: Called with each path relative to the folder (folders end with "/"); only paths for which it
                returns True are copied.

        Returns:
            The checkpoint's uuid.

        Raises:
            ValueError: `ckpt_dir` or `steps_completed` is missing.
            RuntimeError: A rank other than the chief called without `shard`.
            CheckpointError: The folder does not exist, or another rank failed.
            CheckpointConflict: Ranks have different files or metadata under one name.
        """
        if not shard:
            self._chief_only("upload")
            if ckpt_dir is None:
                raise ValueError("ckpt_dir may be None only with shard=True")
        source = None if ckpt_dir is None else Path(ckpt_dir)

        def bring() -> Shard:
            return _shard(source, selector, self._metadata(metadata, shard), links=not self._storage.in_store)

        def place(storage_id: str, share: List[str], links: Mapping[str, str]) -> None:
            if source is not None:
                self._storage.keep(storage_id, source, share, links)
            else:
                self._storage.create(storage_id)

        self.wait()
        group = self._distributed if shard else single()
        storage_id = _new_id(group)
        self._save(group, storage_id, bring, place, source)
        return storage_id

    @contextlib.contextmanager
    def store_path(
        self, metadata: Optional[Mapping[str, Any]] = None, *, shard: bool = False, wait: bool = True
    ) -> Iterator[Tuple[Path, str]]:
        """Write the files of a new checkpoint: `with store_path(metadata) as (path, uuid):`.

        The checkpoint exists when the block ends without an exception; otherwise its files are removed.

        Args:
            metadata: Stored with the checkpoint. In a job it must hold `steps_completed`, a number of steps.
            shard: Every rank enters the block, and the ranks of a node write into the same folder; otherwise only the
                chief may call.
            wait: False sends the files to an object store while the training continues. The checkpoint exists once all
                of them are there; `wait`, the next checkpoint and the end of the training wait for that. Without
                effect in a storage that is a folder.

        Yields:
            The folder to write into, and the checkpoint's uuid.

        Raises:
            ValueError: `steps_completed` is missing.
            RuntimeError: A rank other than the chief called without `shard`.
            CheckpointError: The folder cannot be made, another rank failed, or the checkpoint before.
        """
        self.wait()
        if not shard:
            self._chief_only("store_path")
            self._metadata(metadata, shard)  # before the work that is to be stored
        group = self._distributed if shard else single()
        storage_id = _new_id(group)
        folder = self._storage.create(storage_id)
        try:
            yield folder, storage_id
        except DistributedError:
            raise
        except BaseException as error:
            # The others wait in `_save` for this rank's part; they get the error instead.
            self._abandon(group, storage_id, error)
            raise

        def bring() -> Shard:
            if self._storage.in_store:
                return _shard(folder, None, self._metadata(metadata, shard), links=False)
            sizes = list_files(folder)
            # All ranks see one folder: what they have in common is one file.
            identities = {path: ("", 0, 0) for path in sizes}
            return Shard(sizes, identities, self._metadata(metadata, shard))

        def place(_: str, share: List[str], links: Mapping[str, str]) -> None:
            self._storage.keep(storage_id, folder, share, links)

        def settle() -> None:
            if not self._storage.in_store:
                settle_links(folder)

        self._save(group, storage_id, bring, place, folder, settle, wait or not self._storage.in_store)

    def store_in_background(
        self, metadata: Optional[Mapping[str, Any]], begin: Callable[[Path], Callable[[], object]]
    ) -> str:
        """Store a checkpoint while the training goes on. All ranks call. One at a time: waits for the one before.

        The checkpoint exists once all parts are there; until then the master knows nothing of it. `close` waits for it.

        Args:
            metadata: Stored with the checkpoint. In a job it must hold `steps_completed`, a number of steps.
            begin: Called with the folder, on every rank, before this returns. It takes the training's state, begins to
                write, and returns a function that waits, in a thread of this call, until the parts of all ranks are
                there.

        Returns:
            The checkpoint's uuid.

        Raises:
            ValueError: `steps_completed` is missing.
            CheckpointError: The folder cannot be made, or the checkpoint before failed.
        """
        self.wait()
        if self._storage.in_store:
            return self._send_in_background(metadata, begin)
        with contextlib.ExitStack() as stack:
            made: Optional[Tuple[Path, str]] = None
            if self._distributed.rank == 0:
                made = stack.enter_context(self.store_path(metadata))
            folder, storage_id = self._distributed.broadcast(made)
            ended, opened = begin(folder), stack.pop_all()

        def work() -> None:
            with opened:
                ended()

        self._background = Background(work)
        return str(storage_id)

    def wait(self) -> None:
        """Wait until the checkpoint of `store_in_background`, if any, is stored. Each rank waits for its own part, the
        chief for all.

        Raises:
            CheckpointError: It could not be stored; nothing of it is left.
        """
        if self._background is not None:
            background, self._background = self._background, None
            background.wait()

    def download(
        self,
        storage_id: str,
        ckpt_dir: AnyPath,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> None:
        """Copy a checkpoint into a folder.

        Args:
            storage_id: The checkpoint's uuid.
            ckpt_dir: The folder to copy into; it is made if it does not exist.
            download_mode: With LocalWorkersShareDownload one rank of each node copies, and every rank must call.
            selector: Called with each relative path (folders end with "/"); only paths for which it returns True are
                copied.

        Raises:
            CheckpointError: There is no checkpoint of this uuid, or the rank that copies failed.
        """
        mode = DownloadMode(download_mode)
        if mode is DownloadMode.NoSharedDownload:
            self._fetch(storage_id, Path(ckpt_dir), selector)
            return
        error: Optional[str] = None
        if self._distributed.local_rank == 0:
            try:
                self._fetch(storage_id, Path(ckpt_dir), selector)
            except (CheckpointError, OSError) as failure:
                error = str(failure)
        error = self._distributed.broadcast_local(error)
        if error is not None:
            raise CheckpointError(error)

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> Iterator[Path]:
        """Read a checkpoint: `with restore_path(uuid) as path:`. In a folder it is read where it is; from a store
        it is fetched first, once for all ranks of a node.

        Args:
            storage_id: The checkpoint's uuid.
            download_mode: Accepted for compatibility with Determined; without effect.
            selector: Accepted for compatibility with Determined; without effect.

        Yields:
            The checkpoint's folder, which must not be written to.

        Raises:
            CheckpointError: There is no checkpoint of this uuid.
        """
        del download_mode, selector
        yield self._storage.existing(storage_id)

    def get_metadata(self, storage_id: str) -> Dict[str, Any]:
        """Read a checkpoint's metadata from its files, or from the master when the files are not there.

        Args:
            storage_id: The checkpoint's uuid.

        Returns:
            The metadata; empty if there is none.

        Raises:
            CheckpointError: There is no checkpoint of this uuid.
            MasterAway: Only the master has the metadata, and it cannot be reached.
        """
        metadata = self._storage.read_metadata(storage_id)
        if metadata is not None:
            return metadata
        if self._master is None:
            raise CheckpointError("there is no checkpoint %s in %s" % (storage_id, self._storage.place))
        from urllib.parse import quote

        try:
            answer = self._master.call("GET", "/api/v1/checkpoints/" + quote(storage_id, safe=""))
            return dict(answer["checkpoint"].get("metadata") or {})
        except CallRejected as error:
            raise CheckpointError("checkpoint %s: %s" % (storage_id, error)) from error
        except CallFailed as error:
            raise MasterAway("the metadata of checkpoint %s cannot be asked for: %s" % (storage_id, error)) from error

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint: report it to the master, then remove its files.

        Args:
            storage_id: The checkpoint's uuid.

        Raises:
            CheckpointError: There is no checkpoint of this uuid.
        """
        self._storage.check(storage_id)
        if self._reports is not None:
            # First the word, then the deed: a checkpoint that is listed and gone would break a restart.
            self._reports.add("checkpoint_deleted", durable=True, uuid=storage_id)
        self._storage.discard(storage_id)

    def _save(
        self,
        group: DistributedContext,
        storage_id: str,
        bring: Callable[[], Shard],
        place: Callable[[str, List[str], Mapping[str, str]], None],
        source: Optional[Path],
        settle: Callable[[], None] = lambda: None,
        wait: bool = True,
    ) -> None:
        """Take the steps that all ranks of a save take together; an error on one is an error on all. `settle`: what the
        first rank does to a folder of all before it is listed. `wait`: false leaves the last ones to a thread."""
        try:
            # In `store_path` all write into one folder: what one rank has in it for a moment, no other may list.
            _all(group, lambda: None)
            _all(group, lambda: settle() if group.rank == 0 else None)
            shards = _all(group, bring)
            doubtful = same_names(shards)
            if doubtful:
                digests = _all(group, lambda: _digests(source, doubtful, group.rank))
                check_digests(doubtful, digests)
            links = assign_links(shards)
            share = sorted(assign(shards, {path for each in links for path in each})[group.rank])
            metadata = merge_metadata(shards)
            sizes = merge_sizes(shards)
            if wait:
                _all(group, lambda: place(storage_id, share, links[group.rank]))
                _all(group, lambda: self._conclude(storage_id, metadata, sizes) if group.rank == 0 else None)
                self._storage.clear(storage_id)
            else:
                self._background = Background(
                    lambda: self._send(
                        group, storage_id, lambda: self._keep_apart(storage_id, source, share), metadata, sizes
                    )
                )
        except BaseException:
            if group.rank == 0:
                self._storage.remove(storage_id)
            raise
        self._on_saved()

    def _conclude(self, storage_id: str, metadata: Dict[str, Any], sizes: Dict[str, int]) -> None:
        if self._reports is not None:
            check_file_count(len(sizes) + 1, self._reports.limits)
        size = self._storage.conclude(storage_id, metadata)
        if self._reports is None:
            return
        resources = {**sizes, METADATA: size}
        self._reports.add(
            "checkpoint",
            decides=False,
            durable=True,
            uuid=storage_id,
            steps_completed=counted_steps(metadata["steps_completed"]),
            resources=resources,
            metadata=metadata,
            storage=self._storage.config,
        )

    def _send_in_background(
        self, metadata: Optional[Mapping[str, Any]], begin: Callable[[Path], Callable[[], object]]
    ) -> str:
        """`store_in_background` to an object store: each rank has a folder of its own, and sends what is in it."""
        group = self._distributed
        checked = self._metadata(metadata, shard=True)
        storage_id = _new_id(group)
        own = "%s.%d" % (storage_id, group.rank)
        folder = self._storage.create(own)
        ended = begin(folder)

        def place() -> None:
            ended()
            self._keep_apart(storage_id, folder, sorted(list_files(folder)))
            self._storage.clear(own)

        self._background = Background(lambda: self._send(group, storage_id, place, checked, None))
        return storage_id

    def _keep_apart(self, storage_id: str, source: Optional[Path], names: List[str]) -> None:
        storage: Any = self._storage
        if source is not None:
            storage.keep_apart(storage_id, source, names)

    def _send(
        self,
        group: DistributedContext,
        storage_id: str,
        place: Callable[[], None],
        metadata: Dict[str, Any],
        sizes: Optional[Dict[str, int]],
    ) -> None:
        """Send this rank's part in a thread; the chief then waits for the others' at the master: what ranks say to each
        other belongs to the training meanwhile. `sizes`: of all files, where they are known. Raises CheckpointError."""
        storage: Any = self._storage
        try:
            place()
            storage.call(storage_id, "done", {"rank": group.rank})
            if group.rank == 0:
                sent = all_sent(lambda verb, body: storage.call(storage_id, verb, body), group.size)
                self._conclude(storage_id, metadata, sent if sizes is None else sizes)
                storage.clear(storage_id)
        except BaseException:
            storage.remove(storage_id)  # which the others hear of
            raise

    def _abandon(self, group: DistributedContext, storage_id: str, error: BaseException) -> None:
        with contextlib.suppress(Exception):
            group.allgather((None, "%s: %s" % (type(error).__name__, error)))
        if group.rank == 0:
            self._storage.remove(storage_id)

    def _fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        self._storage.check(storage_id)
        target.mkdir(parents=True, exist_ok=True)
        self._storage.fetch(storage_id, target, selector)

    def _metadata(self, metadata: Optional[Mapping[str, Any]], shard: bool) -> Dict[str, Any]:
        checked = storable(dict(metadata or {}))
        assert isinstance(checked, dict)
        steps = checked.get("steps_completed")
        # Of a sharded save one rank's word is enough; `int()` in `_conclude` speaks for the rest.
        if self._in_job and (not shard or self._distributed.rank == 0) and not isinstance(steps, (int, float)):
            raise ValueError('the metadata of a checkpoint must hold "steps_completed", a number')
        if self._in_job and isinstance(steps, (int, float)):
            counted_steps(steps)
        return checked

    def _chief_only(self, name: str) -> None:
        if self._distributed.rank != 0:
            raise RuntimeError("%s(shard=False) may be called by the chief only; use shard=True on all ranks" % name)


def _new_id(group: DistributedContext) -> str:
    import uuid  # not before the first checkpoint

    return str(group.broadcast(str(uuid.uuid4())))


def _all(group: DistributedContext, step: Callable[[], Any]) -> List[Any]:
    """Everybody's result of a step. When it fails on one rank, all ranks raise: that one its own error, the
    others CheckpointError."""
    result: Any = None
    error: Optional[Exception] = None
    try:
        result = step()
    except Exception as failure:
        error = failure
    message = None if error is None else "%s: %s" % (type(error).__name__, error)
    answers = group.allgather((result, message))
    if error is not None:
        raise error
    for rank, (_, their_error) in enumerate(answers):
        if their_error is not None:
            raise CheckpointError("the checkpoint failed on rank %d: %s" % (rank, their_error))
    return [theirs for theirs, _ in answers]


def _shard(source: Optional[Path], selector: Optional[Selector], metadata: Dict[str, Any], *, links: bool) -> Shard:
    if source is None:
        return Shard({}, {}, metadata)
    if not source.is_dir():
        raise CheckpointError("%s is not a folder" % source)
    sizes = selected(list_files(source), selector)
    host = socket.gethostname()
    identities = {}
    for name in sizes:
        status = os.stat(str(source / name))
        identities[name] = (host, status.st_dev, status.st_ino)
    kept = kept_links(inner_links(source), sizes, selector is None) if links else {}
    return Shard(sizes, identities, metadata, kept)


def _digests(source: Optional[Path], doubtful: Mapping[str, List[int]], rank: int) -> Dict[str, str]:
    import hashlib  # for ranks that bring files of the same name

    digests = {}
    for path, ranks in doubtful.items():
        if rank in ranks and source is not None:
            digest = hashlib.sha256()
            with open(str(source / path), "rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
            digests[path] = digest.hexdigest()
    return digests
