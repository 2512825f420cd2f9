"""The table of endpoints that Determined has and this master does not serve. Each answers 501 with a reason.

They require no log-in: there is nothing behind them to protect.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from trainmaster.master.services.errors import NotServed

_KUBERNETES = (
    "This master starts jobs on batch schedulers and agents; Kubernetes' namespaces and quotas do not exist here."
)
_SIGN_ON = "This master authenticates users by password or access token; it has no single sign-on."
_PROFILER = "Profiler measurements are reported as metrics of the groups gpu, cpu, memory, disk and network."

V1 = "/api/v1"
REFUSED: Mapping[str, str] = {
    f"GET {V1}/k8s-resource-managers": _KUBERNETES,
    f"POST {V1}/namespace-bindings/bulk-auto-create": _KUBERNETES,
    f"GET {V1}/namespace-bindings/workspace-ids-with-default-bindings": _KUBERNETES,
    f"GET {V1}/workspaces/{{workspace_id}}/get-k8s-resource-quotas": _KUBERNETES,
    f"GET {V1}/workspaces/{{workspace_id}}/list-namespace-bindings": _KUBERNETES,
    f"POST {V1}/workspaces/{{workspace_id}}/set-resource-quota": _KUBERNETES,
    f"DELETE {V1}/workspaces/{{workspace_id}}/namespace-bindings": _KUBERNETES,
    f"POST {V1}/workspaces/{{workspace_id}}/namespace-bindings": _KUBERNETES,
    **{
        f"{method} /{place}": _SIGN_ON
        for method in ("GET", "POST")
        for place in ("saml/{rest:path}", "oidc/{rest:path}")
    },
    **{
        f"{method} /{place}/{{rest:path}}": _SIGN_ON
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        for place in ("oauth2", "scim/v2")
    },
    f"POST {V1}/trials/profiler/metrics": _PROFILER,
}

router = APIRouter()


def _add(endpoint: str, sentence: str) -> None:
    async def refuse() -> None:
        raise NotServed(sentence)

    method, path = endpoint.split(" ")
    router.add_api_route(path, refuse, methods=[method], include_in_schema=False)


for _endpoint, _sentence in REFUSED.items():
    _add(_endpoint, _sentence)
