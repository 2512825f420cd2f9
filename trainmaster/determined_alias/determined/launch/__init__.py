"""`determined.launch`: see `trainmaster.launchers`."""

import os

# Those that also take the place of the real package's own.
__path__.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "without_ssh"))
