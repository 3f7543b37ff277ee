"""Packing on the GPU gives the bytes that packing on the CPU gives, within the stated memory."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from reference import random_layer  # noqa: E402

from humming_runtime.torch_layer import pack_codes, packing, unpack  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_a_device():
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")


def packed_of(layer, device):
    return pack_codes(
        layer.codes,
        layer.scale,
        layer.zero,
        group_size=layer.group_size,
        activation=layer.activation,
        device=device,
    )


@pytest.mark.parametrize(("n", "k"), [(8, 8), (24, 80), (2112, 320), (7392, 2880)])
@pytest.mark.parametrize("group_size", [None, 32, 128])
@pytest.mark.parametrize("activation", [torch.float16, torch.bfloat16])
def test_both_devices_agree_and_unpacking_gives_it_back(n, k, group_size, activation):
    generator = torch.Generator().manual_seed(n + k)
    layer = random_layer(n, k, group_size, activation, zero_point=True, generator=generator)
    there, here = packed_of(layer, "cuda"), packed_of(layer, "cpu")
    for name, tensor in here.parts().items():
        assert torch.equal(there.parts()[name].cpu(), tensor), name
    found = unpack(there)
    assert torch.equal(found.codes.cpu(), layer.codes)
    assert torch.equal(found.zero.cpu(), layer.zero)
    assert torch.equal(found.scale.cpu().to(activation), layer.scale)


def peak_beside(call, kept):
    """Peak of GPU memory above what was allocated and what `kept` says of the result."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before - kept(result)


@pytest.mark.parametrize("source", ["cuda", "cpu"])
def test_memory_is_bounded_whatever_the_size(source):
    generator = torch.Generator(source).manual_seed(1)
    layer = random_layer(16384, 16384, 128, torch.float16, zero_point=True, generator=generator)
    allowed = packing.PEAK_CODES_PER_CHUNK * packing.CHUNK_BYTES
    packed, extra = peak_beside(lambda: packed_of(layer, "cuda"), lambda p: p.size_bytes)
    assert extra <= allowed
    _, extra = peak_beside(
        lambda: unpack(packed), lambda u: u.codes.nbytes + 2 * (u.scale.nbytes + u.zero.nbytes)
    )
    assert extra <= allowed
