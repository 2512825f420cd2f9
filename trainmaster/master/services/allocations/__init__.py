"""Calls of jobs to the master (leases, reports, barriers, log lines, exits), and how allocations end."""
