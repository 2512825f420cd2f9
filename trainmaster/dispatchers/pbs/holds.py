"""Explains why a PBS job is held and who can release it, in words for its owner. Pure.

`qrls` releases the owner's hold unless -h names another one, so that the letters of Hold_Types show which command is
needed, and from whom: u its owner, o an operator, s a manager (qrls(1B)). PBS itself holds with s, and says why in the
comment (OpenPBS src/server/req_jobobit.c, req_runjob.c, svr_func.c).
"""

from __future__ import annotations

import re

from trainmaster.dispatchers.pbs.parse import PbsJob

_PASSWORD = "p"  # noqa: S105 the letter of a hold


def explain_hold(job: PbsJob) -> str:
    """Return one or two sentences on a job that is held."""
    where = f" on {job.nodes[0]}" if job.nodes else ""
    comment = " ".join(job.comment.split())
    release = _release(job)
    if "security breach of job tmpdir" in comment:
        return (
            f"Held by PBS: where it makes the job's temporary folder{where}, pbs.{job.job_id} was there already and "
            "belongs to another account: left by an older server that gave the same number, or put there. An "
            "administrator has to remove it (from /var/tmp, unless PBS_TMPDIR in pbs.conf or $tmpdir in "
            f"mom_priv/config names another folder); {release}."
        )
    if "too many failed attempts" in comment:
        return (
            f"Held by PBS after {job.run_count} attempts to start it: an administrator finds the reason in mom_logs of "
            f"PBS's folder on the nodes; {release}."
        )
    if "provisioning" in comment.lower():
        return (
            f"Held by PBS: its nodes could not be set up (provisioning). An administrator has to fix that; {release}."
        )
    if _PASSWORD in job.holds:
        return f"Held by PBS, which needs its owner's password (pbs_password); {release}."
    if hook := re.search(r"Job held by '([^']*)' hook", comment):
        return f"Held by the site's hook {hook[1]}; {release}."
    if person := re.search(r"Job held by (\S+) on ", comment):
        return f"Held by {person[1]}; {release}."
    who = "an administrator" if set(job.holds) & set("os") else "its owner"
    suffix = f" PBS says: {comment.rstrip('.')}." if comment else ""
    return f"Held by {who}; {release}.{suffix}"


def _release(job: PbsJob) -> str:
    """Return how to release the job; every hold must be released."""
    letters = "".join(letter for letter in "uosp" if letter in job.holds)
    if letters in ("", "u"):
        return f"`qrls {job.job_id}` lets it go on"
    who = "a manager of PBS" if set(letters) & set("sp") else "an operator of PBS"
    return f"`qrls -h {letters} {job.job_id}` by {who} lets it go on"
