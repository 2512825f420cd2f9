"""Users, groups, roles and access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainmaster.client.errors import NoSuchThing
from trainmaster.client.resource import Json, Resource, given, word
from trainmaster.client.session_calls import hashed

if TYPE_CHECKING:
    from trainmaster.client import wire


class Users(Resource):
    """Accounts and permissions. Most calls are for administrators.

    Arguments of several calls:
        group_id: Number of the group.
        name: Name of the group.
        name: Name of the user.
        user_id: Number of the user.
    """

    def user(self, name: str) -> wire.User:
        """Get a user by name.

        Returns:
            The user.

        Raises:
            NoSuchThing: There is no such user.
        """
        user: wire.User = self._get(f"users/{word(name)}/by-username")["user"]
        return user

    def me(self) -> wire.User:
        """Get the user of the session.

        Returns:
            The user.
        """
        user: wire.User = self._get("me")["user"]
        return user

    def create(self, name: str, password: str | None, *, admin: bool = False, remote: bool = False) -> wire.User:
        """Create a user. For administrators.

        Args:
            password: The password; None for a user without one.
            admin: Whether the user is an administrator.
            remote: Whether the user logs in elsewhere (single sign-on) and has no password here.

        Returns:
            The user.

        Raises:
            NotAllowed: The caller is not an administrator.
        """
        body: Json = {"user": {"username": name, "admin": admin, "active": True, "remote": remote}}
        if password is not None:
            body |= {"password": hashed(password), "isHashed": True}
        user: wire.User = self._post("users", body, retry=False)["user"]
        return user

    def edit(self, user_id: int, **fields: Any) -> wire.User:
        """Change a user.

        Args:
            fields: Named as in the API: username, displayName, admin, active, remote. None is not sent.

        Returns:
            The user after the change.

        Raises:
            NoSuchThing: There is no such user.
            NotAllowed: The caller may not change it.
        """
        user: wire.User = self._patch(f"users/{user_id}", given(**fields))["user"]
        return user

    def set_password(self, user_id: int, password: str, *, old: str | None = None, end_tokens: bool = False) -> None:
        """Set a user's password; the user's other sessions end.

        Args:
            password: The new password.
            old: The caller's own present password, which the master checks if given.
            end_tokens: End access tokens too.

        Raises:
            NoSuchThing: There is no such user.
            NotAllowed: `old` is wrong, or the caller may not change this user.
        """
        body = {"password": hashed(password), "isHashed": True, "endAccessTokens": end_tokens}
        present = given(currentPassword=None if old is None else hashed(old))
        self._http.request("POST", f"/api/x1/users/{user_id}/password", body=body | present)

    # -- groups ---------------------------------------------------------------------------------------------------

    def groups(self, *, name: str = "", user_id: int | None = None) -> list[Json]:
        """List groups.

        Args:
            name: Only the group of this name; empty for all.
            user_id: Only groups that this user is a member of.

        Returns:
            Each group as `group` and `numMembers`.
        """
        return list(self._post("groups/search", given(name=name, userId=user_id, limit=0, offset=0))["groups"])

    def group(self, name: str) -> Json:
        """Get a group with its users.

        Returns:
            The group.

        Raises:
            NoSuchThing: There is no such group.
        """
        groups = self.groups(name=name)
        if not groups:
            raise NoSuchThing(404, f"There is no group {name!r}; `det user-group list` shows those there are.")
        return dict(self._get(f"groups/{groups[0]['group']['groupId']}")["group"])

    def create_group(self, name: str, users: Sequence[int]) -> Json:
        """Create a group. For administrators.

        Args:
            users: Numbers of its users.

        Returns:
            The group.

        Raises:
            NotAllowed: The caller may not manage groups.
        """
        return dict(self._post("groups", {"name": name, "addUsers": list(users)}, retry=False)["group"])

    def update_group(self, group_id: int, **fields: Any) -> Json:
        """Change a group. For administrators.

        Args:
            fields: Named as in the API: name, addUsers, removeUsers. None is not sent.

        Returns:
            The group after the change.

        Raises:
            NoSuchThing: There is no such group or user.
            NotAllowed: The caller may not manage groups.
        """
        return dict(self._put(f"groups/{group_id}", {"groupId": group_id, **given(**fields)})["group"])

    def delete_group(self, group_id: int) -> None:
        """Delete a group. For administrators.

        Raises:
            NoSuchThing: There is no such group.
            NotAllowed: The caller may not manage groups.
        """
        self._delete(f"groups/{group_id}")

    # -- roles ----------------------------------------------------------------------------------------------------

    def roles(self, *, in_workspaces: bool = False) -> list[Json]:
        """List roles.

        Args:
            in_workspaces: Only those that can be assigned in a workspace.

        Returns:
            The roles.
        """
        body = given(limit=0, offset=0, workspaceId=1 if in_workspaces else None)
        return list(self._post("roles/search/by-assignability", body)["roles"])

    def role(self, name: str) -> Json:
        """Get a role with its permissions.

        Args:
            name: Name of the role.

        Returns:
            The role.

        Raises:
            NoSuchThing: There is no such role.
        """
        for role in self.roles():
            if role["name"] == name:
                return dict(self._post("roles/search/by-ids", {"roleIds": [role["roleId"]]})["roles"][0])
        raise NoSuchThing(404, f"There is no role {name!r}; `det rbac list-roles` shows those there are.")

    def permissions(self) -> Json:
        """Get the caller's own permissions.

        Returns:
            `roles` and `assignments`.
        """
        return self._get("permissions/summary")

    def roles_of_user(self, user_id: int) -> list[Json]:
        """List the roles of a user.

        Returns:
            The roles.

        Raises:
            NoSuchThing: There is no such user.
        """
        return list(self._get(f"roles/search/by-user/{user_id}")["roles"])

    def roles_of_group(self, group_id: int) -> Json:
        """List the roles of a group.

        Returns:
            `roles`, and `assignments` in the same order.

        Raises:
            NoSuchThing: There is no such group.
        """
        return self._get(f"roles/search/by-group/{group_id}")

    def members(self, workspace_id: int) -> Json:
        """List who holds a role in a workspace.

        Args:
            workspace_id: Number of the workspace.

        Returns:
            Users and groups with their assignments.

        Raises:
            NoSuchThing: There is no such workspace.
        """
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
        """Assign a role to a user or a group, or take it away.

        Args:
            role_id: Number of the role.
            user_id: The user to assign it to.
            group_id: The group to assign it to.
            workspace_id: Where it holds; None for everywhere.
            undo: Take the role away instead.

        Raises:
            NoSuchThing: There is no such role, user, group or workspace.
            NotAllowed: The caller may not assign this role there.
        """
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
        """List access tokens.

        Args:
            ids: Only these numbers; empty for all.
            username: Only those of one user.
            inactive: Include those that are expired or revoked.

        Returns:
            The tokens, without the secrets.
        """
        return self._all("tokens", "tokenInfo", tokenIds=list(ids), username=username, showInactive=inactive)

    def create_token(self, user_id: int, *, days: int | None = None, description: str | None = None) -> Json:
        """Create an access token.

        Args:
            user_id: The user that it acts as.
            days: Days until it expires; -1 for never, None for the master's default.
            description: What it is for.

        Returns:
            `token`, the secret, which is shown only this once, and `tokenId`.

        Raises:
            NotAllowed: The caller may not create tokens for this user.
        """
        lifespan = None if days is None else "-1" if days == -1 else f"{24 * days}h"
        body = given(userId=user_id, lifespan=lifespan, description=description)
        return self._post("tokens", body, retry=False)

    def edit_token(self, token_id: int, *, description: str | None = None, revoke: bool = False) -> wire.TokenInfo:
        """Change or revoke an access token.

        Args:
            token_id: Number of the token.
            description: New description; None leaves it.
            revoke: Revoke it, for good.

        Returns:
            The token after the change.

        Raises:
            NoSuchThing: There is no such token.
            NotAllowed: The caller may not change it.
        """
        body = given(tokenId=token_id, description=description, setRevoked=revoke or None)
        token: wire.TokenInfo = self._patch(f"tokens/{token_id}", body)["tokenInfo"]
        return token
