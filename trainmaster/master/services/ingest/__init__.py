"""What jobs report, on its way into the database: calls, their streams of records, and what each record holds.

`calls` takes the reports of many jobs in one transaction, or of one job alone; `single_calls` takes reports that the
published harness makes one by one. `records` dispatches on the kind of a record; `metrics`, `checkpoints`, `logs` and
`exits` store each kind.
"""
