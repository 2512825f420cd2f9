"""`det version`: versions of this client and of the master."""

from __future__ import annotations

import argparse
import json

from trainmaster.cli.session import master_url
from trainmaster.client.login import transport
from trainmaster.version import VERSION


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det version"
    parser.set_defaults(run=_version)


def _version(args: argparse.Namespace) -> None:
    """Print YAML; the client's part first, so that it appears even if the master does not answer."""
    url = master_url(args)
    print(f"client:\n  version: {VERSION}", flush=True)
    info = transport(url).request("GET", "/info", retry=False)
    print("master:")
    for key in ("cluster_id", "cluster_name", "master_id"):
        print(f"  {key}: {json.dumps(info.get(key))}")
    # Determined's own master has only one version, that of its API.
    print(f"  version: {json.dumps(info.get('trainmaster_version', info.get('version')))}")
    print(f"  api_version: {json.dumps(info.get('version'))}")
    print(f"master_address: {url}")
