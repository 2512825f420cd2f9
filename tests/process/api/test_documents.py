"""The API's description, for programs and for people."""

from __future__ import annotations

import re

from tests.support.api.http import Api

METHODS = {"get", "post", "put", "patch", "delete"}


def test_the_openapi_document_is_whole(anonymous: Api) -> None:
    document = anonymous.get("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    operations = {
        (method, path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }
    assert len(operations) > 25
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for (method, path), operation in operations.items():
        assert {"200", "307"} & operation["responses"].keys(), (method, path)
        assert operation["tags"], (method, path)
        assert operation["summary"], (method, path)
        named = set(re.findall(r"{(\w+)}", path))
        assert named == {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}, (method, path)
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', anonymous.get("/openapi.json").content.decode()))
    assert wanted <= set(schemas)


def test_the_errors_are_described_as_they_are_sent(anonymous: Api) -> None:
    document = anonymous.get("/openapi.json").json
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert "422" not in operation["responses"], f"{method} {path}: the master never answers 422"
            assert operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")


def test_the_page_needs_nothing_from_the_internet(anonymous: Api) -> None:
    page = anonymous.get("/docs")
    assert page.status == 200
    html = page.content.decode()
    assert "://" not in html
    assets = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert len(assets) == 3
    for asset in assets:
        assert anonymous.get(asset).status == 200, asset
    script = anonymous.get(next(a for a in assets if a.endswith(".js")))
    assert "javascript" in script.headers["content-type"]
    assert len(script.content) > 500_000
    assert "/openapi.json" in html


def test_health_and_info_need_no_login(anonymous: Api) -> None:
    assert anonymous.get("/health").json["status"] == "up"
    info = anonymous.get("/info").json
    assert {"version", "master_id", "cluster_id", "cluster_name"} <= set(info)
    assert anonymous.get("/api/v1/master").json["clusterId"] == info["cluster_id"]
