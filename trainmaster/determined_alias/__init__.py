"""`import determined` in jobs whose image does not have that package. Jobs find `determined` here, not this package.

determined    the package under its name
without_ssh   launchers that also take the place of those of the real package, because they need no SSH
"""
