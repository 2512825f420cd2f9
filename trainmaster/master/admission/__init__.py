"""Who waits, and for how long: connections, requests, reports, pages and passwords."""
