"""What ends gpu_session before anything is begun: a line, and status 2."""

import sys


def fail(what, value, why, expected):
    """Ends gpu_session: which argument, its value, what is wrong with it, and what it should be."""
    print(" ".join(f"gpu_session: {what} {value}: {why}; expected: {expected}".split()), file=sys.stderr)
    sys.exit(2)
