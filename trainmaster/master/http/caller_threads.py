"""Runs functions in threads on behalf of callers, each within its caller's share and at its caller's expense.

The master has forty threads for requests. FastAPI calls an endpoint that is a plain function in one of them, while
`dependencies` holds a place of the caller's share. An endpoint that is a coroutine, a stream or a WebSocket holds none
while it waits, so that it must take one for each thing that it does in a thread: it does so here. No other module of
this package calls Starlette's `run_in_threadpool`; `tests/process/security/test_threads.py` lists the exceptions.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from trainmaster.config.limits import Limits
from trainmaster.master.admission.request_shares import Shares
from trainmaster.master.db.request_context import CURRENT, worked
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.errors import Disconnected

P = ParamSpec("P")
T = TypeVar("T")
STRANGERS = 8  # credentials of one address that are checked at once, while their user is unknown
MOST_KNOWN = 10_000  # credentials whose user is remembered


_CALLER = "trainmaster.served"  # in a request's scope: a list, with its caller once they are known


def expect_caller(scope: Scope) -> None:
    """Prepare a request for `note_caller`."""
    scope[_CALLER] = []


def note_caller(scope: Scope, caller: Caller) -> None:
    """Note whose request this is, for `run_for_request`."""
    scope.get(_CALLER, []).append(caller)


def place_of(caller: Caller) -> tuple[Hashable, Hashable]:
    """Return the key of a caller's share. A user's jobs do not wait for their owner, nor the owner for them."""
    return (caller.user_id, (caller.allocation_id or caller.inside) is not None)


class CallerThreads:
    """Belongs to the event loop."""

    def __init__(self, shares: Shares, limits: Limits) -> None:
        self._shares, self._limits = shares, limits
        self._users: OrderedDict[bytes, int] = OrderedDict()  # by the digest of credentials that were shown lately

    async def run(self, caller: Caller, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a quick function in a thread. Waits for a free place without limit: the number of connections bounds who
        waits here. Raises TooSlow when the client has disconnected."""
        return await self._within(place_of(caller), self._limits.share, "share", partial(call, *args, **kwargs))

    async def search(self, caller: Caller, call: Callable[[], T]) -> T:
        """Call a function that may take long, such as a search in logs. Raises Busy when too many of them wait."""
        key = (caller.user_id, "search")
        return await self._within(key, self._limits.searches, "searches", call, patient=False)

    async def run_for_request(self, scope: Scope, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the same for the sender of a request, as far as it is known."""
        if known := scope.get(_CALLER):
            return await self.run(known[0], call, *args, **kwargs)
        return await self.run_as(("address", (scope.get("client") or [""])[0]), call, *args, **kwargs)

    def place_as(self, who: Hashable) -> AbstractAsyncContextManager[None]:
        """Hold a place in the block, for `who` is no user of the API: an agent, a stranger's address."""
        return self._shares.place((who, "other"), self._limits.share, "share", patient=True)

    async def run_as(self, who: Hashable, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the same as `run` in a place of `place_as`."""
        async with self.place_as(who):
            return await run_in_threadpool(call, *args, **kwargs)

    async def check(self, shown: str, address: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Check credentials. While it is unknown whose they are, places are counted by address; those of a user who
        showed the same ones lately, by user. Raises Busy when too many of the user's wait."""
        user = self._users.get(_digest(shown)) if shown else None
        if user is None:
            async with self.stranger(address):
                return await run_in_threadpool(call, *args, **kwargs)
        context = CURRENT.get()
        before = context.worked
        async with self._shares.place((user, "check"), self._limits.share, "share"):
            try:
                return await run_in_threadpool(worked(call), *args, **kwargs)
            finally:
                self._shares.charge(user, context.worked - before)
                context.worked = before

    def stranger(self, address: str) -> AbstractAsyncContextManager[None]:
        """Hold a place of the callers from an address that nobody has named."""
        return self._shares.place((("address", address), "check"), STRANGERS, "share", patient=True)

    def remember(self, shown: str, caller: Caller) -> None:
        """Note whose credentials these are: for `check` to choose a place by; nobody is let in by it."""
        if not shown:
            return
        key = _digest(shown)
        self._users[key] = caller.user_id
        self._users.move_to_end(key)
        if len(self._users) > MOST_KNOWN:
            self._users.popitem(last=False)

    async def pieces(self, caller: Caller, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the body of a response whose pieces are read in threads."""
        left = iter(pieces)
        with contextlib.suppress(Disconnected):
            while (piece := await self.run(caller, next, left, None)) is not None:
                yield piece

    async def pieces_as(self, who: Hashable, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the same for `who` is no user of the API."""
        left = iter(pieces)
        while (piece := await self.run_as(who, next, left, None)) is not None:
            yield piece

    async def _within(
        self, key: tuple[Hashable, Hashable], most: int, limit: str, call: Callable[[], T], *, patient: bool = True
    ) -> T:
        async with self._shares.one_of(key, most, limit, patient=patient):
            return await run_in_threadpool(worked(call))


def _digest(shown: str) -> bytes:
    return hashlib.blake2b(shown.encode(errors="surrogateescape"), digest_size=16).digest()
