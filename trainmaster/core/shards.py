"""Pure rules of a sharded checkpoint: which rank copies which file, and whether the ranks' files fit together."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, Sequence, Set, Tuple

from trainmaster.core.errors import CheckpointConflict
from trainmaster.core.file_tree import without_linked
from trainmaster.runtime.record import Record

Identity = Tuple[str, int, int]  # host, device, inode: the same file, seen by two ranks of one node


class Shard(Record):
    """The files and metadata of one rank. Folders end with "/"; what links lead to is among the files."""

    sizes: Mapping[str, int]
    identities: Mapping[str, Identity]
    metadata: Mapping[str, Any]
    links: Mapping[str, str] = {}  # that stay links: path -> the path in the link


def same_names(shards: Sequence[Shard]) -> Dict[str, List[int]]:
    """Files that several ranks have and that are not one and the same: path -> ranks. Their contents must be
    compared."""
    owners: Dict[str, List[int]] = {}
    for rank, shard in enumerate(shards):
        for path in shard.sizes:
            if not path.endswith("/"):
                owners.setdefault(path, []).append(rank)
    return {path: ranks for path, ranks in owners.items() if len({shards[rank].identities[path] for rank in ranks}) > 1}


def check_digests(doubtful: Mapping[str, Sequence[int]], digests: Sequence[Mapping[str, str]]) -> None:
    """Compare the digests of files of the same name. Raises CheckpointConflict when they differ."""
    for path in sorted(doubtful):
        ranks = doubtful[path]
        if len({digests[rank].get(path) for rank in ranks}) > 1:
            raise CheckpointConflict(
                "ranks %s bring different files %r: give the shards different names" % (list(ranks), path)
            )


def assign_links(shards: Sequence[Shard]) -> List[Dict[str, str]]:
    """Return the links that each rank is to make: the lowest rank that has it. One that is a file or a folder for
    another rank, or that leads elsewhere there, is none for all: what it leads to is copied."""
    links: Dict[str, str] = {}
    shares: List[Dict[str, str]] = []
    for shard in shards:
        share = {path: text for path, text in shard.links.items() if path not in links}
        shares.append(share)
        links.update(share)
    for shard in shards:
        names = {*shard.sizes, *shard.links}
        for path, text in list(links.items()):
            if shard.links.get(path, text) != text or (path not in shard.links and {path, path + "/"} & names):
                del links[path]
    return [{path: text for path, text in share.items() if path in links} for share in shares]


def assign(shards: Sequence[Shard], links: Collection[str] = ()) -> List[Set[str]]:
    """Return the paths that each rank is to copy: the lowest rank that has a path copies it. Those behind `links` are
    not copied.

    Raises CheckpointConflict when a path is a file for one rank and a folder for another.
    """
    taken: Set[str] = set()
    shares: List[Set[str]] = []
    for shard in shards:
        share = set(without_linked(shard.sizes, links)) - taken
        shares.append(share)
        taken |= share
    for path in taken:
        if not path.endswith("/") and path + "/" in taken:
            raise CheckpointConflict("%r is a file for one rank and a folder for another" % path)
    return shares


def merge_metadata(shards: Sequence[Shard]) -> Dict[str, Any]:
    """All ranks' metadata in one. Raises CheckpointConflict when two ranks differ in one key."""
    merged: Dict[str, Any] = {}
    origin: Dict[str, int] = {}
    for rank, shard in enumerate(shards):
        for key, value in shard.metadata.items():
            if key in merged and merged[key] != value:
                raise CheckpointConflict("ranks %d and %d give different metadata under %r" % (origin[key], rank, key))
            merged.setdefault(key, value)
            origin.setdefault(key, rank)
    return merged


def merge_sizes(shards: Sequence[Shard]) -> Dict[str, int]:
    """All paths with their sizes. A node may see an old size of another node's file for a while (NFS); files
    of a checkpoint only grow, so the largest is right."""
    sizes: Dict[str, int] = {}
    for shard in shards:
        for path, size in shard.sizes.items():
            sizes[path] = max(size, sizes.get(path, 0))
    return sizes
