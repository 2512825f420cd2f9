"""Hooks of mkdocs: where the documentation's site differs from the files in `docs/`."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(?:#[^)]*)?\)")
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
INLINE_STYLE = re.compile(r' style="[^"]*"')
UNUSED = "mkdocs_page_name"  # of the theme's variables; no script reads them
API = "<code>/docs</code>"


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Keep only the text of links to files outside `docs/`, and to folders: the site has neither."""
    here = Path(page.file.abs_src_path).parent
    docs = Path(config.docs_dir)

    def replaced(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / match[2]))
        inside = target.is_relative_to(docs) and target.suffix in (".md", ".png")
        return match[0] if inside or not target.exists() else match[1]

    return LINK.sub(replaced, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link the start page to the description of the API, which the master serves beside the site."""
    return html.replace(API, f'<a href="../../docs">{API}</a>') if page.is_homepage else html


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Move inline scripts to files and remove inline styles: the site's Content-Security-Policy allows neither."""
    return _without_inline(output, "../" * page.url.count("/"), Path(config.site_dir))


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    if template_name != "search.html":
        return output_content
    return _without_inline(output_content, "", Path(config.site_dir))


def on_post_build(config: Any, **_: Any) -> None:
    """Remove what no browser asks a master for: older formats of fonts, four fifths of the site's size, and files for
    crawlers and hosts of static pages."""
    site = Path(config.site_dir)
    for path in (*site.glob("css/fonts/*"), *site.glob("sitemap*"), site / "404.html"):
        if path.suffix != ".woff2":
            path.unlink()


def _without_inline(html: str, root: str, site: Path) -> str:
    def moved(match: re.Match[str]) -> str:
        if UNUSED in match[1]:
            return ""
        name = f"js/inline-{hashlib.sha256(match[1].encode()).hexdigest()[:12]}.js"
        (site / "js").mkdir(parents=True, exist_ok=True)
        (site / name).write_text(match[1])
        return f'<script src="{root}{name}"></script>'

    return INLINE_STYLE.sub("", INLINE_SCRIPT.sub(moved, html))
