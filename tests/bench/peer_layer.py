"""The JIT peer (humming-kernels) as a list of calls on copies of one layer."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

N_MULTIPLE = 256
"""What its users pad n to before they call (vLLM does); it refuses some others."""


class PeerLayer:
    """One int4, group-128 layer with `copies` copies of its packed weights; n is padded."""

    def __init__(self, n: int, k: int, dtype: torch.dtype, copies: int) -> None:
        from humming.layer import HummingLayer

        n = -(-n // N_MULTIPLE) * N_MULTIPLE
        self.n = n
        config = {"dtype": "int4", "group_size": 128}
        self.layer = HummingLayer(
            shape_n=n, shape_k=k, weight_config=config, input_config=None, torch_dtype=dtype
        )
        self.layer = self.layer.cuda()
        self.layer.load_from_unquantized(torch.randn(n, k, device="cuda", dtype=dtype))
        self.layer.transform()
        names = ("weight", "weight_scale", "zero_point", "bias", "weight_scale_2")
        tensors = {name: getattr(self.layer, name, None) for name in names}
        self.weights = [
            {name: None if t is None else t.data.clone() for name, t in tensors.items()}
            for _ in range(copies)
        ]

    def first_call_ms(self, x: torch.Tensor) -> float:
        """Wall time of the first call of a shape: compilation where its cache is empty."""
        start = time.perf_counter()
        self.layer(x)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    def calls(self, x: torch.Tensor, copies: int) -> list[Callable[[], object]]:
        """One call per copy of the weights, into an output of its own."""
        from humming.forward import humming_forward

        out = torch.empty(x.shape[0], self.n, device=x.device, dtype=x.dtype)

        def call(weights: dict[str, torch.Tensor | None]) -> object:
            return humming_forward(
                self.layer.humming_config,
                inputs=x,
                input_scale=None,
                outputs=out,
                locks=self.layer.locks,
                **weights,
            )

        return [lambda w=w: call(w) for w in self.weights[:copies]]
