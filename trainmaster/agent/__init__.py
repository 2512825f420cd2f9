"""The daemon on a plain Docker host: runs the containers that a master asks for, and nothing it was not asked for.

It keeps nothing that cannot be lost: containers carry labels that say whose they are, the master says which there
should be. It can be killed and started again at any time; containers go on meanwhile.
"""
