"""A grid on the emulated device: clusters of CTAs, warps that take turns, copies that take time.

Warps run a few segments each, in turn; with a seed the order, the length of a turn and the delays
of copies are random. A copy may be held back until nothing else can run, so a missing wait shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .memory import MODULE_BASE, OUTSIDE, UNWRITTEN, VALID, DeviceError, GlobalMemory, Memory
from .races import ClusterClocks, SharedAccesses
from .synchronisation import ClusterBarrier, CtaBarriers, MemoryBarrier
from .translate import LANES, Program

MOST_TURNS = 1_000_000
_LONG_DELAY = 400
_LANE = np.arange(LANES, dtype=np.uint32)
_ALL = np.ones(LANES, bool)
_ALL.flags.writeable = False


class EmulationError(Exception):
    """A fault of the kernel, with its place."""


class DeadlockError(EmulationError):
    """Nothing can go on."""


@dataclass
class Launch:
    """What a launch gives besides the kernel. ready: buffers that the preceding kernel writes, as
    (address, bytes): unreadable before griddepcontrol.wait has returned somewhere.
    """

    parameters: bytes
    grid: int
    threads: int
    shared_bytes: int = 0
    cluster: int = 1
    tensor_maps: dict[bytes, object] = field(default_factory=dict)
    late_inputs: tuple[tuple[int, int], ...] = ()


class Fragment:
    """Lanes of a warp at one place. why: what they wait for; version: of the machine then."""

    __slots__ = ("converging", "full", "mask", "place", "token", "version", "why")

    def __init__(self, place: int, mask: np.ndarray) -> None:
        self.place = place
        self.mask = mask
        self.full = bool(mask.all())
        self.why: str | None = None
        self.version = -1
        self.converging = False
        self.token: object | None = None


class Warp:
    """32 threads: registers, fragments, and copies that it has started."""

    def __init__(self, cta: Cta, index: int) -> None:
        self.cta, self.index = cta, index
        self.machine = cta.machine
        program = self.machine.program
        live = index * LANES + _LANE < self.machine.launch.threads
        self.live = live
        self.fragments = [Fragment(0, live)]
        zeros = {
            bits: np.zeros(LANES, f"u{bits // 8}" if bits > 1 else bool)
            for bits in (1, 8, 16, 32, 64)
        }
        self.registers = [zeros[r.bits] for r in program.kernel.registers]
        self.special = cta.special_registers(index)
        self.local = Memory("local", max(16, program.layout.local_bytes * LANES))
        self.copies: list[Copy] = []  # cp.async since the last commit
        self.groups: list[list[Copy]] = []
        self.matrix_reads: list[tuple[int, list]] = []  # wgmma: (group, what it has read)
        self.matrix_group = 0
        self.cluster_token: int | None = None
        clocks = cta.cluster.clocks
        self.slot = cta.rank * len_warps(self.machine.launch) + index
        self.copy_slot = clocks.warps + self.slot
        self.clock = clocks.start(self.slot)
        self.copies_started = 0
        self.in_atomic = False
        self.gave_up: set[int] = set()  # lines where try_wait has answered no once
        self.generator = self.machine.random

    @property
    def name(self) -> str:
        return f"CTA {self.cta.rank_in_grid} warp {self.index}"

    def blocked(self) -> bool:
        version = self.machine.version
        return all(
            f.why is not None and (f.converging or f.version == version) for f in self.fragments
        )

    def run(self, turns: int) -> bool:
        """Up to `turns` segments. Returns: did anything move?"""
        moved = False
        segments = self.machine.program.segments
        while turns > 0 and self.fragments:
            fragment = self._pick()
            if fragment is None:
                return moved
            if fragment.place >= len(segments):
                raise EmulationError(f"{self.name} ran past the end of the kernel")
            segment = segments[fragment.place]
            if segment.aligned and not self._converged(fragment, segment):
                continue
            turns -= 1
            if segment.waiting is not None:
                if not self._wait(fragment, segment):
                    continue
                moved = True
                continue
            moved = True
            if segment.code is not None:
                if fragment.full:
                    segment.code.full(self, self.registers, None)
                else:
                    segment.code.masked(self, self.registers, fragment.mask)
            self._branch(fragment, segment)
        return moved

    def _pick(self) -> Fragment | None:
        """Lanes furthest behind among those that can run, merged with others at the same place."""
        version = self.machine.version
        best: Fragment | None = None
        merged = len(self.fragments) > 1
        for fragment in self.fragments:
            if fragment.why is not None and (fragment.converging or fragment.version == version):
                continue
            if best is None or fragment.place < best.place:
                best = fragment
        if best is None or not merged:
            return best
        others = [
            f for f in self.fragments if f.place == best.place and f is not best and f.token is None
        ]
        if others and best.token is None:
            mask = best.mask
            for other in others:
                mask = mask | other.mask
                self.fragments.remove(other)
            best.mask, best.full = mask, bool(mask.all())
            best.why, best.converging = None, False
        return best

    def _converged(self, fragment: Fragment, segment) -> bool:
        """The other lanes of the warp have to come first."""
        if fragment.full or len(self.fragments) == 1:
            return True
        fragment.why = f"the other lanes of its warp, at line {segment.first.line}"
        fragment.converging = True
        return False

    def _wait(self, fragment: Fragment, segment) -> bool:
        fragment.why, fragment.converging = None, False
        if segment.guard is not None:
            predicate = self.registers[segment.guard]
            taken = fragment.mask & (~predicate if segment.guard_negated else predicate)
            if not taken.any():
                fragment.place += 1
                return True
            if not (taken == fragment.mask).all():
                rest = Fragment(fragment.place + 1, fragment.mask & ~taken)
                self.fragments.append(rest)
                fragment.mask, fragment.full = taken, False
        why = self.machine.guarded(self, segment.first, segment.waiting, self, fragment)
        if why is None:
            fragment.place += 1
            fragment.token = None
            return True
        fragment.why, fragment.version = why, self.machine.version
        return False

    def _branch(self, fragment: Fragment, segment) -> None:
        target = segment.target
        if target is None and not segment.exits:
            fragment.place += 1
            return
        if segment.guard is None:
            taken = fragment.mask
        else:
            taken = self.registers[segment.guard]
            if segment.guard_negated:
                taken = ~taken
            if not fragment.full:
                taken = taken & fragment.mask
            count = np.count_nonzero(taken)
            if count == 0:
                fragment.place += 1
                return
            if count < np.count_nonzero(fragment.mask):
                rest = fragment.mask & ~taken
                if segment.exits:
                    self._exit(taken)
                    fragment.place += 1
                else:
                    self.fragments.append(Fragment(target, taken & fragment.mask))
                    fragment.place += 1
                fragment.mask, fragment.full = rest, False
                return
        if segment.exits:
            self.fragments.remove(fragment)
            self._exit(taken)
        else:
            fragment.place = target

    def _exit(self, lanes: np.ndarray) -> None:
        self.live = self.live & ~lanes
        for fragment in self.fragments:
            if fragment.converging:
                fragment.why, fragment.converging = None, False
        if not self.live.any():
            if self.matrix_reads:
                raise DeviceError("the warp ends without a wait for its wgmma")
            self.cta.warp_ended()

    def waits(self) -> list[str]:
        """What each fragment waits for."""
        segments = self.machine.program.segments
        out = []
        for f in self.fragments:
            lanes = np.nonzero(f.mask)[0]
            first = segments[f.place].first
            some = "" if f.full else f" (lanes {lanes[0]}..{lanes[-1]}, {len(lanes)} in all)"
            out.append(f"line {first.line} `{first.text}`{some}: waits for {f.why}")
        return out


def len_warps(launch: Launch) -> int:
    """Warps of a CTA."""
    return -(-launch.threads // LANES)


class Copy:
    """An asynchronous copy: `finish` runs when it lands, then every one of `then`."""

    __slots__ = ("done", "finish", "number", "then")

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self.done = False
        self.number = 0  # of the warp's cp.async
        self.then: list[Callable[[], None]] = []


class Cta:
    """One thread block: shared memory, barriers, warps."""

    def __init__(self, machine: Machine, cluster: Cluster, rank: int, rank_in_grid: int) -> None:
        launch, layout = machine.launch, machine.program.layout
        self.machine, self.cluster, self.rank, self.rank_in_grid = (
            machine,
            cluster,
            rank,
            rank_in_grid,
        )
        size = (
            layout.dynamic_start + launch.shared_bytes if launch.shared_bytes else layout.static_end
        )
        self.shared = Memory("shared", max(size, 16))
        self.shared.state[: min(1024, size)] = OUTSIDE
        if not machine.strict_shared:
            self.shared.readable = (VALID, UNWRITTEN)
        if machine.find_races:
            self.shared.accesses = SharedAccesses(cluster.clocks, size)
        self.barriers = CtaBarriers(machine, launch.threads, cluster.clocks)
        self.memory_barriers: dict[int, MemoryBarrier] = {}
        count = len_warps(launch)
        self.warps = [Warp(self, i) for i in range(count)]
        self.live_warps = count

    def special_registers(self, warp: int) -> dict[str, np.ndarray]:
        launch = self.machine.launch
        zero, one = np.zeros(LANES, np.uint32), np.ones(LANES, np.uint32)

        def equal(value: int) -> np.ndarray:
            return np.full(LANES, value, np.uint32)

        out = {
            "tid.x": warp * LANES + _LANE,
            "ntid.x": equal(launch.threads),
            "ctaid.x": equal(self.rank_in_grid),
            "nctaid.x": equal(launch.grid),
            "laneid": _LANE,
            "warpid": equal(warp),
            "nwarpid": equal(-(-launch.threads // LANES)),
            "cluster_ctarank": equal(self.rank),
            "cluster_nctarank": equal(launch.cluster),
            "cluster_ctaid.x": equal(self.rank),
            "cluster_nctaid.x": equal(launch.cluster),
            "clusterid.x": equal(self.rank_in_grid // launch.cluster),
            "nclusterid.x": equal(launch.grid // launch.cluster),
            "dynamic_smem_size": equal(launch.shared_bytes),
            "lanemask_eq": one << _LANE,
            "lanemask_lt": (one << _LANE) - one,
            "lanemask_le": ((one << _LANE) - one) | (one << _LANE),
            "lanemask_gt": ~(((one << _LANE) - one) | (one << _LANE)),
            "lanemask_ge": ~((one << _LANE) - one),
            "smid": zero,
        }
        for name in ("tid", "ctaid", "cluster_ctaid", "clusterid"):
            for axis in "yz":
                out[f"{name}.{axis}"] = zero
        for name in ("ntid", "nctaid", "cluster_nctaid", "nclusterid"):
            for axis in "yz":
                out[f"{name}.{axis}"] = one
        return out

    @property
    def ended(self) -> bool:
        return self.live_warps == 0

    def warp_ended(self) -> None:
        self.live_warps -= 1
        self.barriers.warp_ended()
        self.cluster.barrier.warp_ended()
        if self.ended:
            self.machine.unwritten_reads += self.shared.unwritten_reads
            pending = [a for a, b in self.memory_barriers.items() if b.bytes_due]
            if pending:
                raise EmulationError(
                    f"CTA {self.rank_in_grid} ended while copies to it are in flight "
                    f"(barrier at shared address {pending[0]:#x})"
                )


class Cluster:
    """CTAs that see each other's shared memory."""

    def __init__(self, machine: Machine, number: int) -> None:
        size = machine.launch.cluster
        warps = size * len_warps(machine.launch)
        self.clocks = ClusterClocks(warps)
        self.barrier = ClusterBarrier(machine, warps, self.clocks)
        self.ctas = [Cta(machine, self, rank, number * size + rank) for rank in range(size)]

    @property
    def ended(self) -> bool:
        return all(cta.ended for cta in self.ctas)


def _waiting(warps: list[Warp]) -> list[str]:
    """One line for all warps of a CTA that wait for the same."""
    same: dict[tuple[int, str], list[int]] = {}
    for warp in sorted(warps, key=lambda w: (w.cta.rank_in_grid, w.index)):
        for line in warp.waits():
            same.setdefault((warp.cta.rank_in_grid, line), []).append(warp.index)
    return [
        f"CTA {cta} warp {', '.join(str(i) for i in found)}: {line}"
        for (cta, line), found in same.items()
    ]


def _module_memory(program: Program) -> Memory | None:
    """Variables of .global and .const with their initial values."""
    size = program.layout.module_bytes
    if size == 0:
        return None
    memory = Memory("global", size, MODULE_BASE, VALID)
    for variable in program.kernel.variables.values():
        if variable.space in ("global", "const"):
            at = program.layout.offsets[variable.name] - MODULE_BASE
            memory.data[at : at + variable.size_bytes] = np.frombuffer(variable.initial, np.uint8)
    return memory


class Machine:
    """Runs one launch. seed: None for plain round-robin order and copies that land late.

    strict_shared: reads of shared memory that was never written are errors; else they give NaN bits
    and are counted in unwritten_reads. find_races: see races.py.
    """

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        launch: Launch,
        seed: int | None = None,
        resident_ctas: int = 8,
        *,
        strict_shared: bool = False,
        find_races: bool = True,
    ) -> None:
        self.program, self.memory, self.launch = program, memory, launch
        self.parameters = Memory("param", max(len(launch.parameters), 16), state=VALID)
        self.parameters.data[: len(launch.parameters)] = np.frombuffer(launch.parameters, np.uint8)
        self.module = _module_memory(program)
        self.seed = seed
        self.random = random.Random(0 if seed is None else seed)
        self.version = 0
        self.clock = 0
        self.resident_ctas = resident_ctas
        self.strict_shared, self.find_races = strict_shared, find_races
        self.unwritten_reads = 0
        self._timed: list[tuple[int, Copy]] = []
        self._late: list[Copy] = []
        self.predecessor_ended = not launch.late_inputs
        self.turns = 0

    def run(self) -> None:
        """Raises: EmulationError for any fault."""
        with np.errstate(all="ignore"):
            self._run()

    def start_copy(self, finish: Callable[[], None]) -> Copy:
        """`finish` runs some time later."""
        copy = Copy(finish)
        chance = self.random.random()
        if self.seed is None or chance < 0.4:
            self._late.append(copy)
        else:
            longest = 8 if chance < 0.7 else _LONG_DELAY
            self._timed.append((self.clock + self.random.randint(1, longest), copy))
        return copy

    def changed(self) -> None:
        """Something that a warp may wait for has happened."""
        self.version += 1

    def guarded(self, warp: Warp, instruction, action, *arguments):
        """Run an action of one instruction; its faults get their place."""
        try:
            return action(*arguments)
        except DeviceError as error:
            raise self._located(warp, instruction, error) from error

    def _run(self) -> None:
        waiting = list(range(self.launch.grid // self.launch.cluster))
        if self.launch.grid % self.launch.cluster:
            raise EmulationError("the grid is no multiple of the cluster")
        if self.seed is not None:
            self.random.shuffle(waiting)
        for address, size in self.launch.late_inputs:
            self.memory.mark(address, size, UNWRITTEN)
        if not self.predecessor_ended:
            self._late.append(Copy(self._predecessor_ends))
        clusters: list[Cluster] = []
        room = max(1, self.resident_ctas // self.launch.cluster)
        while waiting or clusters:
            clusters = [c for c in clusters if not c.ended]
            while waiting and len(clusters) < room:
                clusters.append(Cluster(self, waiting.pop(0)))
            if clusters:
                self._round(
                    [w for c in clusters for cta in c.ctas for w in cta.warps if w.fragments]
                )
        while self._timed or self._late:
            self._land_one()

    def _predecessor_ends(self) -> None:
        for address, size in self.launch.late_inputs:
            self.memory.mark(address, size, VALID)
        self.predecessor_ended = True

    def _round(self, warps: list[Warp]) -> None:
        if self.seed is not None:
            self.random.shuffle(warps)
        moved = False
        for warp in warps:
            if warp.blocked():
                continue
            self.turns += 1
            self.clock += 1
            length = 64 if self.seed is None else self.random.choice((1, 2, 4, 16, 64))
            try:
                moved |= warp.run(length)
            except DeviceError as error:
                raise self._located(warp, None, error) from error
            if self._timed:
                self._land_due()
        if self.turns > MOST_TURNS:
            raise DeadlockError(f"no end after {MOST_TURNS} turns")
        if not moved and not self._land_one():
            raise DeadlockError(
                f"{self.program.kernel.name}: deadlock\n  " + "\n  ".join(_waiting(warps))
            )

    def _land_due(self) -> None:
        due = [c for at, c in self._timed if at <= self.clock]
        if due:
            self._timed = [(at, c) for at, c in self._timed if at > self.clock]
            for copy in due:
                self._land(copy)

    def _land_one(self) -> bool:
        """Nothing else runs: one copy lands, the first or a random one."""
        if self._timed and (not self._late or self.random.random() < 0.5):
            self._timed.sort(key=lambda entry: entry[0])
            self._land(self._timed.pop(0)[1])
            return True
        if not self._late:
            return False
        at = 0 if self.seed is None else self.random.randrange(len(self._late))
        self._land(self._late.pop(at))
        return True

    def _land(self, copy: Copy) -> None:
        copy.finish()
        copy.done = True
        for action in copy.then:
            action()
        self.changed()

    def _located(self, warp: Warp, instruction, error: DeviceError) -> EmulationError:
        if instruction is None:
            trace = error.__traceback__
            while trace is not None:
                file_name = trace.tb_frame.f_code.co_filename
                found = self.program.instruction_at(file_name, trace.tb_lineno)
                instruction = found or instruction
                trace = trace.tb_next
        place = ""
        if instruction is not None:
            place = f" at PTX line {instruction.line} `{instruction.text[:120]}`"
        thread = warp.index * LANES + (error.lane or 0)
        who = f"CTA {warp.cta.rank_in_grid} thread {thread}"
        return EmulationError(f"{self.program.kernel.name}{place}, {who}: {error}")
