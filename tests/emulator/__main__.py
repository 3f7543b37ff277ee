"""python -m tests.emulator --help."""

import sys

from .sweep import main

if __name__ == "__main__":  # worker processes import this file
    sys.exit(main())
