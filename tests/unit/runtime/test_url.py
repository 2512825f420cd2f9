"""The master's URL, taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.runtime.url import split_url


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("http://Login1:8080", ("http", "login1", 8080, "")),
        ("HTTPS://master.site.org/", ("https", "master.site.org", 443, "")),
        ("http://10.0.0.1/det/master/", ("http", "10.0.0.1", 80, "/det/master")),
        ("http://[fe80::1]:80", ("http", "fe80::1", 80, "")),
        ("https://[::1]/x?y=1#z", ("https", "::1", 443, "/x")),
        ("http://user:pass@host:81/a@b", ("http", "host", 81, "/a@b")),
    ],
)
def test_the_parts_of_a_url(text: str, parts: Any) -> None:
    assert tuple(split_url(text).values().values()) == parts


@pytest.mark.parametrize(
    "text",
    ["", "host:8080", "ftp://host", "http://", "http://:80", "http://host:x", "http://host:0", "http://host:70000",
     "http://[::1", "http://[::1]80", "http://host:٣"],
)  # fmt: skip
def test_invalid_urls_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is no URL of http or https"):
        split_url(text)
