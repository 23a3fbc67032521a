"""`python -m recap run|race|bench|inspect`."""

import sys

from recap.cli import main

if __name__ == "__main__":
    sys.exit(main())
