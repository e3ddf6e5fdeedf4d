"""A ladder that never ran: planted speeds and answers in, manifest and records of a results folder out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from onechip.ladder import manifest as manifests
from onechip.ladder.journal import Journal
from onechip.ladder.manifest import ArmManifest, Manifest
from onechip.ladder.plan import Plan
from onechip.ladder.records import Arm, Cell, CellRecord, JobName, RequestRecord

SECOND = 1_000_000_000
PROMPTS = 6
QUESTIONS = 200


def request(index: int, tokens: int, tok_s: float, ttft_s: float = 0.1, sent_s: float = 1.0) -> RequestRecord:
    """A stream of one token per event: the first after `ttft_s`, the rest at `tok_s`."""
    sent = round(sent_s * SECOND)
    events = [sent + round((ttft_s + i / tok_s) * SECOND) for i in range(tokens)]
    return RequestRecord(
        index=index,
        prompt_sha256=f"{index:064x}",
        sent_ns=sent,
        event_ns=events,
        event_tokens=[1] * tokens,
        end_ns=events[-1],
        output_tokens=tokens,
        finish="length",
        text=f"text {index}",
        extra={"question": index},
    )


def answer(question: int, right: bool) -> RequestRecord:
    """One scored answer of job acc."""
    made = request(question, 4, 50.0)
    made.finish = "stop"
    made.text = f"the answer is {question if right else question + 1}"
    made.extra = {
        "question": f"q{question}",
        "expected": str(question),
        "answers": {"numeric": str(question if right else question + 1), "strict": None},
        "scores": {"numeric": right, "strict": False},
        "correct": right,
    }
    return made


class MadeLadder:
    """Arms with planted speeds.

    Args:
        speeds: arm -> tok/s of one request; aggregate speed grows with the level.
        rights: arm -> which of QUESTIONS questions it answers rightly.
        repeats: of every cell but the start's, which has one.
        noise: relative standard deviation between repeats.
        work: arm -> what it is given instead of the others' work.
        meters: whether its cells were metered, and the machine watched.
        machine: facts of it that are not those of the usual made one.
    """

    def __init__(
        self,
        speeds: Mapping[str, float],
        rights: Mapping[str, frozenset[int]] | None = None,
        repeats: int = 6,
        noise: float = 0.01,
        seed: int = 5,
        model: str = "acorn",
        work: Mapping[str, str] | None = None,
        meters: bool = False,
        machine: Mapping[str, str] | None = None,
    ) -> None:
        self.speeds = dict(speeds)
        self.rights = dict(rights) if rights else {arm: frozenset(range(150)) for arm in speeds}
        self.repeats = repeats
        self.noise = noise
        self.random = random.Random(seed)
        self.clock = 0
        self.model = model
        self.work = dict(work or {})
        self.meters = meters
        self.machine = dict(machine or {})

    def manifest(self) -> Manifest:
        arms = tuple(Arm(name, "onechip", self.model) for name in self.speeds)
        return Manifest(
            plan=Plan(model=self.model, arms=arms, repeats=self.repeats),
            started_at="2026-11-30T10:00:00Z",
            finished_at="2026-11-30T11:00:00Z",
            onechip={"version": "0.1.0", "commit": "abc"},
            machine={"cpu": "Made CPU <2 cores>", "gpu": "not available", "system": "Linux 6.1"}
            | self.machine,
            arms=[
                ArmManifest(
                    name, "0.1.0", ["onechip", "serve", "--dtype", name], {"A": "1"}, {"model": "f" * 64}
                )
                for name in self.speeds
            ],
            notes=["--quick: this ladder was made by a test."],
        )

    def records(self) -> list[CellRecord]:
        return [record for arm in self.speeds for record in self._arm(arm)]

    def write(self, folder: Path) -> Path:
        """The results folder as a run leaves it."""
        folder.mkdir(parents=True, exist_ok=True)
        manifests.save(self.manifest(), folder)
        journal = Journal(folder)
        for record in self.records():
            journal.append(record)
        journal.close()
        return folder

    def cell(self, arm: str, job: JobName, variant: str, level: int, repeat: int = 0) -> CellRecord:
        """An empty record, started one second after the one before."""
        self.clock += 1
        at = f"2026-11-30T10:{self.clock // 60:02d}:{self.clock % 60:02d}Z"
        client = {"loop_lag_p99_ms": 1.0 + self.clock / 1000, "cpu_share": 0.2}
        definition = self.work.get(arm, "same work")
        measured = self.taken(level) if self.meters else {}
        return CellRecord(
            Cell(arm, job, variant, level, repeat, definition), at, client=client, measured=measured
        )

    def taken(self, level: int) -> dict[str, float]:
        """Readings of a cell: memory that grows with the level, 40 W of a GPU, a quiet machine."""
        return {
            "metered_s": 2.0,
            "resident_peak_bytes": float(1200 + level << 20),
            "own_peak_bytes": float(700 + level << 20),
            "hwm_bytes": float(1300 << 20),
            "device_peak_bytes": float(6 << 30),
            "gpu_j": 80.0,
            "load_1m": 1.5,
            "others_cpu_cores": 0.02,
            "canary_copy_before_s": 0.0021,
            "canary_copy_after_s": 0.0022,
        }

    def _arm(self, arm: str) -> Iterator[CellRecord]:
        yield from self._starts(arm)
        for repeat in range(self.repeats):
            record = self.cell(arm, "one", "alone", 1, repeat)
            record.requests = [request(i, 32, self._speed(arm), sent_s=1 + i) for i in range(PROMPTS)]
            yield record
        for repeat in range(self.repeats):
            yield self._batch(arm, "one", "four", 4, repeat)
        for shape in ("512/128", "128/512"):
            for level in (1, 8, 64):
                for repeat in range(self.repeats):
                    yield self._batch(arm, "sweep", shape, level, repeat)
        record = self.cell(arm, "acc", "acorn-problems", 1)
        record.requests = [answer(i, i in self.rights[arm]) for i in range(QUESTIONS)]
        yield record

    def _starts(self, arm: str) -> Iterator[CellRecord]:
        for variant, seconds in (("cold", 30.0), ("warm", 4.0)):
            record = self.cell(arm, "start", variant, 1)
            parts = {"spawn_to_port_s": 0.2, "port_to_healthy_s": 0.6, "healthy_to_token_s": 0.2}
            record.measured |= {name: share * seconds for name, share in parts.items()}
            record.measured |= {"total_s": seconds, "resident_bytes": 800.0 * 2**20}
            yield record

    def _batch(self, arm: str, job: JobName, variant: str, level: int, repeat: int) -> CellRecord:
        record = self.cell(arm, job, variant, level, repeat)
        each = self._speed(arm) / level**0.4
        record.requests = [request(i, 24, each, ttft_s=0.02 * (1 + i)) for i in range(level)]
        return record

    def _speed(self, arm: str) -> float:
        return self.speeds[arm] * (1 + self.random.gauss(0, self.noise))


def folder_of(made: MadeLadder, records: list[CellRecord], where: Path) -> Path:
    """A results folder with only these records."""
    made.speeds, speeds = {}, made.speeds
    made.write(where)
    made.speeds = speeds
    (where / "manifest.json").write_bytes(msgspec.json.encode(made.manifest()))
    journal = Journal(where)
    for record in records:
        journal.append(record)
    journal.close()
    return where


def slow_and_fast(where: Path, flaw: str = "") -> Path:
    """A results folder of two arms, of which fast has one INVALID cell; `flaw` is part of its reason."""
    made = MadeLadder(
        {"slow": 60.0, "fast": 78.0}, {"slow": frozenset(range(150)), "fast": frozenset(range(148))}
    )
    made.write(where)
    broken = made.cell("fast", "sweep", "512/128", 2, 0)
    broken.invalid = [f"Request 0 has 511 prompt tokens, 512 were asked {flaw} | pipe."]
    journal = Journal(where)
    journal.append(broken)
    journal.close()
    return where
