"""Run by test_processes_gpu.py in a process of its own: one layer, multiplied and compared."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/runtime"))


def multiply(device="cuda"):
    """Relative error of one product. The kernels are those of the environment."""
    import torch

    from humming_runtime.discover import discover
    from humming_runtime.measure.random_layer import dequantized, random_packed
    from humming_runtime.measure.tune import parse_format
    from humming_runtime.torch_layer import matmul

    formats = {v.format for package in discover().packages for _, v in package.kernels}
    form = next(f for f in ("f16_u4_g128f16", "f16_u4_ch", *sorted(formats)) if f in formats)
    packed = random_packed(parse_format(form), 264, 1000)
    x = torch.randn(5, 1000, device=device, dtype=packed.form.activation_dtype)
    with torch.no_grad():
        got = matmul(x, packed).float()
    wanted = x.float() @ dequantized(packed)
    return float((got - wanted).abs().max() / wanted.abs().max())


def main():
    what = sys.argv[1]
    if what == "strict":
        import torch
        from strict_child import trap

        torch.cuda.init()
        sys.addaudithook(trap)
    elif what == "fork":
        import os

        import humming_runtime.torch_layer  # noqa: F401  touches no device

        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    error = multiply()
    sys.stdout.write(f"error {error}\n")
    sys.exit(0 if error < 0.01 else 1)


if __name__ == "__main__":
    main()
