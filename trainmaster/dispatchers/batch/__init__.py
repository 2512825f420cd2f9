"""What the dispatchers for batch schedulers (Slurm, PBS) share: the parts that are the same whatever a job is called.

    options      the keys of the configuration that both have
    arguments    reading the words that a user gives to the submit command
    resources, commands, endings    what the modules of these names have in common
    client       running the scheduler's commands: as whom, how fast, how often an odd line is told of
    failures     what is alike in how commands fail
    pools        partitions or queues as they were last seen
    dispatcher   who may submit, how a container starts, where job folders lie

Nothing here knows a scheduler, and there is no method to be overridden: each dispatcher's own `submit` and `observe`
show the way of a job, and take from here what they need.
"""
