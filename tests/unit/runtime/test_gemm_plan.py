"""What a plan hands to the driver, for every schedule; its caches; what it refuses."""

import struct
import threading

import fake_packages as fake
import pytest
from stub_cuda import StubCuda, map_bytes

from humming_runtime.contract.arguments import GEMM_FIELDS, FieldKind, offsets
from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.driver import Driver
from humming_runtime.engine import Engine
from humming_runtime.errors import CaptureError, NoKernelError, UsageError
from humming_runtime.gemm_plan import MOST_SIZES, GemmPlan, WeightOperands

pytestmark = pytest.mark.usefixtures("launcher")
N, K = 4096, 4096
ACTIVATION, OUTPUT, STREAM = 0x7F00_0000_0000, 0x7F10_0000_0000, 0x55
OVERLAP = 6


def operands(text="f16_u4_g128f16", **changes):
    activation, weight, scale = text.split("_")
    given = {
        "op": "dense",
        "activation": activation,
        "weight_dtype": weight,
        "scale": ScaleScheme.parse(scale),
        "layout": "frag16",
        "n": N,
        "k": K,
        "groups": 32,
        "weight": 0x1_0000_0000,
        "weight_scale": 0x2_0000_0000,
    }
    return WeightOperands(**{**given, **changes})


def zero_operands():
    return operands("bf16_u4_g32zbf16", groups=128, weight_zero=0x3_0000_0000, bias=0x6_0000_0000)


def channel_operands():
    return operands(
        "f16_u4_chz", groups=1, weight_scale=0, weight_zero=0x3_0000_0000,
        channel_scale=0x4_0000_0000,
    )  # fmt: skip


def launch(plan, m, *, activation=ACTIVATION, **changes):
    stride = changes.pop("activation_stride", K)
    output_stride = changes.pop("output_stride", N)
    output = changes.pop("output", OUTPUT)
    plan.launch(m, activation, stride, output, output_stride, STREAM, **changes)


def fields(raw):
    """The struct by name; tensor maps as bytes."""
    formats = {FieldKind.POINTER: "<Q", FieldKind.INT64: "<q", FieldKind.INT32: "<i"}
    found = {}
    for field in GEMM_FIELDS:
        at = offsets()[field.name]
        if field.kind is FieldKind.TENSOR_MAP:
            found[field.name] = raw[at : at + 128] or bytes(128)
        else:
            found[field.name] = struct.unpack_from(formats[field.kind], raw, at)[0]
    return found


def given(raw):
    """Fields that are not zero."""
    return {
        name: value
        for name, value in fields(raw).items()
        if (any(value) if isinstance(value, bytes) else value)
    }


def test_decode_gets_pointers_and_no_map(engine, stub):
    launch(GemmPlan(operands(), 0, engine), 8, activation_stride=K + 64, output_stride=N + 8)
    [done] = stub.launches
    assert stub.maps == []
    assert stub.symbols == [fake.DECODE.replace("-", "__")]
    assert done.stream == STREAM
    assert done.block == (288, 1, 1)
    assert given(done.arguments) == {
        "activation": ACTIVATION,
        "weight": 0x1_0000_0000,
        "weight_scale": 0x2_0000_0000,
        "output": OUTPUT,
        "activation_stride": K + 64,
        "output_stride": N + 8,
        "m": 8,
        "n": N,
        "k": K,
        "groups": 32,
        "group_size": 128,
        "split_k": done.attributes.get(4, (1,))[0],
        "stages": given(done.arguments)["stages"],
    }
    assert 2 <= given(done.arguments)["stages"] <= 5


def test_prefill_gets_maps_of_weights_scales_and_activations(engine, stub):
    launch(GemmPlan(operands(), 0, engine), 500, activation_stride=K + 64)
    [done] = stub.launches
    weight, scale, activation = stub.maps
    assert (weight["address"], scale["address"]) == (0x1_0000_0000, 0x2_0000_0000)
    assert (activation["address"], activation["stride_bytes"]) == (ACTIVATION, 2 * K + 128)
    found = fields(done.arguments)
    assert found["weight_map"] == map_bytes(1)
    assert found["scale_map"] == map_bytes(2)
    assert found["activation_map"] == map_bytes(3)
    assert found["zero_map"] == bytes(128)


def test_grouped_zero_points_get_a_map_and_bias_its_pointer(engine, stub):
    launch(GemmPlan(zero_operands(), 0, engine), 64)
    found = fields(stub.launches[0].arguments)
    maps = ("weight_map", "scale_map", "zero_map", "activation_map")
    assert [found[name][0] for name in maps] == [1, 2, 3, 4]
    assert stub.maps[2]["address"] == found["weight_zero"] == 0x3_0000_0000
    assert found["bias"] == 0x6_0000_0000
    assert found["group_size"] == 32


def test_channel_scales_and_zero_points_are_pointers(engine, stub):
    launch(GemmPlan(channel_operands(), 0, engine), 64)
    found = fields(stub.launches[0].arguments)
    assert [m["address"] for m in stub.maps] == [0x1_0000_0000, ACTIVATION]
    assert (found["channel_scale"], found["weight_zero"]) == (0x4_0000_0000, 0x3_0000_0000)
    assert (found["weight_scale"], found["groups"], found["group_size"]) == (0, 1, 0)


def test_no_rows_are_no_launch_and_no_call(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    stub.calls.clear()
    launch(plan, 0)
    plan.prepare([0])
    assert stub.calls == []


def test_strides_mean_nothing_for_one_row(engine, stub):
    launch(GemmPlan(operands(), 0, engine), 1, activation_stride=1, output_stride=3)
    found = fields(stub.launches[0].arguments)
    assert (found["activation_stride"], found["output_stride"]) == (K, N)


def test_a_second_call_costs_two_driver_calls_and_encodes_only_what_moved(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    stub.contexts.append(0x1000)
    launch(plan, 500)
    stub.calls.clear()
    launch(plan, 500, output=OUTPUT + 4096)
    assert stub.calls == ["cuCtxGetCurrent", "cuLaunchKernelEx"]
    assert fields(stub.launches[-1].arguments)["output"] == OUTPUT + 4096
    stub.calls.clear()
    launch(plan, 500, activation=ACTIVATION + 4096)
    assert sorted(stub.calls) == ["cuCtxGetCurrent", "cuLaunchKernelEx", "cuTensorMapEncodeTiled"]
    found = fields(stub.launches[-1].arguments)
    assert found["activation"] == ACTIVATION + 4096
    assert found["activation_map"] == map_bytes(4)
    launch(plan, 500, activation=ACTIVATION + 4096, activation_stride=K + 8)
    assert stub.maps[-1]["stride_bytes"] == 2 * K + 16


def test_weight_maps_are_encoded_once_a_tile_n(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    for m in (400, 500, 600):
        launch(plan, m)
    assert [entry["address"] for entry in stub.maps].count(0x1_0000_0000) == 1


def test_a_bias_of_the_call_does_not_stay(engine, stub):
    plan = GemmPlan(zero_operands(), 0, engine)
    for bias in (0x7_0000_0000, None, 0):
        launch(plan, 64, bias=bias)
    biases = [fields(done.arguments)["bias"] for done in stub.launches]
    assert biases == [0x7_0000_0000, 0x6_0000_0000, 0]


def test_only_kernels_that_wait_for_their_predecessor_overlap_with_it(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    for m in (8, 500):
        launch(plan, m)
        launch(plan, m, overlap=False)
    assert [OVERLAP in done.attributes for done in stub.launches] == [True, False, True, False]
    engine.force = fake.TEST_TARGET  # multistage reads its activations at once
    launch(plan, 8)
    assert OVERLAP not in stub.launches[-1].attributes


def test_nothing_overlaps_before_capability_9(tmp_path):
    folder = fake.write_package(tmp_path, [fake.MULTISTAGE])
    from humming_runtime.discover import discover

    stub = StubCuda(((8, 0),))
    launch(GemmPlan(operands(), 0, Engine(discover(str(folder)), Driver(stub))), 8)
    assert stub.launches[0].attributes == {}


def test_the_cache_of_sizes_is_bounded_and_kernels_stay_loaded(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    for m in range(9, 9 + 3 * MOST_SIZES):
        launch(plan, m)
    assert len(plan._ready) == MOST_SIZES
    assert len(stub.images) == 1
    launch(plan, 9)
    assert len(plan._ready) == MOST_SIZES
    assert fields(stub.launches[-1].arguments)["m"] == 9
    assert engine.launches() == {fake.PREFILL: 3 * MOST_SIZES + 1}


def test_an_unloaded_kernel_is_refused_inside_a_capture_and_nothing_is_left_half_done(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    stub.capturing.add(STREAM)
    with pytest.raises(CaptureError, match="hint: call prepare"):
        launch(plan, 8)
    assert stub.images == []
    assert stub.launches == []
    stub.capturing.clear()
    launch(plan, 8)
    assert len(stub.launches) == 1


def test_what_is_prepared_runs_inside_a_capture(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    plan.prepare([1, 8, 500])
    stub.capturing.add(STREAM)
    for m in (1, 8, 500):
        launch(plan, m)
    launch(plan, 501)  # another size, the same kernel
    assert len(stub.launches) == 4


def test_a_kernel_that_another_layer_loaded_runs_inside_a_capture(engine, stub):
    launch(GemmPlan(operands(), 0, engine), 8)
    stub.capturing.add(STREAM)
    launch(GemmPlan(operands(weight=0x9_0000_0000), 0, engine), 8)
    assert len(stub.images) == 1
    assert len(stub.launches) == 2


def test_each_device_has_its_own_handle(installed):
    stub = StubCuda(((9, 0), (9, 0)))
    engine = Engine(installed, Driver(stub))
    for ordinal in (0, 1, 0):
        launch(GemmPlan(operands(), ordinal, engine), 8)
    assert [done.context for done in stub.launches] == [0x1000, 0x1001, 0x1000]
    assert stub.launches[0].function == stub.launches[2].function != stub.launches[1].function


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 12}, r"n: no positive multiple of 8 \(12\)"),
        ({"k": 0}, r"k: no positive multiple of 8 \(0\)"),
        ({"groups": 31}, "groups: 31, but k 4096 and scale g128f16 store 32"),
        ({"weight": 0}, "weight: missing, format f16_u4_g128f16 needs it"),
        ({"weight_scale": 0}, "weight_scale: missing"),
        ({"weight": 0x1008}, r"weight: address is no multiple of 16 \(0x1008\)"),
        ({"bias": 0x1001}, r"bias: address is no multiple of 2 \(0x1001\)"),
    ],
)
def test_operands_that_no_kernel_takes_are_refused_at_once(engine, changes, message):
    with pytest.raises(UsageError, match=message):
        GemmPlan(operands(**changes), 0, engine)


def test_zero_points_and_channel_scales_are_asked_for_where_the_format_has_them(engine):
    with pytest.raises(UsageError, match="weight_zero: missing"):
        GemmPlan(operands("bf16_u4_g32zbf16", groups=128), 0, engine)
    with pytest.raises(UsageError, match="channel_scale: missing"):
        GemmPlan(operands("f16_u4_ch", groups=1), 0, engine)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": ACTIVATION + 8}, "activation: address is no multiple of 16"),
        ({"output": OUTPUT + 2}, "output: address is no multiple of 16"),
        ({"activation_stride": K + 4}, r"activation: row stride is no multiple of 8 \(4100\)"),
        ({"output_stride": N + 1}, r"output: row stride is no multiple of 8 \(4097\)"),
        ({"activation_stride": 0}, r"activation: row stride 0 is less than k \(4096\)"),
        ({"output_stride": N - 8}, r"output: row stride 4088 is less than n \(4096\)"),
        ({"activation_stride": -K}, "activation: row stride -4096 is less than k"),
    ],
)
def test_calls_that_no_kernel_takes_are_refused_with_the_value(engine, stub, changes, message):
    plan = GemmPlan(operands(), 0, engine)
    with pytest.raises(UsageError, match=message):
        launch(plan, 8, **changes)
    assert stub.launches == []


@pytest.mark.parametrize("m", [-1, 2**31])
def test_an_impossible_number_of_rows_is_refused(engine, m):
    with pytest.raises(UsageError, match=r"m: out of range"):
        launch(GemmPlan(operands(), 0, engine), m)


def test_a_format_without_kernels_is_an_error_that_names_the_package(engine):
    plan = GemmPlan(operands("f16_u4_g64f16", groups=64), 0, engine)
    with pytest.raises(NoKernelError, match="humming-cubins-sm90-cu13"):
        launch(plan, 8)


def test_threads_share_a_plan_and_mix_no_arguments(engine, stub):
    plan = GemmPlan(operands(), 0, engine)
    calls = 300

    def work(number):
        for i in range(calls):
            offset = (number * calls + i) * 4096
            m = (8, 500)[i % 2]
            launch(plan, m, activation=ACTIVATION + offset, output=OUTPUT + offset)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = set()
    for done in stub.launches:
        found = fields(done.arguments)
        assert found["activation"] - ACTIVATION == found["output"] - OUTPUT
        seen.add(found["output"])
        if found["m"] == 500:
            number = found["activation_map"][0]
            addresses = {e["address"] for e in stub.maps[(number - 1) % 256 :: 256]}
            assert found["activation"] in addresses
    assert len(seen) == 6 * calls
    assert sum(engine.launches().values()) == 6 * calls


def test_the_kernel_of_a_size_can_be_asked_for(engine):
    plan = GemmPlan(operands(), 0, engine)
    assert plan.kernel(8) == fake.DECODE
    assert plan.kernel(9) == fake.PREFILL
