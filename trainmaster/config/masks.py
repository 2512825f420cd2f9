"""Masks secrets in texts: passwords in addresses, and what looks like a key in code and its diffs.

Imports nothing heavy: `det experiment create` needs it for the diff of the code.
"""

from __future__ import annotations

import re

MASK = "********"

IN_ADDRESS = re.compile(
    r"(?P<before>://[^/\s:@]*:)(?P<password>[^/\s@]+)(?=@)"
    r"|(?P<name>[?&;](?:sig|access_token|token|password|secret|key|code)=)(?P<value>[^&;\s]+)",
    re.IGNORECASE,
)
# In code and its diffs: a string, or a word that can be no expression, given to a name such as those above; and what
# looks like a key whatever its name.
_IN_CODE = re.compile(
    r"(?P<before>(?:password|passwd|passphrase|secret|token|credentials?|auth"
    r"|(?:api|access|secret|private|signing|account|storage)_?key|connection_string)"
    r"[\"']?\s*[:=]\s*)(?:(?P<quote>[\"'])(?P<string>[^\"'\n]+)(?P=quote)|(?P<word>[\w+/=-]{12,})(?=\s|$))",
    re.IGNORECASE,
)
_KEYS = re.compile(
    r"\b(?:gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
)
_KEY_BLOCK = re.compile(r"(?P<head>-----BEGIN (?:\w+ )*PRIVATE KEY-----)[^-]+")


def masked_address(url: str) -> str:
    """Return an address with masks for its passwords."""
    return IN_ADDRESS.sub(lambda match: f"{match['before'] or match['name']}{MASK}", url)


def masked_code(text: str) -> str:
    """Return code, or a diff of it, with masks for what looks like a secret."""

    def shown(match: re.Match[str]) -> str:
        return f"{match['before']}{match['quote'] or ''}{MASK}{match['quote'] or ''}"

    text = _KEY_BLOCK.sub(lambda match: f"{match['head']}{MASK}", text)
    return _KEYS.sub(MASK, _IN_CODE.sub(shown, masked_address(text)))
