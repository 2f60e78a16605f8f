from collections.abc import Callable, Sequence
from typing import Any

class Request:
    def _wait(self, seconds: float) -> Any: ...
    def test(self) -> bool:
        """Is the operation complete? Never waits. Raises the operation's error."""

class Comm:
    _handle: int
    _stream: int
    _rank: int
    _size: int
    _timeout: float
    def _bind(self, handle: int, stream: int, rank: int, nranks: int, /) -> None: ...
    def _ends(self, code: int, text: str, /) -> bool: ...
    def _call(self, function: int, send: Any, recv: Any, op: int, root: int, wait: bool, /) -> Any: ...
    def _call_v(
        self,
        function: int,
        send: Any,
        recv: Any,
        op: int,
        root: int,
        wait: bool,
        send_counts: Sequence[int] | None,
        send_displs: Sequence[int] | None,
        recv_counts: Sequence[int] | None,
        recv_displs: Sequence[int] | None,
        /,
    ) -> Any: ...
    def _queued(self, what: str, result: Any, wait: bool, /) -> Any: ...

def load(path: str, fail: Callable[..., None], /) -> None: ...
def setup(describe: Callable[[object], tuple[Any, int, int] | None], request: type[Request], /) -> None: ...
def memory(array: Any, role: str, writes: bool, /) -> tuple[int, int, Any]: ...
def group_start() -> None: ...
def group_end() -> list[Any]: ...
