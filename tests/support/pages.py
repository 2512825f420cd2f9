"""Reads the fenced examples of the documentation, in the order of the page.

A yaml or python example whose first line is `# NAME` is a file of that name, which the commands after it use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = (
    "docs/user.md",
    *(f"docs/user/{name}.md" for name in ("searchers", "control", "tasks", "distributed")),
)
"""The users' guide, in the order in which its examples follow each other."""


def _below(folder: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).rglob("*.md"))]


PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *_below("docs"), *_below("examples"))
LANGUAGES = ("bash", "diff", "python", "yaml", "toml", "text", "mermaid")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_NAME = re.compile(r"# ([A-Za-z0-9_.-]+\.(?:py|yaml))\n")


@dataclass(frozen=True)
class Example:
    """One fence. `line` is that of the fence in the page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file it is."""
        found = _NAME.match(self.text)
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        """Command lines, continued ones joined, comments left out."""
        joined = self.text.replace("\\\n", " ")
        return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


def examples(page: str) -> list[Example]:
    """All fences of a page in their order."""
    text = (ROOT / page).read_text()
    return [Example(page, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in _FENCE.finditer(text)]


def all_examples(language: str) -> list[Example]:
    return [example for page in PAGES for example in examples(page) if example.language == language]
