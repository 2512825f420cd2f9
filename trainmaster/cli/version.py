"""`det version`."""

from __future__ import annotations

import argparse
import os

from trainmaster.cli.session import master_url
from trainmaster.client.transport import Transport
from trainmaster.version import VERSION


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det version"
    parser.set_defaults(run=_version)


def _version(args: argparse.Namespace) -> None:
    url = master_url(args)
    print(f"client:\n  version: {VERSION}", flush=True)
    info = Transport(url, certificate=os.environ.get("DET_MASTER_CERT_FILE")).request("GET", "/info", retry=False)
    print(f"master:\n  version: {info['version']}\n  cluster_id: {info['cluster_id']}")
    print(f"  cluster_name: {info['cluster_name']}\nmaster_address: {url}")
