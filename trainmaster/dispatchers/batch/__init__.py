"""Parts that the dispatchers for batch schedulers (Slurm, PBS) share.

    options      configuration keys that both have
    requests     the user's arguments for the submit command, chunks of job ids, an even spread over nodes
    client       runs the scheduler's commands: account, rate limit, errors
    messages     common failures of commands
    pools        cached partitions or queues
    dispatcher   checks of accounts, start scripts of containers, job folders

Nothing here depends on a scheduler, and there is no method to override: each dispatcher has its own `submit` and
`observe`, which call what they need from here.
"""
