"""`trainmaster tls`: creates and shows a certificate for a master whose site has no certificate authority."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

FOLDER = Path("/etc/trainmaster/tls")
_END = "-----END CERTIFICATE-----"


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    p = verbs.add_parser(
        "init",
        help="create a certificate authority and a certificate for this master",
        description="Create a private certificate authority and the master's certificate, which the master renews.",
        epilog="Example: trainmaster tls init --folder /srv/trainmaster/tls --name login1.cluster",
    )
    _add_folder(p)
    p.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="host or address of the master; can be repeated (this machine's names are always included)",
    )
    p.set_defaults(run=_init, parser=p)
    p = verbs.add_parser(
        "show",
        help="print names, expiry and fingerprint of the certificate",
        description="Print the certificate's data, for users who are asked whether to trust it.",
        epilog="Example: trainmaster tls show --folder /srv/trainmaster/tls",
    )
    _add_folder(p)
    p.set_defaults(run=_show, parser=p)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, metavar="DIR", help=f"where the certificates are (default: {FOLDER})"
    )


def _init(args: argparse.Namespace) -> int:
    from trainmaster.master import authority

    folder: Path = args.folder.absolute()
    try:
        authority.init(folder, list(dict.fromkeys([*args.name, *authority.usual_names()])))
    except (authority.AuthorityExists, ValueError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or folder} cannot be written: {error.strerror}.")
    _show(args)
    print(
        f"""
Make the master's account the owner of the folder, and put this into its configuration:

security:
  tls:
    cert: {folder / authority.CERT}
    key: {folder / authority.KEY}
    ca: {folder / authority.CA}

Users set DET_MASTER=https://... and, with a copy of {folder / authority.CA}, DET_MASTER_CERT_FILE to it; agents
take --certificate. Jobs get it from the master. The master renews its certificate a month before it expires."""
    )
    return 0


def _show(args: argparse.Namespace) -> int:
    from trainmaster.client.tls import fingerprint
    from trainmaster.master import authority
    from trainmaster.master.tls import BadCertificate, read_certificate

    path = args.folder.absolute() / authority.CERT
    try:
        certificate = read_certificate(str(path))
    except BadCertificate as error:
        return _fail(str(error))
    pem = path.read_text()
    print(f"certificate: {path}")
    print(f"names: {', '.join(certificate.names)}")
    print(f"valid until: {certificate.ends:%Y-%m-%d %H:%M} UTC")
    print(f"SHA-256 fingerprint: {fingerprint(pem[: pem.index(_END) + len(_END)] + chr(10))}")
    return 0


def _fail(message: str) -> int:
    print(f"trainmaster: {message}", file=sys.stderr)
    return 1
