"""No container: the job's process runs on the node as it is."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.containers.base import Start
from trainmaster.templates import render


class NoContainer:
    """Run the process directly, with a private folder for temporary files."""

    name = "none"

    def start_script(self, start: Start) -> str:
        return render(
            "start_none.sh.j2",
            job_folder=start.job_folder,
            scratch=list(start.scratch),
            variables=sorted(start.variables.items()),
            command=start.process,
        )

    def check(self, image: str) -> Sequence[str]:
        """Nothing can be wrong with an image that is not used."""
        del image
        return ()
