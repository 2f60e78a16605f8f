"""Exceptions of the package: one class for each kind of failure that a program may treat differently."""

from __future__ import annotations

SUCCESS = 0
IN_PROGRESS = 7


class TuttiError(RuntimeError):
    """An operation has failed.

    code: number of the library's result (``ncclResult_t``). rank: the calling rank, None where there is no
    communicator. text: the library's explanation. operation: what was called.
    """

    def __init__(self, code: int, rank: int | None, text: str, operation: str) -> None:
        where = "" if rank is None else f" on rank {rank}"
        super().__init__(f"{operation}{where}: {text}")
        self.code = code
        self.rank = rank
        self.text = text
        self.operation = operation

    def __reduce__(self) -> tuple[type[TuttiError], tuple[int, int | None, str, str]]:
        return type(self), (self.code, self.rank, self.text, self.operation)


class TuttiSystemError(TuttiError):
    """A call to the operating system has failed."""


class TuttiArgumentError(TuttiError, ValueError):
    """An argument has a value that it cannot have."""


class TuttiUsageError(TuttiError):
    """The call does not fit what was called before, here or on another rank."""


class TuttiRemoteError(TuttiError):
    """Another rank, or the way to it, is gone."""


class TuttiTimeout(TuttiError, TimeoutError):
    """A time limit ran out. The operation goes on; ``Communicator.abort`` ends it."""


_CLASSES = {2: TuttiSystemError, 4: TuttiArgumentError, 5: TuttiUsageError, 6: TuttiRemoteError, 8: TuttiTimeout}


def error(code: int, rank: int | None, text: str, operation: str) -> TuttiError:
    """The exception for a result of the library."""
    return _CLASSES.get(code, TuttiError)(code, rank, text, operation)
