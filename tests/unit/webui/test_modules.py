"""What holds for the modules of the web page as files: layers, sizes, hashes, types, and what a first page fetches."""

from __future__ import annotations

import gzip
import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.client_wire import document
from tests.support.webui.types import PATH, source
from trainmaster.cli import det
from trainmaster.master.api.webui import FOLDER, START, STYLES, imported, read_tree

LAYERS = ("lib", "api", "ui", "pages")
LONGEST = 500  # lines
FILES_OF_SHELL, FILES_OF_PAGE = 15, 24
BYTES_OF_PAGE, BYTES_WITH_CHART, BYTES_OF_ALL = 60_000, 110_000, 300_000
LOCK = FOLDER.parent.parent / "scripts/webui/vendor.lock"
TREE = read_tree(FOLDER)
OWN = [path for path in FOLDER.rglob("*") if path.suffix in (".js", ".css") and "vendor" not in path.parts]


def weight(names: list[str]) -> int:
    """Bytes as they travel."""
    return sum(len(TREE.files[name].packed) for name in names)


def test_a_module_imports_only_lower_layers() -> None:
    wrong = []
    for name in TREE.imports:
        folder = Path(name).parts[1]
        if folder not in LAYERS:
            continue
        text = TREE.files[name].content.decode()
        for link in re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""", text):
            target = (Path("/") / name).parent.joinpath(link).resolve().relative_to("/").parts
            if target[0] == "app" and LAYERS.index(target[1]) > LAYERS.index(folder):
                wrong.append(f"{name} imports {link}")
            if folder == "lib" and target[0] == "vendor":
                wrong.append(f"{name} imports {link}: lib/ is pure")
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    """Also by `import()`, and by way of others."""
    links: dict[str, set[str]] = {}
    for name in TREE.imports:
        text = re.sub(r"/\*.*?\*/|^\s*//.*?$", "", TREE.files[name].content.decode(), flags=re.DOTALL | re.MULTILINE)
        relative = re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""", text)
        paths = [(Path("/") / name).parent.joinpath(link).resolve().relative_to("/").as_posix() for link in relative]
        links[name] = {path for path in paths if path in TREE.imports}
    while leaves := {name for name, targets in links.items() if not targets & links.keys()}:
        links = {name: targets for name, targets in links.items() if name not in leaves}
    assert links == {}, "in a circle, or importing one"


def test_lib_knows_no_document() -> None:
    wrong = [
        name
        for name in TREE.imports
        if name.startswith("app/lib/")
        and re.search(r"\b(document|window|location|fetch|localStorage)\s*[.(]", TREE.files[name].content.decode())
    ]
    assert wrong == []


def test_files_are_short_and_make_no_markup_from_texts() -> None:
    assert [path.name for path in OWN if path.read_text().count("\n") > LONGEST] == []
    odd = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser")
    assert [path.name for path in OWN if odd.search(path.read_text())] == []
    words = re.compile(r"https?://(?!www\.w3\.org/)")
    assert [path.name for path in OWN if words.search(path.read_text())] == [], "addresses elsewhere"


def test_a_first_page_is_few_files_and_light() -> None:
    shell = list(TREE.imports[START])
    assert len(shell) <= FILES_OF_SHELL, shell
    for route in TREE.routes:
        page = list(dict.fromkeys((*shell, *TREE.imports[f"app/pages/{route.page}.js"])))
        assert len(page) <= FILES_OF_PAGE, (route.page, page)
        charted = any("chart" in name for name in page)
        assert weight(page) <= (BYTES_WITH_CHART if charted else BYTES_OF_PAGE), (route.page, weight(page))
    views = [name for name in TREE.imports if re.fullmatch(r"app/pages/(experiment|trial)_\w+\.js", name)]
    assert len(views) > 15
    for name in views:
        page = dict.fromkeys((*shell, *TREE.imports[f"{name.partition('_')[0]}.js"], *TREE.imports[name]))  # type: ignore[assignment]
        assert weight(list(page)) <= BYTES_WITH_CHART, (name, weight(list(page)))
    chart = list(dict.fromkeys((*shell, *TREE.imports["app/ui/chart.js"], "vendor/uplot/uPlot.js")))
    assert weight(chart) <= BYTES_WITH_CHART - 20_000, weight(chart)
    assert weight([name for name in TREE.files if name.endswith(".js")]) <= BYTES_OF_ALL


def test_vendored_files_match_lock() -> None:
    lock = tomllib.loads(LOCK.read_text())
    wanted = {file["to"]: file["sha256"] for one in lock["package"] if not one.get("tests") for file in one["files"]}
    here = {path.relative_to(FOLDER / "vendor").as_posix(): path for path in (FOLDER / "vendor").rglob("*.*")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in here.items()} == wanted
    licences = (FOLDER / "vendor/LICENSES").read_text()
    assert [one["name"] for one in lock["package"] if not one.get("tests") and one["name"] not in licences] == []


def test_types_match_api_description() -> None:
    """After a change of the API's shapes: `scripts/generate`."""
    assert PATH.read_text() == source(document())


def test_the_mark_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "style").mkdir()
    (tmp_path / "style/style.css").write_text('/* all */\n@import "./page.css";\n')
    (tmp_path / "style/page.css").write_text("body { color: red; }\n")
    (tmp_path / "index.html").write_text("$base")
    (tmp_path / "routes.json").write_text("[]")
    main = tmp_path / "app/main.js"
    main.write_text('import { a } from "./a.js";\n')
    (tmp_path / "app/a.js").write_text('export * from "./b.js";\n// import "./none.js"\n/* import "./none.js" */')
    (tmp_path / "app/b.js").write_text('const later = import("./c.js");')
    first = read_tree(tmp_path)
    assert list(first.imports[START]) == ["app/main.js", "app/a.js", "app/b.js"]
    main.write_text('import { a } from "./a.js"; // changed\n')
    assert read_tree(tmp_path).mark != first.mark
    assert gzip.decompress(first.files[START].packed) == first.files[START].content
    assert first.files[STYLES].content == b"/* all */\nbody { color: red; }\n"


def test_import_of_missing_module_is_an_error() -> None:
    with pytest.raises(KeyError):
        list(imported({"app/a.js": 'import "./b.js";'}, "app/a.js"))


def test_every_command_that_the_page_tells_exists() -> None:
    told = {
        tuple(found.split()[1:])
        for path in sorted((FOLDER / "app").rglob("*.js"))
        for found in re.findall(r"""[`"](det [a-z-]+ [a-z-]+)""", path.read_text())
    }
    assert len(told) > 8
    for words in sorted(told):
        with pytest.raises(SystemExit) as ended:
            det.main([*words, "--help"])
        assert ended.value.code == 0, f"det {' '.join(words)}"
