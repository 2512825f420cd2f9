"""Serves the web page: one HTML shell for every address under `/ui/`, and the page's files.

Files lie under `/ui/a/<mark>/`, where the mark is a hash of all of them: browsers keep them for ever, and their
relative imports stay as they are written. They are read and compressed once. The shell depends on the address in two
places: its `<base>`, by the depth of the path as it arrives, so that it works under any prefix that a proxy strips; and
the links that let a browser fetch the page's modules and its data at the same time.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from trainmaster.master.http import cookies
from trainmaster.master.http.dependencies import UsesMaster, stranger
from trainmaster.master.http.redirects import redirect_below
from trainmaster.master.services.errors import NotFound

router = APIRouter(include_in_schema=False)

FOLDER = Path(str(files("trainmaster.webui")))
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
START = "app/main.js"
STYLES = "style/style.css"  # is sent with the files that it imports, as one
SHELL = "index.html"
ROUTES = "routes.json"
THEME = "trainmaster-theme"  # a cookie that the page sets itself
FOR_EVER = "public, max-age=31536000, immutable"
LOOK_EVERY = 2.0  # seconds between two looks whether files have changed, as where somebody works on them
LONGEST_PRELOAD = 2000  # characters of an address
# A static import; `import("...")` is fetched when it is needed. `from` may be in minified code.
_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*["'](\.[^"']+)["']""")
_IMPORT_OF_STYLE = re.compile(rb'@import "\./([^"/]+)";\n')
_COMMENT = re.compile(r"/\*.*?\*/|^\s*//.*?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class File:
    content: bytes
    packed: bytes  # the same, compressed
    kind: str


@dataclass(frozen=True)
class Route:
    """A kind of address: `path` has names with a colon in the place of what varies, `page` is its module in
    `app/pages`, and `tab` the first of its views where it has several. `data` is the page's one API call, `query` the
    parameters of the page's address that are the call's too, `fixed` its further ones. With `needs`, there is no call
    for an address that has none of these parameters."""

    path: Sequence[str]
    page: str
    data: str = ""
    query: Sequence[str] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()
    tab: str = ""

    def modules(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return the modules of the page and of the view that is shown, which may not be there."""
        return [f"app/pages/{self.page}.js", f"app/pages/{self.page}_{names.get('tab', self.tab)}.js"]

    def fits(self, path: Sequence[str]) -> dict[str, str] | None:
        """Return what stands in the place of its names; None for another kind of address."""
        required = [part for part in self.path if not part.endswith("?")]
        if not len(required) <= len(path) <= len(self.path):
            return None
        values = {}
        for wanted, given in zip(self.path, path, strict=False):
            if wanted.startswith(":"):
                values[wanted.strip(":?")] = given
            elif wanted != given:
                return None
        return values

    def call(self, names: Mapping[str, str], query: Mapping[str, str]) -> str:
        """Return the address of the data from the master's root on, empty for none; `app/ui/router.js` makes the same
        one."""
        if not self.data or (self.needs and not any(query.get(name) for name in self.needs)):
            return ""
        path = "/".join(_quoted(names.get(part[1:], "")) if part[:1] == ":" else part for part in self.data.split("/"))
        given = {**{name: query[name] for name in self.query if query.get(name)}, **self.fixed}
        return path + ("?" if given else "") + "&".join(f"{key}={_quoted(value)}" for key, value in given.items())


def _quoted(text: str) -> str:
    return quote(text, safe="!'()*")  # as JavaScript's encodeURIComponent


@dataclass(frozen=True)
class Tree:
    """All files of the page, as they were at one time."""

    mark: str
    files: Mapping[str, File]
    shell: Template
    routes: Sequence[Route]
    routes_shown: str
    imports: Mapping[str, Sequence[str]]  # of each module: all that it imports, at any depth, and itself


def read_tree(folder: Path) -> Tree:
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }
    contents[STYLES] = _IMPORT_OF_STYLE.sub(lambda files: contents[f"style/{files[1].decode()}"], contents[STYLES])
    shell, routes = (folder / SHELL).read_text(), (folder / ROUTES).read_text()
    mark = hashlib.sha256(shell.encode() + routes.encode())
    for name, content in contents.items():
        mark.update(b"%d %s %d\n" % (len(name), name.encode(), len(content)) + content)
    files = {
        name: File(content, gzip.compress(content, 9, mtime=0), TYPES[PurePosixPath(name).suffix])
        for name, content in contents.items()
    }
    modules = {name: content.decode() for name, content in contents.items() if name.endswith(".js")}
    listed = json.loads(routes)
    return Tree(
        mark=mark.hexdigest()[:16],
        files=files,
        shell=Template(shell),
        routes=[Route(**{**one, "path": [part for part in one["path"].split("/") if part]}) for one in listed],
        routes_shown=json.dumps(listed, separators=(",", ":")).replace("<", "\\u003c"),
        imports={name: list(imported(modules, name)) for name in modules if name.startswith("app/")},
    )


def imported(modules: Mapping[str, str], start: str) -> Iterator[str]:
    """Yield `start` and every module that is fetched with it, the nearest first."""
    due, visited = [start], {start}
    while due:
        name = due.pop(0)
        yield name
        for link in _IMPORT.findall(_COMMENT.sub("", modules[name])):
            parts: list[str] = list(PurePosixPath(name).parts[:-1])
            for part in link.split("/"):
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            near = "/".join(parts)
            if near not in visited:
                visited.add(near)
                due.append(near)


class Files:
    """The tree in memory, read again when a file has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._tree: Tree | None = None
        self._stamp: object = None
        self._looked = 0.0

    def tree(self) -> Tree:
        with self._lock:
            if self._tree is None or time.monotonic() > self._looked + LOOK_EVERY:
                stamp = [(str(path), path.stat().st_mtime_ns) for path in sorted(self._folder.rglob("*.*"))]
                if stamp != self._stamp:
                    self._tree, self._stamp = read_tree(self._folder), stamp
                self._looked = time.monotonic()
            assert self._tree is not None
            return self._tree


FILES = Files(FOLDER)


@router.get("/")
async def home() -> RedirectResponse:
    return redirect_below("ui/")


@router.get("/ui")
async def start() -> RedirectResponse:
    return redirect_below("ui/")


@router.get("/ui/a/{mark}/{name:path}", dependencies=[Depends(stranger)])
def file(mark: str, name: str, request: Request) -> Response:
    tree = FILES.tree()
    served = tree.files.get(name)
    if mark != tree.mark or served is None:  # a page of an older version loads itself anew
        raise NotFound("The page has no such file; another version of it may be served now.")
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    packed = "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(served.packed if packed else served.content, headers=headers, media_type=served.kind)


@router.get("/ui/{path:path}", dependencies=[Depends(stranger)])
def page(path: str, request: Request, master: UsesMaster) -> HTMLResponse:
    tree = FILES.tree()
    # As a browser counts: an encoded slash separates nothing.
    place = [unquote(part) for part in _raw(request, path).split("/")]
    theme = next(iter(cookies.shown(request, THEME)), "")
    links = list(_links(tree, [part for part in place if part], request))
    text = tree.shell.substitute(
        base="../" * (len(place) - 1) or "./",
        files=f"a/{tree.mark}",
        theme=theme if theme in ("light", "dark") else "system",
        links="\n".join(links),
        routes=tree.routes_shown,
    )
    frames = f"frame-src {master.services_url}; " if master.services_url is not None else ""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        f"font-src 'self'; {frames}frame-ancestors 'self'; base-uri 'self'; form-action 'self'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"})


def _raw(request: Request, path: str) -> str:
    whole = bytes(request.scope.get("raw_path") or b"").decode("latin-1")
    return whole.partition("/ui/")[2] if "/ui/" in whole else path


def _links(tree: Tree, place: Sequence[str], request: Request) -> Iterator[str]:
    """Yield what a browser should fetch before it has read the first module."""
    fitting = ((route, names) for route in tree.routes if (names := route.fits(place)) is not None)
    route, names = next(fitting, (None, {}))
    # Data first: they take the master longest, and browsers ask for six things of a server at a time.
    yield _data_link("session")
    # Without a session the answer would be an error. A link from elsewhere brings no cookie: the page fetches then.
    if route is not None and cookies.shown(request, cookies.SESSION):
        address = route.call(names, _first_of_each(request))
        if 0 < len(address) < LONGEST_PRELOAD:
            yield _data_link(address)
    modules = dict.fromkeys(tree.imports[START])
    for name in route.modules(names) if route is not None else ():
        modules |= dict.fromkeys(tree.imports.get(name, ()))
    for name in modules:
        yield f'<link rel="modulepreload" href="a/{tree.mark}/{name}">'


def _data_link(address: str) -> str:
    return f'<link rel="preload" as="fetch" crossorigin href="{html.escape("../" + address)}">'


def _first_of_each(request: Request) -> dict[str, Any]:
    firsts: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        firsts.setdefault(key, value)
    return firsts
