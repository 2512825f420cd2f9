"""`python3 -m determined.launch.wrap_rank`: see `trainmaster.launchers.wrap_rank`."""

import sys

from trainmaster.launchers.wrap_rank import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
