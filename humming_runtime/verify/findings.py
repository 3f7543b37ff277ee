"""What a verification found: faults by the link of the chain that they break."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from humming_runtime.contract.exit_codes import RuntimeExit


class Link(Enum):
    """Links of the chain, from what is trusted down to the code that runs."""

    SIGNATURE = "signature"
    ARCHIVE = "archive"
    SUMS = "sums"
    RECORD = "record"
    MANIFEST = "manifest"
    CONTRACT = "contract"
    CUBIN = "cubin sha256"
    ELF = "elf"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    link: Link
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message} ({self.link.value})"


@dataclass
class Report:
    """Filled while a subject is checked. checked: number of things that were compared, by link."""

    subject: str
    findings: list[Finding] = field(default_factory=list)
    checked: dict[Link, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    anchored: bool = False  # compared with something that came another way than the subject
    signature_unchecked: bool = False  # a key was given and no library is here to use it

    def count(self, link: Link, number: int = 1) -> None:
        self.checked[link] = self.checked.get(link, 0) + number

    def fault(self, link: Link, place: str, message: str) -> None:
        self.findings.append(Finding(link, place, message))

    @property
    def exit_code(self) -> RuntimeExit:
        """The most upstream broken link decides."""
        links = {finding.link for finding in self.findings}
        if Link.SIGNATURE in links:
            return RuntimeExit.SIGNATURE
        if links - {Link.CONTRACT}:
            return RuntimeExit.INTEGRITY
        if links:
            return RuntimeExit.CONTRACT
        return RuntimeExit.SIGNATURE_UNCHECKED if self.signature_unchecked else RuntimeExit.OK

    @property
    def verdict(self) -> str:
        if self.findings:
            return f"refused, {len(self.findings)} faults"
        if self.signature_unchecked:
            return "signature not checked"
        return "verified" if self.anchored else "integrity only"

    def as_text(self) -> str:
        """For people: the verdict, what was compared, every fault."""
        lines = [f"{self.subject}: {self.verdict}"]
        counts = [f"{link.value} {self.checked[link]}" for link in Link if link in self.checked]
        if counts:
            lines.append(f"  checked: {', '.join(counts)}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  fault: {finding}" for finding in self.findings]
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "exit_code": int(self.exit_code),
            "checked": {link.value: self.checked[link] for link in Link if link in self.checked},
            "notes": self.notes,
            "findings": [
                {"link": f.link.value, "place": f.place, "message": f.message}
                for f in self.findings
            ],
        }
