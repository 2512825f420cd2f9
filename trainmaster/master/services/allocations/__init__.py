"""The life of allocations: leases, barriers, preemption requests, and how they end."""
