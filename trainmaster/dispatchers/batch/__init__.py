"""Parts that the dispatchers for batch schedulers (Slurm, PBS) share.

    options      configuration keys that both have
    arguments    parsing of the user's arguments for the submit command
    resources, commands, endings    code that the modules of these names share
    client       runs the scheduler's commands: account, rate limit, errors
    failures     common failures of commands
    pools        cached partitions or queues
    dispatcher   checks of accounts, start scripts of containers, job folders

Nothing here depends on a scheduler, and there is no method to override: each dispatcher has its own `submit` and
`observe`, which call what they need from here.
"""
