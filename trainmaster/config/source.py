"""Parses YAML text to JSON-like data, with the line of every key.

Plain scalars are read by YAML 1.2's core schema, as in Determined's client: `1e-3` is a number, `yes` and `12:30` are
texts. Anchors, aliases and merge keys work; the size of their expansion is limited. Refused, with the line: duplicate
keys, control characters (also escaped ones), tags of programming languages, NaN, infinities.

The work that a text causes is limited at each stage: bytes before parsing, nodes while they are composed, and the
expansion of aliases and merge keys while it happens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from trainmaster.config.limits import DEFAULTS, Limits
from trainmaster.config.messages import Complaint, ConfigError, Path

MAX_DEPTH = 100
MOST_COMPLAINTS = 50  # a text may be wrong in every line, and users read no more

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
# JSON escapes a character beyond U+FFFF as two surrogates (RFC 8259, section 7), and JSON is YAML.
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ESCAPED_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PLAIN = "plain"  # our tag for scalars without quotes and without a tag
_CORE = "tag:yaml.org,2002:"
_SHORT = 64 * 2**10  # characters of a text that may be parsed with the slow parser
_MAX_DIGITS = 4000  # CPython refuses to parse longer integers


@dataclass
class Document:
    """The data of one file, with the position of each part."""

    source: str
    data: dict[str, Any]
    marks: dict[Path, tuple[int, int]] = field(default_factory=dict)  # path -> line, column, from 1
    origins: dict[Path, str] = field(default_factory=dict)  # path -> the override it came from

    def complain(self, path: Path, message: str, suggestion: str | None = None) -> Complaint:
        """Return a complaint about `path`, with its line or that of the nearest enclosing key."""
        for length in range(len(path), 0, -1):
            if origin := self.origins.get(path[:length]):
                return Complaint(path, message, None, None, suggestion, origin)
            if mark := self.marks.get(path[:length]):
                return Complaint(path, message, *mark, suggestion, self.source)
        return Complaint(path, message, None, None, suggestion, self.source)


def read(text: str, source: str, limits: Limits = DEFAULTS) -> Document:
    """Parse one YAML document whose root is a mapping (an empty text is an empty mapping). Raises ConfigError."""
    _refuse_long(limits, text, source)
    _refuse_control_characters(text, source)
    try:
        node = _compose(text, limits)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = error.context
        if context and mark and error.context_mark and error.context_mark.line != mark.line:
            context += f" (line {error.context_mark.line + 1})"
        words = ", ".join(part for part in (context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        complaint = Complaint((), f"not valid YAML: {words}", line, column, None, source)
        raise ConfigError([complaint], source) from None
    except yaml.YAMLError as error:
        raise ConfigError([Complaint((), f"not valid YAML: {error}", source=source)], source) from None
    reader = _Reader(source, limits)
    data = reader.value(node, ()) if node is not None else {}
    if reader.complaints:
        raise ConfigError(reader.complaints, source)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError([Complaint((), "the file must be a mapping (key: value)", 1, 1, None, source)], source)
    return Document(source, data, reader.marks)


def read_value(text: str, source: str) -> Any:
    """Any YAML value, such as the right side of an override. Raises ConfigError."""
    return read(f"value: {text}" if "\n" not in text else f"value:\n{text}", source).data["value"]


def plain(text: str) -> Any:
    """Return the value of a scalar without quotes. Raises ValueError for numbers that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise ValueError("the number is too long")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a number that can be used here")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is too large for a number")
        return number
    return text


class _Tags(yaml.resolver.BaseResolver):
    """Marks plain scalars instead of guessing their type by YAML 1.1's rules."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _CORE + "str"
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


# libyaml's parser is ten times as fast. It is called for one event at a time, so that other threads can run in between.
_Parser: Any = getattr(getattr(yaml, "cyaml", None), "CParser", None)


class _Composer(yaml.composer.Composer, _Tags):
    """Composes nodes, and stops if they are too many or nested too deeply."""

    _limits: Limits
    _depth = 0
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH or self._nodes > 2 * self._limits.config_values:  # keys are nodes too
            mark = getattr(self, "peek_event")().start_mark  # noqa: B009 - of the parser beside it
            what = (
                f"nested more than {MAX_DEPTH} deep" if self._depth > MAX_DEPTH else _too_many(self._limits, "it has")
            )
            raise yaml.composer.ComposerError(None, None, what, mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _PlainLoader(_Composer, yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """A loader for PyYAML without libyaml."""

    def __init__(self, stream: str, limits: Limits) -> None:
        self._limits = limits
        yaml.reader.Reader.__init__(self, stream)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        _Tags.__init__(self)


if _Parser is not None:

    class _FastLoader(_Composer, _Parser):  # type: ignore[misc]
        def __init__(self, stream: str, limits: Limits) -> None:
            self._limits = limits
            _Parser.__init__(self, stream)
            yaml.composer.Composer.__init__(self)
            _Tags.__init__(self)


_Loader: Any = _PlainLoader if _Parser is None else _FastLoader


def _compose(text: str, limits: Limits) -> yaml.Node | None:
    try:
        node: yaml.Node | None = _Loader(text, limits).get_single_node()
    except yaml.MarkedYAMLError:
        if len(text) > _SHORT:
            raise
        node = _PlainLoader(text, limits).get_single_node()  # its messages are more precise
    return node


def _too_many(limits: Limits, verb: str) -> str:
    return (
        f"{verb} more than {limits.config_values} values; write fewer, or ask the administrator for a larger "
        "limits.config_values"
    )


def check_size(limits: Limits, data: object, source: str) -> None:
    """Apply the limits for texts to data that arrived as JSON. Raises ConfigError."""
    left, level = limits.config_values, [data]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (
                outer.values() if isinstance(outer, Mapping) else outer if isinstance(outer, list | tuple) else ()
            )
        ]
        left -= len(level)
        if not level:
            return
        if left < 0:
            raise ConfigError([Complaint((), _too_many(limits, "it has"), source=source)], source)
    raise ConfigError([Complaint((), f"nested more than {MAX_DEPTH} deep", source=source)], source)


def _refuse_long(limits: Limits, text: str, source: str) -> None:
    most = limits.config * 2**20
    size = len(text) if len(text) > most else len(text.encode(errors="replace"))
    if size > most:
        message = (
            f"the text has {size} bytes; at most {most} ({most // 2**20} MB) are allowed. Write less, or "
            "ask the administrator for a larger limits.config"
        )
        raise ConfigError([Complaint((), message, source=source)], source)


def _refuse_control_characters(text: str, source: str) -> None:
    complaints = []
    for match in islice(_CONTROL.finditer(text), 20):
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start())
        message = f"control character {_code(match.group())}: remove it"
        complaints.append(Complaint((), message, line, column, None, source))
    if complaints:
        raise ConfigError(complaints, source)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


class _Reader:
    """Converts the nodes of one file to data."""

    def __init__(self, source: str, limits: Limits) -> None:
        self.source = source
        self._limits = limits
        self.marks: dict[Path, tuple[int, int]] = {}
        self.complaints: list[Complaint] = []
        self._open: set[int] = set()
        self._left = limits.config_values

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count(node, path)
        if id(node) in self._open:
            self._complain(node, path, "an anchor contains itself")
            return None
        self.marks.setdefault(path, _place(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._enter(node, path)
        try:
            if node.tag not in (_CORE + "map", _CORE + "seq"):
                self._complain(node, path, f"the YAML tag {node.tag} is not understood; remove it")
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _count(self, node: yaml.Node, path: Path) -> None:
        self._left -= 1
        if self._left < 0:
            self.complaints.clear()
            self._complain(node, path, _too_many(self._limits, "anchors and merge keys expand to"))
            raise ConfigError(self.complaints, self.source)

    def _enter(self, node: yaml.Node, path: Path) -> None:
        self._open.add(id(node))
        if len(self._open) > MAX_DEPTH:
            self._complain(node, path, f"anchors are nested more than {MAX_DEPTH} deep")
            raise ConfigError(self.complaints, self.source)

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in self._pairs(node, path):
            key = self._key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key in result:
                self._complain(key_node, here, f"written twice, first in line {first[key]}; keep one")
                continue
            first[key] = key_node.start_mark.line + 1
            self.marks[here] = _place(key_node)
            result[key] = self.value(value_node, here)
        return result

    def _pairs(self, node: yaml.Node, path: Path) -> list[tuple[yaml.Node, yaml.Node]]:
        """Key and value nodes with merge keys (`<<`) resolved; the mapping's own keys take precedence."""
        own = [pair for pair in node.value if not _is_merge(pair[0])]
        names = {key.value for key, _ in own if isinstance(key, yaml.ScalarNode)}
        for key, value in node.value:
            if not _is_merge(key):
                continue
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(merged, yaml.MappingNode):
                    self._complain(key, (*path, "<<"), "a merge key takes a mapping or a list of mappings")
                    continue
                if id(merged) in self._open:
                    self._complain(key, (*path, "<<"), "an anchor contains itself")
                    continue
                self._count(key, path)
                self._enter(merged, path)
                inherited = []
                for pair in self._pairs(merged, path):
                    self._count(key, path)
                    if not isinstance(pair[0], yaml.ScalarNode) or pair[0].value not in names:
                        inherited.append(pair)
                self._open.discard(id(merged))
                names |= {pair[0].value for pair in inherited if isinstance(pair[0], yaml.ScalarNode)}
                own += inherited
        return own

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._complain(node, path, "a key must be a text, not a list or a mapping")
            return None
        # A key with control characters must not appear in the path of a complaint.
        return str(node.value) if self._check_characters(node, path) else None

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        self._check_characters(node, path)
        text = str(node.value)
        if node.tag == _CORE + "str":
            return text
        try:
            value = plain(text)
            wanted = node.tag.removeprefix(_CORE)
            if node.tag == _PLAIN or wanted == _kind(value):
                return value
            if wanted == "float" and isinstance(value, int):
                return float(value)
            if wanted in ("int", "float", "bool", "null"):
                raise ValueError(f"{text!r} is not a YAML {wanted}")
            raise ValueError(f"the YAML tag {node.tag} is not understood; remove it")
        except (ValueError, OverflowError) as error:
            self._complain(node, path, str(error))
            return None

    def _check_characters(self, node: yaml.ScalarNode, path: Path) -> bool:
        node.value = _SURROGATES.sub(_joined, node.value)
        match = _ESCAPED_CONTROL.search(node.value)
        if match:
            self._complain(node, path, f"control character {_code(match.group())}: remove it")
        return match is None

    def _complain(self, node: yaml.Node, path: Path, message: str) -> None:
        self.complaints.append(Complaint(path, message, *_place(node), None, self.source))
        if len(self.complaints) >= MOST_COMPLAINTS:
            raise ConfigError(self.complaints, self.source)


def _joined(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.tag == _PLAIN


def _kind(value: Any) -> str:
    return {bool: "bool", int: "int", float: "float", type(None): "null"}.get(type(value), "str")


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `plain` would read as another value."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    try:
        ambiguous = plain(text) != text or text == "<<"
    except ValueError:
        ambiguous = True
    return dumper.represent_scalar(_CORE + "str", text, style='"' if ambiguous else None)


_Dumper.add_representer(str, _represent_text)


def write(data: Mapping[str, Any]) -> str:
    """YAML text that `read` parses to `data`, with the keys in their order."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text
