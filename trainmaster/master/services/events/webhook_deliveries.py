"""Delivers events from the outbox to webhooks: an attempt is counted before it is made, so that none is made twice."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import logging
import socket
import ssl
import time
import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

from sqlalchemy import delete, func, select, update

from trainmaster.master.db.webhooks import Webhook, WebhookDelivery
from trainmaster.master.services import addresses
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.events import webhooks
from trainmaster.master.services.events.webhooks import SiteWebhooks

log = logging.getLogger(__name__)

TIMEOUT = 10.0  # seconds for one attempt
PAUSES = (5, 30, 120, 600, 3600)  # seconds before each further attempt; after the last one the event is dropped
LEAST = 400  # statuses from here on are refusals


class NotDelivered(Exception):
    """A failed delivery. Its message is one sentence for the webhook's owner, whatever went wrong: it must not reveal
    what else answers on the master's network. `detail` is for the master's log. `final`: asking again would get the
    same answer."""

    def __init__(self, where: str, detail: str, *, final: bool = False) -> None:
        super().__init__(
            f"{where} did not accept the message. It must answer with a status below 300, and be on the internet or in "
            "webhooks.allow_networks of the master's configuration; see the master's log"
        )
        self.detail, self.final = detail, final


@dataclass(frozen=True)
class DeliveryAttempt:
    """One attempt that has been counted and is still to be made."""

    id: int
    webhook_id: int
    name: str
    url: str
    body: str
    event_id: uuid.UUID
    attempt: int


class WebhookDeliveries(BoundService):
    """Deliveries of the outbox's events to webhooks."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._webhooks = SiteWebhooks(master)

    def claim(self) -> DeliveryAttempt | None:
        """Take the next attempt that is due and count it; no other process gets it. If it is never made (the master
        stops), the next one follows after its pause."""
        d = WebhookDelivery
        due = (
            select(d.id)
            .where(d.due_at <= func.now())
            .order_by(d.due_at, d.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        with self._store.transaction() as session:
            key = session.scalar(due)
            if key is None:
                return None
            row = session.get_one(d, key)
            hook = session.get_one(Webhook, row.webhook_id)
            pause = PAUSES[min(row.attempts, len(PAUSES) - 1)]
            row.attempts += 1
            row.due_at = now() + dt.timedelta(seconds=pause + TIMEOUT)
            return DeliveryAttempt(row.id, hook.id, hook.name, hook.url, row.body, row.event_id, row.attempts)

    def next_due(self) -> float | None:
        """Seconds until the next attempt; None when nothing waits."""
        with self._store.autocommit() as session:
            first = session.scalar(select(func.min(WebhookDelivery.due_at)))
        return None if first is None else max((first - now()).total_seconds(), 0.0)

    def deliver(self, letter: DeliveryAttempt) -> None:
        """Make an attempt and store its result."""
        try:
            self.post(letter.url, letter.body.encode())
        except NotDelivered as error:
            self._failed(letter, error)
            return
        with self._store.transaction() as session:
            session.execute(
                update(Webhook)
                .where(Webhook.id == letter.webhook_id, Webhook.failed_at.is_not(None))
                .values(failed_at=None, failure="")
            )
            session.execute(delete(WebhookDelivery).where(WebhookDelivery.id == letter.id))

    def test(self, caller: Caller, webhook_id: int) -> None:
        """Send a test event now. Raises Invalid with the error, NotFound, Forbidden."""
        hook = self._webhooks.get(caller, webhook_id)
        try:
            self.post(hook.url, webhooks.body_of(hook, webhooks.test_event(), uuid.uuid4()).encode())
        except NotDelivered as error:
            log.info("the test of webhook %r by %s failed: %s", hook.name, caller.username, error.detail)
            raise Invalid(f"The webhook {hook.name!r} cannot receive events: {error}.") from None

    def post(self, url: str, body: bytes) -> None:
        """Post a message, signed as by Determined. Redirects are not followed, and only the status of the response is
        read. Raises NotDelivered."""
        import httpx  # imported here: it takes a tenth of a second that only masters with webhooks need

        parts = urlsplit(url)
        stamp = str(int(time.time()))
        assert parts.hostname
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            # Connects to the checked address itself: a later change of the name's address does not matter.
            target = httpx.URL(
                scheme=parts.scheme,
                host=self._allowed(parts.hostname, port),
                port=port,
                raw_path=((parts.path or "/") + (f"?{parts.query}" if parts.query else "")).encode(),
            )
            named = httpx.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port)
            headers = {
                "Host": named.netloc.decode("ascii"),
                "Content-Type": "application/json; charset=UTF-8",
                "User-Agent": "trainmaster",
                "X-Determined-AI-Signature-Timestamp": stamp,
                "X-Determined-AI-Signature": signature(self._settings.webhook_key, stamp, body),
            }
            # TLS checks the certificate against the host's name.
            extensions = {"timeout": httpx.Timeout(TIMEOUT).as_dict(), "sni_hostname": named.raw_host.decode("ascii")}
            request = httpx.Request("POST", target, headers=headers, content=body, extensions=extensions)
            trusted = ssl.create_default_context() if parts.scheme == "https" else False
            with httpx.HTTPTransport(verify=trusted, trust_env=False) as transport:
                answer = transport.handle_request(request)
                status = answer.status_code
                answer.close()
        except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDelivered(where, f"{where} does not answer ({error or type(error).__name__})") from None
        if status >= 300:
            final = LEAST <= status < 500 and status not in (408, 425, 429)
            raise NotDelivered(where, f"{where} answers with status {status}", final=final)

    def _allowed(self, host: str, port: int) -> str:
        """Return the address to connect to: the first of the host's that webhooks may reach. Raises OSError when there
        is none."""
        resolved = dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        for text in resolved:
            address = addresses.canonical(text)
            if address is None:
                continue
            if addresses.within(address, self._settings.webhook_networks) or addresses.is_public(address):
                return text
        raise OSError(f"none of its addresses ({', '.join(resolved)}) is on the internet or in webhooks.allow_networks")

    def _failed(self, letter: DeliveryAttempt, error: NotDelivered) -> None:
        over = error.final or letter.attempt > len(PAUSES)
        level = logging.WARNING if over else logging.INFO
        what = "given up" if over else "tried again later"
        log.log(
            level,
            "event %s for webhook %r, attempt %d: %s; %s",
            letter.event_id,
            letter.name,
            letter.attempt,
            error.detail,
            what,
        )
        with self._store.transaction() as session:
            session.execute(
                update(Webhook)
                .where(Webhook.id == letter.webhook_id)
                .values(failed_at=now(), failure=f"{error}; {what}.")
            )
            if over:
                session.execute(delete(WebhookDelivery).where(WebhookDelivery.id == letter.id))
            else:
                pause = PAUSES[letter.attempt - 1]
                session.execute(
                    update(WebhookDelivery)
                    .where(WebhookDelivery.id == letter.id, WebhookDelivery.attempts == letter.attempt)
                    .values(due_at=now() + dt.timedelta(seconds=pause))
                )


def signature(key: str, stamp: str, body: bytes) -> str:
    return hmac.new(key.encode(), f"{stamp},".encode() + body, hashlib.sha256).hexdigest()
