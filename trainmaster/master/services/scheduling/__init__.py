"""Hands allocations to schedulers and takes in what schedulers report of them."""
