"""The real parts that tests run against: a Slurm cluster on one machine, Apptainer and container images.

`scripts/cluster` is the same code as a command for people. Standard library only, so that it runs before
anything is installed.
"""
