"""The order of things: a manifest and a journal in, every missing cell measured, one engine at a time.

An engine that dies costs the cell that it died in and is started again a few times; one that does not start
costs its own arm. Whatever happens to the ladder itself, what is in the journal stays, and the next run goes
on behind it.
"""

from __future__ import annotations

from pathlib import Path

from onechip.errors import LadderError
from onechip.ladder import pin, repeats
from onechip.ladder.arm_run import ArmRun
from onechip.ladder.blocks import Block, blocks
from onechip.ladder.canary import Canary
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.disk import writing
from onechip.ladder.host import this_host
from onechip.ladder.jobs.task import now
from onechip.ladder.journal import Journal
from onechip.ladder.manifest import Manifest
from onechip.ladder.progress import Progress
from onechip.ladder.screen import Screen


class Ladder:
    """One ladder in its results folder.

    Args:
        bird: the canary to ask; by default one on the engines' cores, where these are the chip.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        journal: Journal,
        screen: Screen,
        counter: TokenCounter | None,
        api_key: str | None = None,
        retry_invalid: bool = False,
        bird: Canary | None = None,
    ) -> None:
        if bird is None and this_host().chip == "cpu":
            bird = Canary(manifest.plan.pin or pin.allowed())
        self.progress = Progress(folder, manifest, journal, screen, counter, api_key, retry_invalid, bird)
        self._runs: dict[str, ArmRun] = {}

    def run(self) -> None:
        """Measures every cell that is not in the journal.

        Raises:
            LadderError: the ladder's own deadline passed.
            UsageError: the cores of --pin are not here.
        """
        progress = self.progress
        cores = progress.plan.pin
        if cores:
            pin.check(cores)
        with writing(progress.folder, progress.folder):
            (progress.folder / "logs").mkdir(exist_ok=True)
        with progress.screen.shown(), pin.bound(pin.rest(cores) if cores else ()):
            self._blocks()
        progress.manifest.finished_at = now()
        progress.save()

    def _blocks(self) -> None:
        plan = self.progress.plan
        lost: set[str] = set()
        busy = False
        for block in blocks(plan):
            if block.arm in lost or not self._wanted(block):
                continue
            self.progress.screen.say(_heading(block))
            if not self._arm(block.arm).visit(block, cool=busy):
                lost.add(block.arm)
            elif block.last:
                self._arm(block.arm).finish()
            self.progress.save()
            busy = True
        for arm in plan.arms:
            if arm.name not in lost and not self.progress.manifest.arm(arm.name).finished:
                self._arm(arm.name).finish()

    def _arm(self, name: str) -> ArmRun:
        if name not in self._runs:
            arm = next(arm for arm in self.progress.plan.arms if arm.name == name)
            self._runs[name] = ArmRun(self.progress, arm, self.progress.manifest.arm(name))
        return self._runs[name]

    def _wanted(self, block: Block) -> bool:
        """Whether a block has cells that are not measured, as far as that can be told without a start."""
        records, plan = self.progress.journal.records, self.progress.plan
        visits = self.progress.manifest.arm(block.arm).visits
        if any(visit.block == block.number and visit.finished for visit in visits):
            own = [r for r in records if (r.cell.arm, r.cell.block) == (block.arm, block.number)]
            return self.progress.retry_invalid and any(record.invalid for record in own)
        if not plan.compare or block.repeats.start < plan.repeats:
            return True
        return any(
            repeats.needed(plan, records, block.arm, place, block.repeats.start)
            for place in repeats.places(records)
        )

    def shortfall(self) -> str | None:
        """One sentence on the arms of a ladder that has run that failed; None if none did.

        Raises:
            LadderError: nothing was measured.
        """
        progress = self.progress
        entries = [progress.manifest.arm(arm.name) for arm in progress.plan.arms]
        absent = [entry.name for entry in entries if not entry.finished]
        broken = {record.cell.arm for record in progress.journal.records if record.invalid}
        lame = [e.name for e in entries if e.finished and e.failures and e.name in broken]
        said = [
            f"{len(names)} of {len(entries)} arms {what}: {', '.join(names)}"
            for names, what in ((absent, "did not come up"), (lame, "failed on the way"))
            if names
        ]
        why = f"{' and '.join(said)}; what went wrong is above and in the report."
        again = f"Go on with: onechip ladder resume {progress.folder} --retry-invalid"
        if all(record.invalid for record in progress.journal.records):
            raise LadderError(f"Nothing was measured, as {why if said else 'no cell is valid.'} {again}")
        return f"{why} {again}" if said else None


def _heading(block: Block) -> str:
    return f"{block.arm}, block {block.number}" if block.number else block.arm
