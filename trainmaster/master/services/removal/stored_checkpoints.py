"""Lists the files of checkpoints in object stores with signed addresses, for who reaches the store themselves."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Unavailable
from trainmaster.master.services.experiments.trials import Trials
from trainmaster.master.services.files import uploads, user_files
from trainmaster.master.services.files.object_stores import refusal
from trainmaster.master.services.files.user_files import NoFolder, StoredPrefix, UserFiles
from trainmaster.master.services.removal.checkpoint_files import with_files
from trainmaster.storage.contract import SignedRequest, StorageFault

MOST = 500  # files of one answer


@dataclass(frozen=True)
class SignedFile:
    """A file of a checkpoint. `sha256` is empty for one that Determined's own harness has written."""

    path: str
    size: int
    sha256: str
    get: SignedRequest


@dataclass(frozen=True)
class SignedFiles:
    """`in_store`: false where the checkpoint lies in a folder, and `files` has none. `after`: the path to ask for next;
    empty at the end."""

    in_store: bool
    files: list[SignedFile]
    folders: list[str]
    after: str
    authority: str


class StoredCheckpoints(BoundService):
    """Files of checkpoints in object stores."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._files = UserFiles(master)
        self._trials = Trials(master)

    def sign(self, key: str, after: str = "", only: str = "") -> SignedFiles:
        """Sign the downloads of a checkpoint's files, in the order of their paths, or of one. Raises NotFound,
        Conflict when its files were deleted, Unavailable, Invalid."""
        row = with_files(self._trials, key)
        try:
            with self._store.transaction() as session:
                place = user_files.of_checkpoint(session, self._settings, row)
                digests = uploads.digests(session, row.uuid) if isinstance(place, StoredPrefix) else {}
            if not isinstance(place, StoredPrefix):
                return SignedFiles(False, [], [], "", "")
            store = self._files.store_of(place)
        except NoFolder as error:
            raise Unavailable(str(error)) from None
        paths = sorted(path for path in row.resources if not path.endswith("/") and path > after)
        if only:
            paths = [only] if only in paths else []
        chosen = paths[:MOST]
        try:
            files = [
                SignedFile(path, row.resources[path], digests.get(path, ""), store.sign_get(place.key + path))
                for path in chosen
            ]
        except StorageFault as fault:
            raise refusal(fault) from None
        folders = [] if after or only else sorted(path for path in row.resources if path.endswith("/"))
        return SignedFiles(True, files, folders, chosen[-1] if len(paths) > MOST else "", store.authority)
