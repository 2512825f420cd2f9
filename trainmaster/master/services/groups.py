"""Groups of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from trainmaster.master.db.access import Group, GroupMember
from trainmaster.master.db.tables import User
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import Store


@dataclass(frozen=True)
class GroupView:
    """`members` by name."""

    row: Group
    members: Sequence[User]


def search(store: Store, name: str, user_id: int | None, offset: int, limit: int) -> Page[tuple[Group, int]]:
    """Groups with their numbers of members, by name; `name` must fit exactly."""
    members = select(func.count()).where(GroupMember.group_id == Group.id).scalar_subquery()
    statement = select(Group, members)
    if name:
        statement = statement.where(Group.name == name)
    if user_id:
        mine = select(GroupMember.group_id).where(GroupMember.user_id == user_id)
        statement = statement.where(Group.id.in_(mine))
    with store.transaction() as session:
        total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
        window = cut(offset, limit, total)
        rows = session.execute(statement.order_by(Group.name).offset(window.start).limit(window.size)).tuples()
        return Page([(group, count) for group, count in rows], window)


def get(store: Store, group_id: int) -> GroupView:
    with store.transaction() as session:
        return _view(session, _find(session, group_id))


def create(store: Store, name: str, add: Sequence[int]) -> GroupView:
    with store.transaction() as session:
        row = Group(name=_free_name(session, name, None))
        session.add(row)
        session.flush()
        _add(session, row, add)
        return _view(session, row)


def update(store: Store, group_id: int, name: str | None, add: Sequence[int], remove: Sequence[int]) -> GroupView:
    with store.transaction() as session:
        row = _find(session, group_id, lock=True)
        if name is not None:
            row.name = _free_name(session, name, row.id)
        _add(session, row, add)
        members = (GroupMember.group_id == group_id, GroupMember.user_id.in_(remove))
        session.execute(delete(GroupMember).where(*members))
        return _view(session, row)


def remove(store: Store, group_id: int) -> None:
    """With the roles that it had."""
    with store.transaction() as session:
        session.delete(_find(session, group_id, lock=True))


def regroup(store: Store, users: Sequence[int], add: Sequence[int], remove: Sequence[int]) -> None:
    """Put users into groups, and take them out of others."""
    with store.transaction() as session:
        for group_id in sorted(set(add) | set(remove)):
            row = _find(session, group_id, lock=True)
            if group_id in add:
                _add(session, row, users)
            else:
                members = (GroupMember.group_id == group_id, GroupMember.user_id.in_(users))
                session.execute(delete(GroupMember).where(*members))


# -- inside -------------------------------------------------------------------------------------------------------


def _find(session: Session, group_id: int, *, lock: bool = False) -> Group:
    row = session.get(Group, group_id, with_for_update=lock)
    if row is None:
        raise NotFound(f"There is no group {group_id}.")
    return row


def _free_name(session: Session, name: str, mine: int | None) -> str:
    name = name.strip()
    if not name:
        raise Invalid("A group's name must not be empty.")
    taken = session.scalar(select(Group.id).where(Group.name == name))
    if taken not in (None, mine):
        raise Conflict(f"There is a group {name!r} already.")
    return name


def _add(session: Session, row: Group, users: Sequence[int]) -> None:
    known = set(session.scalars(select(User.id).where(User.id.in_(users))))
    if missing := set(users) - known:
        raise NotFound(f"There is no user {min(missing)}.")
    there = set(session.scalars(select(GroupMember.user_id).where(GroupMember.group_id == row.id)))
    session.add_all(GroupMember(group_id=row.id, user_id=user_id) for user_id in known - there)
    session.flush()


def _view(session: Session, row: Group) -> GroupView:
    session.flush()
    query = select(User).join(GroupMember, GroupMember.user_id == User.id).where(GroupMember.group_id == row.id)
    return GroupView(row, list(session.scalars(query.order_by(User.username))))
