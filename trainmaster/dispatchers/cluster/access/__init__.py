"""Access to a cluster's commands and job folders, in one of three ways that the configuration chooses.

(a) on this machine as the master's own account; (b) on this machine as the job's user, by sudo and one small program
(`helper.py`); (c) over SSH, with paramiko or the system's OpenSSH, where the same program runs at the far end, as the
account that logs in, as each job's user by a login of their own, or as that user by sudo there.

For authors of dispatchers::

    from trainmaster.dispatchers.cluster.access.config import AccessOptions
    from trainmaster.dispatchers.cluster.access.access import make_access

    class Options(AccessOptions):             # `ssh`, `impersonation`, `helper`, `require_user_link`, `external_jobs`
        ...                                   # the dispatcher's own keys

    access = make_access(options, setup.job_root, environment={"SLURM_CONF": ...}, path=options.job_path)
    access.here                               # True: files and programs of this machine are the cluster's
    access.objection(spec.user)               # why jobs cannot run as that user; None when they can
    access.folder(token, spec.user).stage(files)
    outcome = access.shell(spec.user).run(argv, stdin=script, deadline=150)
    error = outcome.way_failure(token, repeatable=False)    # Rejected, Unreachable, Ambiguous: raise it if there is one
    access.name(owner)                        # for `Observation.user`: None for the master's own account
    access.by_user(refs)                      # groups of jobs that one account may cancel or signal
    access.announce(url)                      # for `base.Announces`
    access.problems()                         # for `probe`
    access.close()

Commands that only query (squeue, qstat) run as the master's own account: `access.shell()`.
"""
