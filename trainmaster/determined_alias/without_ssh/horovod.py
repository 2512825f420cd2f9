"""`python3 -m determined.launch.horovod`: see `trainmaster.launchers.horovod`."""

import sys

from trainmaster.launchers.horovod import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
