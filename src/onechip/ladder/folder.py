"""A results folder: a plan or an older folder in, a checked manifest out, before any engine starts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from onechip.errors import CheckpointError, LadderError, UsageError
from onechip.ladder import manifest as manifests
from onechip.ladder import weights
from onechip.ladder.checkpoint import TokenCounter, file_hashes, is_noise, model_facts
from onechip.ladder.engines import ENGINES
from onechip.ladder.jobs.acc import question_sets
from onechip.ladder.jobs.sweep import fit_shapes
from onechip.ladder.jobs.task import now
from onechip.ladder.machine import busy_note, machine, ourselves
from onechip.ladder.manifest import Manifest
from onechip.ladder.plan import Plan, cuts, design
from onechip.ladder.prompts import ONE_PROMPTS, digest
from onechip.ladder.state import Rest
from onechip.models.source import resolve_model


def create(folder: Path, plan: Plan) -> Manifest:
    """A fresh results folder with its manifest; a finished ladder that was there is moved aside.

    Raises:
        UsageError: the folder is a file, or cannot be made.
        LadderError: an unfinished ladder is there, or something that is not a ladder, or question sets are
            missing.
        CheckpointError: the model cannot be found.
    """
    make_room(folder)
    rest = Rest.now()
    busy = busy_note(rest.busy_share)
    notes = cuts(plan) if busy is None else [*cuts(plan), busy]
    model = _model(plan)
    plan, halved = _fitted(plan, model)
    notes += halved
    if model is not None and is_noise(model):
        notes.append(
            "The weights are random and the text is noise: answers are not counted by our own tokenizer, and"
            " what engines say of their lengths stands unchecked."
        )
    manifest = Manifest(
        plan,
        now(),
        onechip=ourselves(),
        machine=machine(plan.pin),
        design=design(plan),
        rest=rest.as_dict(),
        notes=notes,
    )
    if "one" in plan.jobs:
        manifest.prompts["one"] = digest(ONE_PROMPTS)
    if "acc" in plan.jobs:
        for questions in question_sets(plan):
            manifest.data[questions.name] = {
                "sha256": questions.sha256,
                "questions": len(questions.questions[: plan.acc_limit]),
                "of": len(questions.questions),
                "source": questions.source,
            }
            manifest.scorers[questions.headline] = questions.scorer_version
    _fill_arms(manifest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be made: {error.strerror}; give another folder.") from None
    manifests.save(manifest, folder)
    return manifest


def _fitted(plan: Plan, model: Path | None) -> tuple[Plan, list[str]]:
    """The plan with shapes of the sweep that the model's context holds, and a note for each that was halved.

    Raises:
        UsageError: a shape cannot be halved that far.
    """
    launched = any(ENGINES[arm.engine].launch is not None for arm in plan.arms)
    context = model_facts(model).context if model is not None and launched else None
    if "sweep" not in plan.jobs or context is None:
        return plan, []
    try:
        shapes, notes = fit_shapes(plan.shapes, context)
    except LadderError:
        asked = ",".join(f"{tokens_in}/{tokens_out}" for tokens_in, tokens_out in plan.shapes)
        raise UsageError(
            f"--shapes {asked}: {plan.model} takes {context} tokens, prompt and output together. Give shorter"
            " shapes, or leave the sweep out with --jobs start,one,acc."
        ) from None
    return msgspec.structs.replace(plan, shapes=tuple(shapes)), notes


def _fill_arms(manifest: Manifest) -> None:
    manifest.source = _hashes(manifest.plan)
    for arm in manifest.plan.arms:
        entry = manifest.arm(arm.name)
        if ENGINES[arm.engine].launch is not None and not arm.form:
            entry.checkpoint = manifest.source
        if arm.remark:
            entry.notes.append(f"{arm.remark[0].upper()}{arm.remark[1:]}.")


def _hashes(plan: Plan) -> dict[str, str]:
    """Of MODEL, from which the arms started by the ladder have their weights; empty if there are none."""
    if all(ENGINES[arm.engine].launch is None for arm in plan.arms):
        return {}
    return file_hashes(weights.source(plan.model))


def make_room(folder: Path) -> Path | None:
    """Moves a finished ladder aside and returns where it went."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file: give a new folder.")
    if not folder.exists() or not any(folder.iterdir()):
        return None
    if not (folder / manifests.NAME).exists():
        raise LadderError(f"--out {folder} is not empty and holds no ladder; give a new folder.")
    if manifests.load(folder).finished_at is None:
        raise LadderError(
            f"{folder} holds an unfinished ladder. Go on with: onechip ladder resume {folder}; or give"
            " another --out."
        )
    stamp = datetime.fromtimestamp((folder / manifests.NAME).stat().st_mtime, UTC).strftime("%Y%m%d-%H%M%S")
    aside = folder.with_name(f"{folder.name}-{stamp}")
    folder.rename(aside)
    return aside


def reopen(folder: Path) -> Manifest:
    """The manifest of a ladder to go on with.

    Raises:
        LadderError: there is none, or the checkpoint is not the one it began with.
    """
    manifest = manifests.load(folder)
    hashes = _hashes(manifest.plan)
    changed = sorted(name for name, sha in manifest.source.items() if hashes.get(name) != sha)
    if changed:
        raise LadderError(
            f"{manifest.plan.model} has changed since the ladder in {folder} began ({', '.join(changed)})"
            "; its halves could not be compared. Begin a new ladder with another --out."
        )
    if (ours := ourselves()) != manifest.onechip:
        manifest.notes.append(
            f"It began with onechip {_version(manifest.onechip)} and went on with {_version(ours)}."
        )
    manifest.resumed_at.append(now())
    manifest.finished_at = None
    manifests.save(manifest, folder)
    return manifest


def _version(facts: dict[str, str]) -> str:
    return f"{facts.get('version')} (commit {facts.get('commit')}, Python {facts.get('python')})"


def token_counter(plan: Plan) -> TokenCounter | None:
    """The checkpoint's tokenizer; None if MODEL cannot be found here."""
    model = _model(plan)
    return None if model is None else TokenCounter.load(model)


def _model(plan: Plan) -> Path | None:
    """MODEL's folder; None if it cannot be found here (arms by URL need no checkpoint)."""
    try:
        return resolve_model(plan.model)
    except CheckpointError:
        return None
