"""What tests share: masters, clusters and other real parts to run against, and programs for them to run."""
