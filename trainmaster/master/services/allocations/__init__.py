"""What jobs say to the master: leases, reports, barriers, log lines and exits; and how allocations end."""
