"""The web page's own endpoints: shell and files, session, one-time links, the table, and what is sent twice."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, text

from tests.process.api.conftest import log_in
from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job
from tests.support.master import MasterProcess
from trainmaster.master.api.webui import FILES, Route

TABLE = "/api/x1/experiments/table"
PAGE = {"X-Trainmaster": "page", "Content-Type": "application/json"}


# -- shell and files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/ui/", "./"),
        ("/ui/experiments", "./"),
        ("/ui/experiments/5", "../"),
        ("/ui/experiments/5/", "../../"),
        ("/ui/x%2Fb/c", "../"),
        ("/ui/x%22%3E%3Cscript%3E", "./"),
    ],
)
def test_the_base_is_as_deep_as_the_address_as_it_arrives(anonymous: Api, path: str, base: str) -> None:
    page = anonymous.get(path)
    shell = page.content.decode()
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f'<base href="{base}">' in shell
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert "trusted-types 'none'" in page.headers["content-security-policy"]
    assert "<script>" not in shell.replace('<script type="application/json"', "")


def test_redirects_are_relative(anonymous: Api) -> None:
    assert [(anonymous.get(path).status, anonymous.get(path).headers["location"]) for path in ("/", "/ui")] == [
        (307, "ui/"),
        (307, "ui/"),
    ]


def test_files_are_kept_for_ever_and_come_compressed(anonymous: Api) -> None:
    link = re.findall(r'src="(a/[0-9a-f]+/app/main.js)"', anonymous.get("/ui/").content.decode())[0]
    plain = anonymous.get(f"/ui/{link}")
    packed = anonymous.call("GET", f"/ui/{link}", headers={"Accept-Encoding": "gzip, br"})
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain.headers["content-type"].startswith("text/javascript")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    for wrong in (link.replace("/app/", "/../app/"), re.sub("a/.*?/", "a/0/", link), f"{link[:-12]}/types/api.d.ts"):
        assert anonymous.get(f"/ui/{wrong}").status == 404


def test_page_preloads_its_data_for_logged_in_users(user: Api, anonymous: Api) -> None:
    def preloads(api: Api, path: str, cookie: str = "") -> list[str]:
        shell = api.call("GET", path, headers={"Cookie": cookie} if cookie else {}).content.decode()
        return re.findall(r'rel="preload" as="fetch" crossorigin href="([^"]+)"', shell)

    address = "/ui/experiments?filter=a%20b%26c&x=1&sort=-best"
    table = "../api/x1/experiments/table?filter=a%20b%26c&amp;sort=-best&amp;limit=200"
    assert preloads(anonymous, address, f"auth={user.token}") == ["../session", table]
    assert preloads(anonymous, address) == ["../session"]
    assert preloads(anonymous, "/ui/nothing/here", "auth=x") == ["../session"]


def test_the_modules_of_a_view_travel_with_its_page(anonymous: Api) -> None:
    def views(path: str) -> set[str]:
        shell = anonymous.get(f"/ui/{path}").content.decode()
        return set(re.findall(r'rel="modulepreload" href="a/[^"]*/app/pages/trial_(\w+)\.js"', shell))

    assert (views("trials/5"), views("trials/5/log"), views("trials/5/..%2F")) == ({"metrics"}, {"log"}, set())


def test_addresses_fit_routes_by_their_words_and_names() -> None:
    route = Route(["experiments", ":id", ":tab?"], "experiment", "api/v1/experiments/:id", ["x"], {"n": "1"})
    assert route.fits(["experiments", "5"]) == {"id": "5"}
    assert route.fits(["experiments", "5", "curves"]) == {"id": "5", "tab": "curves"}
    assert [route.fits(path) for path in (["experiments"], ["other", "5"], ["experiments", "5", "a", "b"])] == [
        None
    ] * 3
    assert route.call({"id": "a/b"}, {"x": "é'", "y": "z"}) == "api/v1/experiments/a%2Fb?x=%C3%A9'&n=1"
    assert all((FILES.tree().files.get(f"app/pages/{one.page}.js")) for one in FILES.tree().routes)


# -- session --------------------------------------------------------------------------------------------------------


def test_session_returns_user_and_permissions(user: Api, anonymous: Api, rbac_admin: Api) -> None:
    mine, none, ruled = (api.get("/session").json for api in (user, anonymous, rbac_admin))
    assert (mine["user"]["username"], mine["roles"]) == ("determined", False)
    assert mine["permissions"]["UPDATE_EXPERIMENT"] is None
    assert "ADMINISTRATE_USER" not in mine["permissions"]
    assert (none["user"], none["permissions"], none["version"]) == (None, {}, mine["version"])
    assert ruled["roles"] is True
    assert Api(user.url, "wrong").get("/session").json["user"] is None


def enter(master: MasterProcess, body: dict[str, str]) -> Answer:
    return Api(master.url).call("POST", "/session", body, headers=PAGE)


def test_a_link_logs_in_once_and_not_for_long(master: MasterProcess, user: Api, engine: Engine) -> None:
    given = user.post("/api/x1/tickets", {"purpose": "page"}).json
    assert given["seconds"] == 60
    entered = enter(master, {"ticket": given["ticket"]})
    assert (entered.status, entered.json["user"]["username"]) == (200, "determined")
    cookie = entered.headers["set-cookie"]
    assert re.match(r"auth=[^;]+; Max-Age=\d+; HttpOnly; SameSite=Strict$", cookie)
    token = cookie.partition(";")[0].removeprefix("auth=")
    assert token not in (user.token, "")
    assert Api(master.url, token).get("/api/v1/me").status == 200
    assert enter(master, {"ticket": given["ticket"]}).status == 401
    late = user.post("/api/x1/tickets", {"purpose": "page"}).json["ticket"]
    with engine.begin() as connection:
        connection.execute(text("UPDATE tickets SET expires_at = now() - interval '1 s'"))
    assert enter(master, {"ticket": late}).status == 401


def test_a_link_is_for_nothing_else_and_not_for_everybody(master: MasterProcess, user: Api, job: Job) -> None:
    for purpose in ("stream", "page"):
        ticket = user.post("/api/x1/tickets", {"purpose": purpose}).json["ticket"]
        assert user.get("/stream", **{"trainmaster-ticket": ticket}).status >= 400
        if purpose == "stream":
            assert enter(master, {"ticket": ticket}).status == 401
    ticket = user.post("/api/x1/tickets", {"purpose": "page"}).json["ticket"]
    assert Api(master.url).post("/session", {"ticket": ticket}).status == 403  # no page sends this
    assert job.api.post("/api/x1/tickets", {"purpose": "page"}).status == 403
    me = user.get("/api/v1/me").json["user"]["id"]
    access = user.post("/api/v1/tokens", {"userId": me}).json["token"]
    refused = Api(master.url, access).post("/api/x1/tickets", {"purpose": "page"})
    assert (refused.status, refused.sentence.partition(":")[0]) == (
        403,
        "not authorized" if refused.sentence.startswith("not authorized") else refused.sentence.partition(":")[0],
    )
    assert "det user login" in refused.sentence


def test_logging_out_on_a_terminal_leaves_the_pages_own_session(master: MasterProcess) -> None:
    terminal = Api(master.url, log_in(master, "determined"))
    entered = enter(master, {"ticket": terminal.post("/api/x1/tickets", {"purpose": "page"}).json["ticket"]})
    token = entered.headers["set-cookie"].partition(";")[0].removeprefix("auth=")
    assert terminal.post("/api/v1/auth/logout").status == 200
    assert Api(master.url, token).get("/api/v1/me").status == 200


# -- the table ------------------------------------------------------------------------------------------------------


def found(api: Api, line: str = "", **query: str) -> list[int]:
    answer = api.get(TABLE, filter=line, **query)
    assert answer.status == 200, answer.content
    return [row[0] for row in answer.json["rows"]]


def test_table_filter_finds_matching_experiments(user: Api, admin: Api, experiment: Callable[..., int]) -> None:
    one, two = experiment(), experiment()
    user.call("PATCH", f"/api/v1/experiments/{one}", {"id": one, "name": "a tabled: thing", "labels": ["x y", "b"]})
    user.call("PATCH", f"/api/v1/experiments/{two}", {"id": two, "name": "another TABLED one", "labels": ["b"]})
    both = [two, one]
    assert found(user, "tabled") == both
    assert found(user, "tabled", sort="id") == both[::-1]
    assert found(user, 'label:"x y"') == [one]
    assert found(user, 'tabled -label:"x y"') == [two]
    assert found(user, 'name:"tabled: thing"') == [one]
    assert found(user, f"id:{one},{two}") == both
    assert found(user, f"tabled id!={one}") == [two]
    assert found(user, f"tabled user:me id<={one}") == [one]
    assert found(admin, "tabled user:me") == []
    assert found(user, "tabled user:determined state:waiting") == both
    assert found(user, "tabled state:completed") == []
    assert found(user, "tabled -state:ended started<1h duration<1d progress<50%") == both
    assert found(user, "tabled started>1h") == []
    assert found(user, "tabled started>2020-01-01 trials>=1 archived:any") == both
    assert found(user, "tabled hp.nothing=x") == []
    assert found(user, "tabled no_such_metric<3") == []
    answer = user.get(TABLE, filter="tabled state:running", columns="name,user,labels", limit="1").json
    assert answer["columns"][6:] == ["name", "user", "labels"]
    assert (answer["total"], answer["rows"], answer["states"]) == (0, [], {"QUEUED": 2})


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"filter": 'a "b'}, "a quotation mark is not closed"),
        ({"filter": "state:sleeping"}, "there is no state 'sleeping'"),
        ({"filter": "trials>many"}, "trials is compared with a number, not with 'many'"),
        ({"filter": "started<soon"}, "started is compared with a date"),
        ({"filter": "started<1e300d"}, "started is compared with a date"),
        ({"filter": "archived:perhaps"}, "archived is yes, no or any"),
        ({"filter": "label:"}, "needs a value after its :"),
        ({"filter": "x" * 4001}, "more than the 4000"),
        ({"filter": "id:" + "1," * 600 + "1"}, "values"),
        ({"columns": ",".join(f"c{n}" for n in range(60))}, "more than the 50"),
        ({"sort": ",".join(f"c{n}" for n in range(60))}, "more than the 50"),
    ],
)
def test_a_line_that_cannot_be_read_is_answered_with_a_sentence(user: Api, query: dict[str, str], said: str) -> None:
    answer = user.get(TABLE, **query)
    assert answer.status == 400, answer.content
    assert said in answer.sentence


def test_workspaces_that_one_may_not_see_are_not_in_the_table(user: Api, anonymous: Api, job: Job) -> None:
    assert anonymous.get(TABLE).status == 401
    assert job.api.get(TABLE).status == 403


# -- what is sent twice -----------------------------------------------------------------------------------------------


def test_an_answer_that_has_not_changed_is_not_sent_again(user: Api, experiment: Callable[..., int], job: Job) -> None:
    experiment()
    headers = {"Accept-Encoding": "gzip"}
    first = user.call("GET", "/api/v1/experiments", headers=headers)
    assert first.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in first.headers["vary"]
    assert first.headers["cache-control"] == "private, no-cache"
    assert gzip.decompress(first.content).startswith(b'{"experiments"')
    mark = first.headers["etag"]
    plain = user.call("GET", "/api/v1/master", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert "etag" not in user.get("/api/v1/master").headers  # whoever decodes nothing keeps nothing
    again = user.call("GET", "/api/v1/master", headers={"If-None-Match": f'"x", {plain.headers["etag"]}'})
    assert (again.status, again.content, again.headers["etag"]) == (304, b"", plain.headers["etag"])
    assert user.call("GET", "/api/v1/experiments", headers={"If-None-Match": f"{mark}x"}).status == 200
    assert "etag" not in user.post("/api/v1/experiments-search", {}).headers
    # A job's polls and a followed log pass as they come.
    poll = job.api.call("GET", f"/api/v1/allocations/{job.allocation_id}/signals/preemption", headers=headers)
    logs = user.call("GET", f"/api/v1/trials/{job.trial_id}/logs", headers=headers)
    assert ["etag" in one.headers for one in (poll, logs)] == [False, False]
