"""Support code for tests: masters, clusters and other real parts to run against, and programs to run on them."""
