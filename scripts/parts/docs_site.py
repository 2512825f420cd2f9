"""Hooks of mkdocs: what the documentation's site does otherwise than the files in `docs/`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Leave the text alone of links to files of the repository outside `docs/`, and to folders: a site has neither."""
    here = Path(page.file.abs_src_path).parent
    docs = Path(config.docs_dir)

    def replaced(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / match[2]))
        inside = target.is_relative_to(docs) and not target.is_dir()
        return match[0] if inside or not target.exists() else match[1]

    return LINK.sub(replaced, markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Remove the formats of the theme's fonts that no browser of today asks for: four fifths of the site's size."""
    for path in Path(config.site_dir, "css", "fonts").iterdir():
        if path.suffix != ".woff2":
            path.unlink()
