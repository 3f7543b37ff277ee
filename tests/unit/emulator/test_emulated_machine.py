"""Small PTX kernels by hand: divergence, barriers, copies, and the faults that are reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from emulator import (  # noqa: E402
    DeadlockError,
    EmulationError,
    GlobalMemory,
    Launch,
    Machine,
    PtxError,
    parse,
    translate,
)

HEAD = """
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry kernel(.param .u64 kernel_param_0, .param .u64 kernel_param_1)
{
.reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<30>; .reg .f32 %f<9>; .reg .b64 %rd<20>;
ld.param.u64 %rd1, [kernel_param_0];
ld.param.u64 %rd2, [kernel_param_1];
cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
"""
STORE = "st.global.u32 [%rd5], %r2;\nret;\n}"


def run(
    body: str,
    *,
    threads=64,
    grid=1,
    cluster=1,
    shared=1024,
    seed=0,
    values=None,
    head=HEAD,
    **options,
):
    """The words that the kernel wrote, one a thread."""
    memory = GlobalMemory(1 << 16)
    count = threads * grid
    given = np.arange(count, dtype=np.uint32) if values is None else values
    source = memory.upload("source", given)
    out = memory.allocate("out", count * 4)
    launch = Launch(
        np.array([source, out], np.uint64).tobytes(),
        grid,
        threads,
        shared_bytes=shared,
        cluster=cluster,
    )
    Machine(translate(parse(head + body)), memory, launch, seed, **options).run()
    return memory.bytes_at(out, count * 4).view(np.uint32).copy()


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_lanes_that_diverge_meet_again(seed):
    body = """
    mov.u32 %r2, 0; and.b32 %r3, %r1, 7;
    LOOP: setp.ge.u32 %p1, %r2, %r3; @%p1 bra OUT; add.s32 %r2, %r2, 1; bra LOOP;
    OUT: vote.sync.ballot.b32 %r4, %p1, -1; @!%p1 add.s32 %r2, %r2, 100;
    popc.b32 %r4, %r4; add.s32 %r2, %r2, %r4;
    """
    assert (run(body + STORE, seed=seed) == np.arange(64) % 8 + 32).all()


def test_scopes_have_registers_and_labels_of_their_own():
    body = """
    mov.u32 %r2, 1;
    { .reg .b32 x; mov.u32 x, 5; L: add.s32 %r2, %r2, x; }
    { .reg .b32 x; mov.u32 x, 7; L: add.s32 %r2, %r2, x; }
    """
    assert (run(body + STORE) == 13).all()


EXCHANGE = """
    mov.u32 %r3, dynamic; shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4; st.shared.u32 [%r5], %r1;
    {barrier}
    xor.b32 %r6, %r4, 252; add.s32 %r6, %r3, %r6; ld.shared.u32 %r2, [%r6];
"""


@pytest.mark.parametrize("seed", [None, 1])
def test_a_barrier_orders_and_its_absence_is_a_race(seed):
    with_barrier = EXCHANGE.replace("{barrier}", "bar.sync 0;")
    assert (run(with_barrier + STORE, seed=seed) == 63 - np.arange(64)).all()
    with pytest.raises(EmulationError, match=r"race|never written"):
        run(EXCHANGE.replace("{barrier}", "") + STORE, seed=seed, strict_shared=True)


def test_a_barrier_that_one_warp_misses_is_a_deadlock():
    body = (
        "setp.lt.u32 %p1, %r1, 32; @%p1 bra SKIP; bar.sync 1, 64; SKIP: mov.u32 %r2, 0; bar.sync 0;"
    )
    with pytest.raises(
        DeadlockError, match=r"warp 0.*barrier 0 \(32 of 64(.|\n)*warp 1.*barrier 1 \(32 of 64"
    ):
        run(body + STORE)


READ = "ld.shared.u32 %r2, [%r3];"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ld.global.u32 %r2, [%rd4+4096];", "outside of every buffer"),
        ("ld.global.u32 %r2, [%rd4+2];", "misaligned"),
        ("ld.global.u32 %r2, [%rd5];", "never written"),
        ("mov.u32 %r3, dynamic; ld.shared.u32 %r2, [%r3+4096];", "out of bounds"),
        ("mov.u32 %r3, 4; ld.shared.u32 %r2, [%r3];", "outside of every buffer"),
        ("mov.u32 %r3, dynamic; ld.shared.u32 %r2, [%r3];", "never written"),
        (
            "mov.u32 %r3, dynamic; cp.async.ca.shared.global [%r3], [%rd1], 4;" + READ,
            "race|in flight",
        ),
        ("mov.u32 %r3, dynamic; mbarrier.arrive.shared.b64 _, [%r3];", "no initialised mbarrier"),
    ],
)
def test_accesses_that_are_refused(line, message):
    with pytest.raises(EmulationError, match=message) as caught:
        run(line + STORE, strict_shared=True)
    assert "PTX line" in str(caught.value)
    assert "thread" in str(caught.value)


def test_an_unknown_instruction_is_named():
    with pytest.raises(PtxError, match=r"tcgen05\.mma.*unknown instruction"):
        run("tcgen05.mma.cta_group::1.kind::f16 %r2, %r1;" + STORE)


BULK = """
    mov.u32 %r3, dynamic; add.s32 %r4, %r3, 512; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY; mbarrier.init.shared::cta.b64 [%r4], 1;
    READY: bar.sync 0; @%p1 bra ASKED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 256, [%r4];
    ASKED: {wait}
    shl.b32 %r5, %r1, 2; add.s32 %r5, %r3, %r5; ld.shared.u32 %r2, [%r5];
"""
WAIT = (
    "{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%r4], 0; @p bra D; bra W; D: }"
)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_bulk_copy_is_there_after_the_wait_and_not_before(seed):
    assert (run(BULK.replace("{wait}", WAIT) + STORE, seed=seed) == np.arange(64)).all()
    with pytest.raises(EmulationError, match=r"race|in flight"):
        run(BULK.replace("{wait}", "") + STORE, seed=seed)


def test_other_shared_memory_of_a_cluster():
    body = """
    mov.u32 %r3, dynamic; mov.u32 %r7, %cluster_ctarank; shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4;
    mad.lo.s32 %r6, %r7, 1000, %r1; st.shared.u32 [%r5], %r6;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    xor.b32 %r7, %r7, 1; mapa.shared::cluster.u32 %r8, %r5, %r7; ld.shared::cluster.u32 %r2, [%r8];
    mov.u32 %r9, %ctaid.x; shl.b32 %r9, %r9, 8; cvt.u64.u32 %rd6, %r9; add.s64 %rd5, %rd5, %rd6;
    """
    ended = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    for seed in (None, 1, 2):
        got = run(body + ended + STORE, grid=2, cluster=2, seed=seed)
        assert (got == np.concatenate([1000 + np.arange(64), np.arange(64)])).all()
    # without the last barrier one CTA may end before the other one reads
    with pytest.raises(EmulationError, match="has exited"):
        _run_often(body + STORE)


def _run_often(body: str) -> None:
    for seed in range(20):
        run(body, grid=2, cluster=2, seed=seed)


def test_shuffles_and_conversions():
    body = """
    shfl.sync.bfly.b32 %r3|%p1, %r1, 1, 31, -1; cvt.rn.f32.u32 %f1, %r3;
    mul.f32 %f1, %f1, 0f3F000000;
    cvt.rn.f16.f32 %rs1, %f1; mov.b32 %r4, {%rs1, %rs1}; add.f16x2 %r4, %r4, %r4;
    mov.b32 {%rs2, %rs3}, %r4; cvt.f32.f16 %f2, %rs3; cvt.rzi.u32.f32 %r2, %f2;
    """
    assert (run(body + STORE) == np.arange(64) ^ 1).all()


def test_tables_of_the_module_and_generic_addresses():
    table = (
        ".const .align 4 .u32 table[4] = {5, 0x10, -1};\n.global .align 4 .b8 more[4] = {1, 2};\n"
    )
    body = """
    and.b32 %r3, %r1, 3; mul.wide.u32 %rd6, %r3, 4; mov.u64 %rd7, table; add.s64 %rd7, %rd7, %rd6;
    ld.const.u32 %r2, [%rd7]; ld.global.u8 %r4, [more+1]; add.s32 %r2, %r2, %r4;
    mov.u32 %r5, dynamic; cvt.u64.u32 %rd9, %r5; cvta.shared.u64 %rd9, %rd9;
    add.s64 %rd9, %rd9, %rd3; st.u32 [%rd9], %r2; cvta.to.shared.u64 %rd10, %rd9;
    cvt.u32.u64 %r6, %rd10; ld.shared.u32 %r7, [%r6]; ld.u32 %r8, [%rd4]; add.s32 %r2, %r7, %r8;
    """
    got = run(body + STORE, head=HEAD.replace(".extern", table + ".extern"))
    assert (got == np.uint32([7, 18, 1, 2])[np.arange(64) % 4] + np.arange(64)).all()


def test_local_memory_is_each_threads_own():
    body = """
    .local .align 8 .b8 depot[20];
    mov.u64 %rd6, depot; cvta.local.u64 %rd7, %rd6; st.local.u32 [%rd6+4], %r1; bar.sync 0;
    ld.u32 %r2, [%rd7+4]; setp.lt.u32 %p1, %r1, 40; @%p1 st.u32 [%rd7+8], %r1;
    @%p1 ld.local.v2.u32 {%r3, %r4}, [%rd6+8]; @%p1 add.s32 %r2, %r2, %r3;
    """
    with pytest.raises(EmulationError, match="never written"):
        run(body + STORE)
    lanes = np.arange(64)
    wanted = np.where(lanes < 40, 2 * lanes, lanes)
    assert (run(body.replace("v2.u32 {%r3, %r4}", "u32 %r3") + STORE) == wanted).all()
