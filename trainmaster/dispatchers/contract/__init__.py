"""The contract of dispatchers in its parts. Plugins import all of it from `trainmaster.dispatchers.base`.

dispatcher   the methods of a dispatcher
values       jobs, pools and what else the methods take and return
errors       what they raise
agents       what a dispatcher that runs jobs through our agents can do besides; no plugin needs it
"""
