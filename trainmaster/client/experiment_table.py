"""The table of experiments, as the web page shows it: chosen columns, filtered by one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainmaster.client.resource import Resource

_AT_ONCE = 5000  # rows of one call


class ExperimentTable(Resource):
    """Calls that read experiments as rows; a part of `Master`."""

    def find(
        self, line: str = "", *, sort: str = "", columns: Sequence[str] = (), limit: int | None = None
    ) -> list[dict[str, Any]]:
        """Find experiments by one line of text, and read only the columns that are asked for.

        Args:
            line: The filter, such as `state:running val_loss<0.3 user:me "two words" started<7d`.
            sort: Columns with commas, a minus before a falling one; the newest come first without it.
            columns: Names as name, trials, best, started; metrics by their names, hyperparameters as `hp.lr`.
            limit: Rows at most; None for all.

        Returns:
            The rows by column, with id and state whatever is asked for. Times are seconds since 1970.

        Raises:
            APIError: The line, the order or a column cannot be read.
        """
        rows: list[dict[str, Any]] = []
        while True:
            size = _AT_ONCE if limit is None else min(_AT_ONCE, limit - len(rows))
            query = {
                "filter": line,
                "sort": sort,
                "columns": ",".join(columns),
                "offset": len(rows),
                "limit": size,
            }
            answer = self._http.request("GET", "/api/x1/experiments/table", query=query)
            rows += [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
            if not answer["rows"] or len(rows) >= min(answer["total"], limit or answer["total"]):
                return rows
