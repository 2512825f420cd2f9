"""Daemon on a plain Docker host: runs the containers that a master orders, and no others.

It keeps no state that cannot be lost: labels on the containers name their jobs, and the master sends the list of
containers that should run. The daemon can be killed and restarted at any time; its containers keep running.
"""
