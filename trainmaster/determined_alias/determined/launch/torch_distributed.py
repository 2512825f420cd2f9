"""`python3 -m determined.launch.torch_distributed`: see `trainmaster.launchers.torchrun`."""

import sys

from trainmaster.launchers.torchrun import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
