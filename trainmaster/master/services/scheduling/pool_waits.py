"""How long jobs of a pool have waited in the queue lately."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation

LATELY = 30 * 86400  # seconds
JOBS = 100  # the last ones


def median_wait(session: Session, pool: str) -> tuple[float | None, int]:
    """Return the median seconds between the submission and the start of a pool's last jobs, None where there were none,
    and how many jobs that are."""
    a = Allocation.__table__.c
    began = a.leased_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 0, LATELY)
    waited = func.extract("epoch", a.leased_at - a.submitted_at).label("waited")
    last = select(waited).where(a.pool == pool, began, a.submitted_at.is_not(None)).order_by(a.leased_at.desc())
    jobs = last.limit(JOBS).subquery()
    query = select(func.percentile_cont(0.5).within_group(jobs.c.waited), func.count()).select_from(jobs)
    median, count = session.execute(query).one()
    return None if median is None else max(float(median), 0.0), int(count)
