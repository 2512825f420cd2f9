"""A minimal browser: keeps cookies by path, follows redirects, fills in the log-in form, and sends the origin of
requests."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import quote, urlencode, urljoin, urlsplit

from tests.support.api.http import TIMEOUT, Answer

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Browser:
    """`url`: where it is; cookies are those of its host, whatever the port, as in browsers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies: dict[tuple[str, str], str] = {}  # by path and name

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def call(
        self, method: str, address: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`address` may be of another port."""
        address = urljoin(self.url, address)
        parts = urlsplit(address)
        assert parts.hostname
        sent = {**HTML, **(headers or {})}
        if cookie := self.cookie_for(parts.path):
            sent["Cookie"] = cookie
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
        try:
            connection.request(method, f"{quote(parts.path, safe='/%:')}?{parts.query}".rstrip("?"), body, sent)
            response = connection.getresponse()
            self._keep(parts.path, response.headers.get_all("set-cookie") or [])
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, address: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.call("GET", address, headers=headers)

    def cookie_for(self, path: str) -> str:
        fitting = [(at, name, value) for (at, name), value in self.cookies.items() if path.startswith(at)]
        return "; ".join(f"{name}={value}" for _, name, value in sorted(fitting, key=lambda one: -len(one[0])))

    def _keep(self, path: str, told: list[str]) -> None:
        for cookie in told:
            first, *attributes = [part.strip() for part in cookie.split(";")]
            name, _, value = first.partition("=")
            about = {key.lower(): word for key, _, word in (one.partition("=") for one in attributes)}
            at = about.get("path") or path[: path.rindex("/") + 1]
            self.cookies.pop((at, name), None)
            if about.get("max-age") != "0":
                self.cookies[at, name] = value

    def follow(self, answer: Answer, most: int = 5) -> Answer:
        """To where redirects lead."""
        for _ in range(most):
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            self.url = urljoin(self.url, answer.headers["location"])
            answer = self.get(self.url)
        raise AssertionError(f"redirected {most} times, last to {self.url}")

    def log_in(self, form: str, name: str, password: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Fill in the form at that address and send it."""
        page = self.get(form).content.decode()
        hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page)
        fields = {key: unescape(value) for key, value in hidden}
        body = urlencode({"username": name, "password": password, **fields}).encode()
        said = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin}
        return self.call("POST", "/login", body, {**said, "Sec-Fetch-Site": "same-origin", **(headers or {})})
