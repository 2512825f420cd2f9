"""Tickets and passes for browsers, which replace the session's token: a ticket is good once and for seconds, a pass for
one task's services."""

from __future__ import annotations

import datetime as dt
import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError

from trainmaster.master.db.tables import Ticket, User
from trainmaster.master.services.access import identity
from trainmaster.master.services.access.identity import Caller, Identities
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Forbidden, Unauthenticated

LIFE = 30.0  # seconds
LIFE_OF_LINK = 60.0  # seconds: a person copies it from a terminal to a browser
STREAM = "stream"  # purposes: to follow changes as Determined's page does ...
LIVE = "live"  # ... or as this master's page does ...
BY_LINK = "by a link of det ui"  # description of the session that a ticket for the page begins
PAGE = "page"  # ... to log in on the web page ...
_SPENT = "The ticket is not valid: it is good once, for {:.0f} s, and for what it was made for."


def service_of(task_id: str) -> str:
    """... and to enter a task's services."""
    return f"service:{task_id}"


class Tickets(BoundService):
    """One-time tickets and passes for browsers."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._identities = Identities(master)

    def issue(self, caller: Caller, purpose: str, life: float = LIFE) -> str:
        """Issue a ticket for the caller's session. Raises Forbidden for callers without one, as jobs, and
        Unauthenticated where it has just ended."""
        if caller.session_id is None:
            raise Forbidden("Tickets are for the sessions of users.")
        ticket = secrets.token_urlsafe(32)
        with _of_a_session_that_lasts(), self._store.transaction() as session:
            session.execute(delete(Ticket).where(Ticket.expires_at < func.now()))
            ends = now() + dt.timedelta(seconds=life)
            row = Ticket(
                ticket_hash=identity.digest(ticket), session_id=caller.session_id, purpose=purpose, expires_at=ends
            )
            session.add(row)
        return ticket

    def redeem(self, ticket: str, purpose: str) -> int:
        """Redeem a ticket and return its session; it is spent, whatever it is used for. Raises Unauthenticated."""
        spent = delete(Ticket).where(Ticket.ticket_hash == identity.digest(ticket))
        with self._store.transaction() as session:
            row = session.execute(spent.returning(Ticket.session_id, Ticket.purpose, Ticket.expires_at)).first()
        if row is None or row.purpose != purpose or row.expires_at < now():
            raise Unauthenticated(_SPENT.format(LIFE_OF_LINK if purpose == PAGE else LIFE))
        return int(row.session_id)

    def issue_for_page(self, caller: Caller) -> str:
        """Issue a ticket that logs the caller in on the web page. Raises Forbidden for callers without a session of
        their own, as an access token: who revokes that would not end the page's session."""
        if caller.session_id is not None and not self._identities.is_logged_in(caller.session_id):
            raise Forbidden("An access token makes no link for the page: log in with `det user login` first.")
        return self.issue(caller, PAGE, LIFE_OF_LINK)

    def shown_user(self, ticket: str) -> User:
        """Return the user whom a link for the page signs in; the ticket stays good. Raises Unauthenticated,
        NotActive."""
        by_hash = select(Ticket.session_id, Ticket.purpose, Ticket.expires_at)
        with self._store.autocommit() as session:
            row = session.execute(by_hash.where(Ticket.ticket_hash == identity.digest(ticket))).first()
        if row is None or row.purpose != PAGE or row.expires_at < now():
            raise Unauthenticated(_SPENT.format(LIFE_OF_LINK))
        return self._identities.get_user(self._identities.by_session(row.session_id).user_id)

    def enter(self, ticket: str, origin: str) -> tuple[str, User]:
        """Redeem a ticket for the page: create a session of its user and return the bearer token. `origin`: of the
        page. Raises Unauthenticated, NotActive."""
        caller = self._identities.by_session(self.redeem(ticket, PAGE))
        return self._identities.log_in_again(caller.user_id, origin=origin, description=BY_LINK)

    def pass_for(self, session_id: int, task_id: str) -> str:
        """Return a pass, which admits a session's user to the services of one task as long as the session lasts."""
        return f"{session_id}.{self._mac(session_id, task_id)}"

    def session_in(self, shown: str, task_id: str) -> int | None:
        """Return the session of a pass to the task; None for an invalid pass."""
        number, _, mac = shown.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        good = hmac.compare_digest(self._mac(int(number), task_id).encode(), mac.encode())
        return int(number) if good else None

    def _mac(self, session_id: int, task_id: str) -> str:
        return hmac.new(self._settings.secret, f"pass\0{session_id}\0{task_id}".encode(), "sha256").hexdigest()


@contextmanager
def _of_a_session_that_lasts() -> Iterator[None]:
    """Its user may log out meanwhile, as on another page."""
    try:
        yield
    except IntegrityError:
        raise Unauthenticated("The session has ended; log in again.") from None
