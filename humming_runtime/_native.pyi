"""The extension of native/*.c; see its docstrings."""

from collections.abc import Callable
from typing import Any

class Launch:
    def __new__(
        cls,
        driver: tuple[int, ...],
        kernel: tuple[int, int],
        shape: tuple[int, int, int, int, bool],
        template: bytes,
        offsets: tuple[int, ...],
        map: tuple[int, ...],  # noqa: A002
        counter: object,
        cell: int,
        /,
    ) -> Launch: ...
    def launch(
        self,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        bias: int | None,
        stream: int,
        overlap: bool,
        /,
    ) -> tuple[str, int] | None: ...

class TensorCall:
    def __new__(
        cls,
        exchange: object,
        tensor_type: type,
        dispatch_depth: Callable[[], int],
        weights: tuple[Any, ...],
        tracked: bool,
        device: tuple[int, int],
        dtype: tuple[int, int],
        size: tuple[int, int],
        /,
    ) -> TensorCall: ...
    def run(
        self, x: Any, out: Any, bias: Any, parts: tuple[Any, ...], /
    ) -> bool | tuple[str, int]: ...
    def add(self, m: int, launch: Any, choice: int, /) -> None: ...
    def note(self, versions: tuple[int, ...], stream: int, /) -> None: ...
    def forget(self) -> None: ...

def generation() -> int: ...
def invalidate() -> None: ...
