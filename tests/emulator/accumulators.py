"""A look at the text before it runs: registers that an unfinished wgmma may still write."""

from __future__ import annotations

from .ptx_text import Instruction, Kernel, Label, PtxError, Register


def check_accumulators(kernel: Kernel) -> None:
    """Raises: PtxError where an instruction touches sums between wgmma and its wait.

    Forward over all paths. A wait that leaves groups running counts as a wait for all.
    """
    instructions = kernel.instructions
    if not any(i.parts[0] == "wgmma" for i in instructions):
        return
    before: dict[int, dict[int, int]] = {0: {}}  # place -> register: line of its wgmma
    work = [0]
    while work:
        at = work.pop()
        if at >= len(instructions):
            continue
        instruction = instructions[at]
        after = _after(instruction, before[at])
        for following in _successors(instruction, at):
            known = before.get(following)
            if known is None:
                before[following] = dict(after)
            elif after.keys() <= known.keys():
                continue
            else:
                known.update(after)
            work.append(following)


def _after(instruction: Instruction, running: dict[int, int]) -> dict[int, int]:
    if instruction.parts[:2] == ("wgmma", "wait_group"):
        return {}
    if instruction.parts[:2] == ("wgmma", "mma_async"):
        sums = {r.index: instruction.line for r in _registers(instruction.operands[0])}
        return running | sums
    if running:
        for operand in instruction.operands:
            for register in _registers(operand):
                if register.index in running:
                    place = f"line {instruction.line}: {instruction.text}"
                    line = running[register.index]
                    raise PtxError(
                        f"{place}: {register.name} may still be written by the wgmma of line {line}"
                    )
    return running


def _successors(instruction: Instruction, at: int) -> list[int]:
    if instruction.parts[0] == "bra":
        (label,) = instruction.operands
        target = [label.target] if isinstance(label, Label) else []
        return target if instruction.guard is None else [*target, at + 1]
    if instruction.parts[0] in ("ret", "exit") and instruction.guard is None:
        return []
    return [at + 1]


def _registers(operand: object) -> list[Register]:
    """Every register inside an operand."""
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, tuple):
        return [r for item in operand for r in _registers(item)]
    if hasattr(operand, "__dataclass_fields__"):
        return [
            r for name in operand.__dataclass_fields__ for r in _registers(getattr(operand, name))
        ]
    return []
