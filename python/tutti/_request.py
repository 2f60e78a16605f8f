"""Requests: operations under way."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from . import _fast


class Request(_fast.Request):
    """An operation that was started and not waited for (``comm.start``).

    The arrays of the operation belong to it until it is complete: do not write to them, and do not read the result.
    A request may be dropped; its arrays stay until the operation is complete.

    >>> import tutti, array
    >>> comm, = tutti.Communicator.threads(1)
    >>> x = array.array("f", [1, 2])
    >>> request = comm.start.all_reduce(x)
    >>> request.wait(timeout=10) is x
    True
    >>> request.test()
    True
    >>> comm.close()
    """

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the operation is complete, `timeout` seconds at most, and returns its result array.

        TuttiTimeout: time is over; the operation goes on, and can be waited for again.
        """
        return self._wait(-1.0 if timeout is None else max(0.0, timeout))

    def __await__(self) -> Generator[Any, None, Any]:
        """`await request` in asyncio: other tasks run meanwhile."""
        return self._poll().__await__()

    async def _poll(self) -> Any:
        import asyncio  # a third of the time of importing the package

        pause = 0.0
        while not self.test():
            await asyncio.sleep(pause)
            pause = min(pause + 20e-6, 1e-3)
        return self._wait(-1.0)
