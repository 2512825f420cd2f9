"""Code that runs in the job before and around the user's process: lease, context, rendezvous, reports, preemption,
exit.

Python 3.8 or newer and its standard library only. The way through is `trainmaster.runtime.main`; the protocol is
described in ARCHITECTURE.md ("The job folder", "What the runtime says to the master").
"""
