"""Groups of users. Visible to their members, and to users who may assign roles or change groups."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Select, delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from trainmaster.master.db import changes
from trainmaster.master.db.organisation import Group, GroupMember
from trainmaster.master.db.tables import User
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Invalid, NotFound
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import wake

log = logging.getLogger(__name__)

LONGEST_NAME = 250  # characters


@dataclass(frozen=True)
class GroupView:
    """`members` by name."""

    row: Group
    members: Sequence[User]


def of_user(user_id: int) -> Select[int]:
    """Ids of a user's groups."""
    return select(GroupMember.group_id).where(GroupMember.user_id == user_id)


class Groups(BoundService):
    """Groups of users, for callers who may see or change them."""

    def search(
        self, caller: Caller, name: str, user_id: int | None, offset: int, limit: int
    ) -> Page[tuple[Group, int]]:
        """Return groups with their numbers of members, by name; `name` must fit exactly."""
        members = select(func.count()).where(GroupMember.group_id == Group.id).scalar_subquery()
        statement = select(Group, members)
        if not _sees_all(caller):
            statement = statement.where(Group.id.in_(of_user(caller.user_id)))
        if name:
            statement = statement.where(Group.name == name)
        if user_id:
            statement = statement.where(Group.id.in_(of_user(user_id)))
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            rows = session.execute(statement.order_by(Group.name).offset(window.start).limit(window.size))
            return Page([(group, count) for group, count in rows], window)

    def get(self, caller: Caller, group_id: int) -> GroupView:
        """Raise NotFound, also for a group that the caller may not see."""
        with self._store.transaction() as session:
            (view,) = views(session, [_find(session, group_id)])
        if not (_sees_all(caller) or caller.user_id in {user.id for user in view.members}):
            raise NotFound(f"There is no group {group_id}.")
        return view

    def create(self, caller: Caller, name: str, add: Sequence[int]) -> GroupView:
        """Raise Invalid, Conflict, NotFound."""
        with self._store.transaction() as session:
            row = Group()
            session.add(row)
            _call(session, row, name)
            _add(session, row, add)
            log.info("%s made the group %s", caller.username, row.name)
            return views(session, [row])[0]

    def update(
        self, caller: Caller, group_id: int, name: str | None, add: Sequence[int], remove: Sequence[int]
    ) -> GroupView:
        """Return a user in both lists is removed. Raises Invalid, Conflict, NotFound."""
        with self._store.transaction() as session:
            row = _find(session, group_id, lock=True)
            if name is not None:
                _call(session, row, name)
            _add(session, row, add)
            there = set(session.scalars(select(GroupMember.user_id).where(GroupMember.group_id == row.id)))
            if strangers := set(remove) - there:
                raise NotFound(f"User {min(strangers)} is not in the group {row.name!r}.")
            _drop(session, row, remove)
            log.info("%s changed the group %s: added users %s, removed %s", caller.username, row.name, add, remove)
            return views(session, [row])[0]

    def remove(self, caller: Caller, group_id: int) -> None:
        """Delete a group and its role assignments. Raises NotFound."""
        with self._store.transaction() as session:
            row = _find(session, group_id, lock=True)
            session.delete(row)
            log.info("%s deleted the group %s", caller.username, row.name)

    def regroup(self, caller: Caller, users: Sequence[int], add: Sequence[int], remove: Sequence[int]) -> None:
        """Add users to groups, and remove them from others. Raises NotFound, Invalid."""
        if both := set(add) & set(remove):
            raise Invalid(f"Group {min(both)} is both in addGroups and in removeGroups.")
        with self._store.transaction() as session:
            for group_id in sorted({*add, *remove}):
                row = _find(session, group_id, lock=True)
                (_add if group_id in add else _drop)(session, row, users)
            log.info("%s put users %s into groups %s, took them from %s", caller.username, users, add, remove)


def views(session: Session, rows: Sequence[Group]) -> list[GroupView]:
    """In the order of `rows`."""
    session.flush()
    query = select(GroupMember.group_id, User).join(User, GroupMember.user_id == User.id).order_by(User.username)
    members: dict[int, list[User]] = defaultdict(list)
    for group_id, user in session.execute(query.where(GroupMember.group_id.in_([row.id for row in rows]))):
        members[group_id].append(user)
    return [GroupView(row, members[row.id]) for row in rows]


# -- inside -------------------------------------------------------------------------------------------------------


def _sees_all(caller: Caller) -> bool:
    """Whether the caller sees all groups. Without roles groups have no effect, and everybody sees them."""
    seeing = (Permission.ASSIGN_ROLES, Permission.UPDATE_GROUP)
    return caller.grants is None or any(caller.holds_somewhere(permission) for permission in seeing)


def _find(session: Session, group_id: int, *, lock: bool = False) -> Group:
    row = session.get(Group, group_id, with_for_update=lock)
    if row is None:
        raise NotFound(f"There is no group {group_id}.")
    return row


def _call(session: Session, row: Group, name: str) -> None:
    row.name = name.strip()
    if not row.name.isprintable() or not 0 < len(row.name) <= LONGEST_NAME:
        raise Invalid(f"{name!r} cannot be a group's name: it has 1 to {LONGEST_NAME} printable characters.")
    try:
        session.flush()
    except IntegrityError:
        raise AlreadyExists(f"The group {name.strip()!r} already exists.") from None


def _add(session: Session, row: Group, users: Sequence[int]) -> None:
    known = set(session.scalars(select(User.id).where(User.id.in_(users))))
    if missing := set(users) - known:
        raise NotFound(f"There is no user {min(missing)}.")
    there = set(session.scalars(select(GroupMember.user_id).where(GroupMember.group_id == row.id)))
    session.add_all(GroupMember(group_id=row.id, user_id=user_id) for user_id in known - there)
    session.flush()
    wake(session, changes.SUBJECT)


def _drop(session: Session, row: Group, users: Sequence[int]) -> None:
    members = (GroupMember.group_id == row.id, GroupMember.user_id.in_(users))
    session.execute(delete(GroupMember).where(*members))
    wake(session, changes.SUBJECT)
