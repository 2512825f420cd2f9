"""`python3 -m determined.launch.tensorflow [--port PORT] -- SCRIPT ARGS...`: `trainmaster.launchers.script --per-node`,
which sets TF_CONFIG. The ports are those of the job's rendezvous; one that is named is not needed."""

import sys
from typing import List

from trainmaster.launchers.script import main


def without_port(words: List[str]) -> List[str]:
    if words[:1] == ["--port"]:
        words = words[2:]
    elif words and words[0].startswith("--port="):
        words = words[1:]
    return words[1:] if words[:1] == ["--"] else words


if __name__ == "__main__":
    sys.exit(main(["--per-node", "--", *without_port(sys.argv[1:])]))
