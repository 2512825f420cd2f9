"""Checks of `trainmaster doctor` for settings that expose more than an administrator may expect.

Everything here works as configured; each finding names who could do what because of it, and the key that closes it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from trainmaster.config.master import MasterConfig
from trainmaster.master.findings import Finding
from trainmaster.master.tls import SOON, BadCertificate, load, read_certificate

SUBJECT = "security"


def findings(config: MasterConfig, data: Path) -> Iterator[Finding]:
    yield from _wire(config)
    yield from _certificate(config)
    yield from _accounts(config)
    yield from _pages(config)
    yield from _leftovers(data)


def _wire(config: MasterConfig) -> Iterator[Finding]:
    """Check for connections on which others can read passwords and tokens."""
    if config.security.tls is not None:
        return
    address = urlsplit(config.master_url or "")
    if not _is_loopback(config.host):
        yield Finding(
            SUBJECT,
            f"the master listens on {config.host} without TLS: anybody on the network can read passwords, tokens and "
            "what jobs report",
            "Set security.tls (`trainmaster tls init` makes a certificate), or listen on 127.0.0.1 behind a reverse "
            "proxy that has one.",
        )
    elif address.scheme == "http" and not _is_loopback(address.hostname or ""):
        yield Finding(
            SUBJECT,
            f"jobs reach the master at {config.master_url} without TLS: anybody on the network can read their tokens",
            "Give the reverse proxy there a certificate, and write master_url with https.",
        )


def _certificate(config: MasterConfig) -> Iterator[Finding]:
    tls = config.security.tls
    if tls is None:
        return
    try:
        certificate = read_certificate(tls.cert)
        load(tls)
    except BadCertificate as error:
        yield Finding("certificate", str(error), "Correct security.tls.", bad=True)
        return
    left = certificate.ends - dt.datetime.now(dt.UTC)
    names = ", ".join(certificate.names) or "no name at all"
    fix = "Renew it; the master takes the new files over by itself." if left < SOON else ""
    yield Finding("certificate", f"for {names}; good for {left.days} more days", fix)
    host = urlsplit(config.master_url or "").hostname
    if host and not any(host == name or _covers(name, host) for name in certificate.names):
        yield Finding(
            "certificate",
            f"jobs reach the master as {host}, and the certificate is not for that name",
            "Get one that is, or set master_url to a name that is in it.",
            bad=True,
        )
    if tls.ca is None and len(certificate.chain) == 1 and certificate.roots:
        yield Finding(
            "certificate",
            "it is self-signed: jobs that run when it is replaced will not trust the new one",
            "Use one that an authority signed (`trainmaster tls init` makes both), and name the authority's in "
            "security.tls.ca.",
        )


def _accounts(config: MasterConfig) -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding(
            SUBJECT,
            "the master runs as root: its jobs have all rights of root where they run as its own account",
            "Run it as an ordinary account of its own.",
        )
    for manager in config.managers:
        name = manager.cluster_name
        facts = manager.facts()
        if not facts.runs_as_users:
            yield _shared(name, manager.to_separate_users)
        elif facts.runs_as_master:
            yield Finding(
                SUBJECT,
                f"jobs on {name} of users without a linked account run as the account of the master",
                "Set require_user_link.",
            )


def _shared(name: str, fix: str) -> Finding:
    return Finding(
        SUBJECT,
        f"all jobs on {name} run as one account, the master's: each user's jobs can read and change what belongs to "
        "the others and to the master",
        fix,
    )


def _pages(config: MasterConfig) -> Iterator[Finding]:
    """Check for what services in jobs, and proxies that forward requests, could do to users of the web page."""
    if config.unauthenticated_services:
        yield Finding(
            SUBJECT,
            "services in jobs may ask for no log-in (`unauthenticated` in proxy_ports): everybody who reaches the "
            "master uses them",
            "Remove unauthenticated_services unless something needs it.",
        )
    if config.services_url is None and not _is_loopback(config.host):
        yield Finding(
            SUBJECT,
            "notebooks and TensorBoards share the master's origin: pages of colleagues' tasks are shown in a sandbox, "
            "where they hardly work",
            "Give services an origin of their own with services_url.",
        )
    if any(ipaddress.ip_network(network).num_addresses > 2**16 for network in config.trusted_proxies):
        yield Finding(
            SUBJECT,
            "trusted_proxies names a whole network: everybody in it chooses the address that log-ins are counted under",
            "Name the reverse proxy's own address.",
        )
    if config.webhooks.allow_networks:
        yield Finding(
            SUBJECT,
            f"webhooks reach inside ({', '.join(config.webhooks.allow_networks)}): anybody who may make one can "
            "send requests there",
            "Name only the hosts that must receive events.",
        )


def _leftovers(data: Path) -> Iterator[Finding]:
    path = data / "initial-password"
    if path.exists():
        fix = "Change them (`det user change-password`) and remove it."
        yield Finding(SUBJECT, f"{path} still holds the first passwords", fix)


def _is_loopback(host: str) -> bool:
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(name: str, host: str) -> bool:
    return name.startswith("*.") and host.partition(".")[2] == name[2:]
