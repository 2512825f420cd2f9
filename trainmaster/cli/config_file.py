"""Reads a configuration file with the command line's overrides, and reports errors with the lines of that file."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.cli.session import say
from trainmaster.client.errors import APIError, ClientError, FileFault

if TYPE_CHECKING:
    from trainmaster.config.source import Document


def add_override_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        type=_override,
        default=[],
        metavar="KEY=VALUE",
        help="override a key, e.g. searcher.max_trials=8; can be repeated",
    )


def _override(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, as in searcher.max_trials=8")
    return text


@dataclass(frozen=True)
class ConfigFile:
    """The text of the file at `path`, and `key.path=value` overrides that take precedence."""

    path: Path
    text: str
    overrides: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: argparse.Namespace) -> ConfigFile:
        """Return the file that the arguments name. Raises ClientError."""
        path: Path = args.config_file
        try:
            return cls(path, path.read_text(encoding="utf-8"), tuple(args.config))
        except OSError as error:
            raise ClientError(f"{path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise ClientError(f"{path} is not UTF-8 text.") from None

    def to_send(self) -> str:
        """Return the text to send: that of the file, or YAML with the overrides applied. Raises FileFault."""
        if not self.overrides:
            return self.text
        from trainmaster.config.source import write

        document, notes = self._read()
        for note in notes:
            say(note)
        return write(document.data)

    def data(self) -> dict[str, Any]:
        """Return the configuration as JSON-like data. Raises FileFault."""
        return dict(self._read()[0].data)

    def placed(self, error: APIError) -> ClientError:
        """Return the master's error, with the line of this file, or the override, for each complaint."""
        if not self.overrides and str(error).startswith(str(self.path)):
            return FileFault(str(error))
        complaints = [c for c in error.details if isinstance(c, dict) and "path" in c and "message" in c]
        if error.status != 400 or not complaints:
            return error
        document, _ = self._read()
        lines = [document.complain(tuple(c["path"]), c["message"], c.get("suggestion")) for c in complaints]
        return FileFault("\n".join(map(str, lines)))

    def _read(self) -> tuple[Document, list[str]]:
        """Return the document with the overrides in it, and sentences on what they left out."""
        from trainmaster.config.messages import ConfigError
        from trainmaster.config.overrides import override
        from trainmaster.config.source import read

        try:
            document = read(self.text, str(self.path))
            notes = override(document, self.overrides)
        except ConfigError as error:
            raise FileFault(str(error)) from None
        return document, notes
