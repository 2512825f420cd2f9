"""The Slurm cluster of the tests: namespaces as nodes, accounts, container images; `scripts/cluster` drives it."""
