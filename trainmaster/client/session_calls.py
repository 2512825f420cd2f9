"""Calls about who uses the master: log-in, users, and what the master says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.client.resource import PAGE, Json, Resource, word

if TYPE_CHECKING:
    from trainmaster.client import wire

CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"


def hashed(password: str) -> str:
    """Return the hash that travels instead of a password; Determined's clients send the same."""
    import hashlib  # which loads OpenSSL: only who logs in needs it

    return hashlib.sha512((CLIENT_SALT + password).encode()).hexdigest() if password else ""


class SessionCalls(Resource):
    """Calls about the session and the users; a part of `Master`.

    Arguments of several calls:
        username: Name of the user.
    """

    def login(self, username: str, password: str) -> str:
        """Log in; this client uses the new session from now on.

        Args:
            password: The password as typed; its hash is sent.

        Returns:
            The bearer token of the session.

        Raises:
            NotLoggedIn: The name or the password is wrong.
            NotAllowed: The account is not active.
        """
        return self.login_with_mark(username, password, "")[0]

    def login_with_mark(self, username: str, password: str, mark: str) -> tuple[str, str]:
        """Log in, and show the mark of an earlier log-in.

        The mark distinguishes this client from others that guess the password from the same address, so that their
        failures do not delay it.

        Args:
            password: The password as typed; its hash is sent.
            mark: The mark that an earlier log-in of this user returned; empty for none.

        Returns:
            The bearer token, which this client uses from now on, and the mark to keep for the next log-in.

        Raises:
            NotLoggedIn: The name or the password is wrong.
            NotAllowed: The account is not active.
        """
        body = {"username": username, "password": hashed(password), "isHashed": True}
        if mark:
            body["clientMark"] = mark
        answer = self._http.request("POST", "/api/v1/auth/login", body=body, retry=False)
        token = str(answer["token"])
        self._http.token = token
        return token, str(answer.get("clientMark") or "")

    def logout(self) -> None:
        """End the session on the master."""
        self._http.request("POST", "/api/v1/auth/logout", body={})

    def page_ticket(self) -> str:
        """Get a ticket that logs a browser in on the master's web page, once and within a minute.

        Returns:
            The ticket, for `/ui/sign-in#ticket=`.

        Raises:
            NotAllowed: This client uses an access token, or runs in a job.
        """
        return str(self._http.request("POST", "/api/x1/tickets", body={"purpose": "page"}, retry=False)["ticket"])

    def sessions(self) -> list[Json]:
        """List the caller's log-in sessions, each of a terminal or of a browser.

        Returns:
            The sessions, newest first, with the API's fields.
        """
        return list(self._http.request("GET", "/api/x1/sessions")["sessions"])

    def end_session(self, session_id: int) -> None:
        """End one of the caller's log-in sessions.

        Args:
            session_id: Number of the session, as `sessions` lists it.

        Raises:
            NoSuchThing: The caller has no such session.
        """
        self._http.request("DELETE", f"/api/x1/sessions/{session_id}")

    def whoami(self) -> wire.User:
        """Get the user of the session.

        Returns:
            The user, with the API's fields.
        """
        user: wire.User = self._http.request("GET", "/api/v1/me")["user"]
        return user

    def users(self) -> list[wire.User]:
        """List all users.

        Returns:
            The users, with the API's fields.
        """
        return self._pages("/api/v1/users", "users", {}, PAGE, 0, True)

    def link_user(self, username: str, *, uid: int, user: str, gid: int, group: str) -> Json:
        """Set the Unix account that the jobs of a user run as. For administrators.

        Args:
            uid: Number of the Unix account.
            user: Name of the Unix account.
            gid: Number of its group.
            group: Name of its group.

        Returns:
            The user as changed.

        Raises:
            NoSuchThing: There is no such user.
            NotAllowed: The caller is not an administrator.
        """
        owner = self._http.request("GET", f"/api/v1/users/{word(username)}/by-username")["user"]
        linked = {"agentUid": uid, "agentUser": user, "agentGid": gid, "agentGroup": group}
        return dict(
            self._http.request("PATCH", f"/api/v1/users/{owner['id']}", body={"agentUserGroup": linked})["user"]
        )

    def info(self) -> Json:
        """Get what the master reports about itself.

        Returns:
            Version, cluster, and limits such as `maxContextBytes`, with the API's fields.
        """
        return self._http.request("GET", "/api/v1/master")
