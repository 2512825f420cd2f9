"""Users, groups, roles and access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainmaster.client.errors import NoSuchThing
from trainmaster.client.master import hashed
from trainmaster.client.resource import Json, Resource, given, word

if TYPE_CHECKING:
    from trainmaster.client import wire


class Users(Resource):
    """Most of it is for administrators."""

    def user(self, name: str) -> wire.User:
        found: wire.User = self._get(f"users/{word(name)}/by-username")["user"]
        return found

    def me(self) -> wire.User:
        found: wire.User = self._get("me")["user"]
        return found

    def create(self, name: str, password: str | None, *, admin: bool = False, remote: bool = False) -> wire.User:
        """A remote user has no password here."""
        body: Json = {"user": {"username": name, "admin": admin, "active": True, "remote": remote}}
        if password is not None:
            body |= {"password": hashed(password), "isHashed": True}
        found: wire.User = self._post("users", body, retry=False)["user"]
        return found

    def edit(self, user_id: int, **fields: Any) -> wire.User:
        """`fields` as the API names them: username, displayName, admin, active, remote."""
        found: wire.User = self._patch(f"users/{user_id}", given(**fields))["user"]
        return found

    def set_password(self, user_id: int, password: str, *, old: str | None = None, end_tokens: bool = False) -> None:
        """`old`: the caller's own present password, which is checked where it is given. `end_tokens`: access tokens
        end too, not only other sessions. Raises Refused for a wrong one."""
        body = {"password": hashed(password), "isHashed": True, "endAccessTokens": end_tokens}
        present = given(currentPassword=None if old is None else hashed(old))
        self._http.request("POST", f"/api/x1/users/{user_id}/password", body=body | present)

    # -- groups ---------------------------------------------------------------------------------------------------

    def groups(self, *, name: str = "", user_id: int | None = None) -> list[Json]:
        """Each with `group` and `numMembers`."""
        return list(self._post("groups/search", given(name=name, userId=user_id, limit=0, offset=0))["groups"])

    def group(self, name: str) -> Json:
        """With its users. Raises NoSuchThing."""
        found = self.groups(name=name)
        if not found:
            raise NoSuchThing(404, f"There is no group {name!r}; `det user-group list` shows those there are.")
        return dict(self._get(f"groups/{found[0]['group']['groupId']}")["group"])

    def create_group(self, name: str, users: Sequence[int]) -> Json:
        return dict(self._post("groups", {"name": name, "addUsers": list(users)}, retry=False)["group"])

    def update_group(self, group_id: int, **fields: Any) -> Json:
        """`fields` as the API names them: name, addUsers, removeUsers."""
        return dict(self._put(f"groups/{group_id}", {"groupId": group_id, **given(**fields)})["group"])

    def delete_group(self, group_id: int) -> None:
        self._delete(f"groups/{group_id}")

    # -- roles ----------------------------------------------------------------------------------------------------

    def roles(self, *, in_workspaces: bool = False) -> list[Json]:
        """All, or only those that can be given in a workspace."""
        body = given(limit=0, offset=0, workspaceId=1 if in_workspaces else None)
        return list(self._post("roles/search/by-assignability", body)["roles"])

    def role(self, name: str) -> Json:
        """Raises NoSuchThing."""
        for found in self.roles():
            if found["name"] == name:
                return dict(self._post("roles/search/by-ids", {"roleIds": [found["roleId"]]})["roles"][0])
        raise NoSuchThing(404, f"There is no role {name!r}; `det rbac list-roles` shows those there are.")

    def permissions(self) -> Json:
        """One's own `roles` and `assignments`."""
        return self._get("permissions/summary")

    def roles_of_user(self, user_id: int) -> list[Json]:
        return list(self._get(f"roles/search/by-user/{user_id}")["roles"])

    def roles_of_group(self, group_id: int) -> Json:
        """`roles`, and `assignments` in the same order."""
        return self._get(f"roles/search/by-group/{group_id}")

    def members(self, workspace_id: int) -> Json:
        """Who holds a role in a workspace."""
        return self._get(f"roles/workspace/{workspace_id}")

    def assign(
        self,
        role_id: int,
        *,
        user_id: int | None = None,
        group_id: int | None = None,
        workspace_id: int | None = None,
        undo: bool = False,
    ) -> None:
        """Without a workspace everywhere."""
        assigned = {"role": {"roleId": role_id}, **given(scopeWorkspaceId=workspace_id)}
        body: Json = {}
        if user_id is not None:
            body["userRoleAssignments"] = [{"userId": user_id, "roleAssignment": assigned}]
        if group_id is not None:
            body["groupRoleAssignments"] = [{"groupId": group_id, "roleAssignment": assigned}]
        self._post("roles/remove-assignments" if undo else "roles/add-assignments", body, retry=False)

    # -- access tokens --------------------------------------------------------------------------------------------

    def tokens(
        self, *, ids: Sequence[int] = (), username: str | None = None, inactive: bool = False
    ) -> list[wire.TokenInfo]:
        return self._all("tokens", "tokenInfo", tokenIds=list(ids), username=username, showInactive=inactive)

    def create_token(self, user_id: int, *, days: int | None = None, description: str | None = None) -> Json:
        """`token`, shown this once, and `tokenId`. `days` -1 is for ever."""
        lifespan = None if days is None else "-1" if days == -1 else f"{24 * days}h"
        body = given(userId=user_id, lifespan=lifespan, description=description)
        return self._post("tokens", body, retry=False)

    def edit_token(self, token_id: int, *, description: str | None = None, revoke: bool = False) -> wire.TokenInfo:
        body = given(tokenId=token_id, description=description, setRevoked=revoke or None)
        found: wire.TokenInfo = self._patch(f"tokens/{token_id}", body)["tokenInfo"]
        return found
