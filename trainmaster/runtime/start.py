"""Entry point of a job: `__main__.py` of runtime.zip. Must also parse under Pythons that are too old for the rest.

Collection of garbage is off until all modules are imported (`main` turns it on: what was imported stays), and the
process ends without taking the interpreter apart: both are time that every trial would pay for.
"""

import gc
import os
import sys

if __name__ == "__main__":
    if sys.version_info < (3, 8):
        sys.exit("trainmaster: the job's image needs Python 3.8 or newer, this is " + sys.version.split()[0])
    gc.disable()
    from trainmaster.runtime.main import main

    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(status)
