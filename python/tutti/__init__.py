"""Tutti: collective operations between processes and threads, on arrays in host memory.

>>> import tutti, array
>>> with tutti.Communicator.from_env() as comm:
...     comm.all_reduce(array.array("f", [1, 2, 3]))
array('f', [1.0, 2.0, 3.0])

docs/python.md of the project is the guide.
"""

from ._arrays import alloc
from ._communicator import Communicator, Op, group
from ._errors import (
    TuttiArgumentError,
    TuttiError,
    TuttiRemoteError,
    TuttiSystemError,
    TuttiTimeout,
    TuttiUsageError,
)
from ._library import unique_id, version
from ._request import Request
from ._window import Window

__all__ = [
    "Communicator",
    "Op",
    "Request",
    "TuttiArgumentError",
    "TuttiError",
    "TuttiRemoteError",
    "TuttiSystemError",
    "TuttiTimeout",
    "TuttiUsageError",
    "Window",
    "alloc",
    "group",
    "unique_id",
    "version",
]
