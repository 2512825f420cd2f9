"""`python3 -m determined.launch.deepspeed`: see `trainmaster.launchers.deepspeed`."""

import sys

from trainmaster.launchers.deepspeed import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
