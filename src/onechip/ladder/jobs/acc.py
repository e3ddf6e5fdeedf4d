"""Job `acc`: questions with known answers, greedy, thinking off. A cell is a block of them.

With `Plan.acc_again` every set is asked again, whole, of the same arm: an A/A control of how often an engine
contradicts itself. An asking is the repeat of its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from onechip.ladder import data
from onechip.ladder.data import Question, QuestionSet
from onechip.ladder.jobs.task import Ask, Task, definition
from onechip.ladder.plan import Plan
from onechip.ladder.prompts import digest
from onechip.ladder.records import Cell, RequestRecord
from onechip.ladder.session import Session

PROMPT_ROOM = 512
"""Tokens left for a question where the limit of the set does not fit into the engine's context."""
WAVES = 4
"""Of questions in a block, at the least: at its end slots run empty."""


def question_sets(plan: Plan) -> list[QuestionSet]:
    """The sets of `--acc`, in order; raises LadderError (data.load)."""
    folder = Path(plan.data) if plan.data else None
    return [found for name in plan.acc for found in data.load(name, folder, plan.acc_tokens)]


def output_limit(session: Session, questions: QuestionSet) -> int:
    """The set's own limit, or what the engine's context leaves."""
    if session.features.context is None:
        return questions.tokens
    return min(questions.tokens, max(session.features.context - PROMPT_ROOM, session.features.context // 2))


def tasks(session: Session) -> list[Task]:
    """One task a block and asking; a set with tools is left out where the engine takes none."""
    plan = session.plan
    size = max(plan.acc_block, WAVES * plan.acc_level)
    made: list[Task] = []
    for questions in question_sets(plan):
        if questions.needs_tools and not session.features.tools:
            continue
        asked = questions.questions[: plan.acc_limit]
        blocks = [asked[at : at + size] for at in range(0, len(asked), size)]
        made += [
            _block(session, questions, block, asking)
            for asking in range(1 + plan.acc_again)
            for block in blocks
        ]
    return made


def _block(session: Session, questions: QuestionSet, block: Sequence[Question], asking: int) -> Task:
    limit = output_limit(session, questions)
    what = definition(
        set=questions.sha256,
        questions=[question.id for question in block],
        tokens=limit,
        scorer=questions.scorer_version,
        thinking_off=session.features.thinking_off,
    )
    cell = Cell(session.arm.name, "acc", questions.name, session.plan.acc_level, asking, what)
    by_id = {question.id: question for question in block}
    finish = partial(_score, by_id, questions.headline)
    return Task(cell, partial(_asks, session, block, limit), timed=False, finish=finish)


def _asks(session: Session, block: Sequence[Question], limit: int) -> list[Ask]:
    made: list[Ask] = []
    for question in block:
        body = session.features.fields(limit, fixed=False) | question.fields
        if session.features.thinking_off:
            body["chat_template_kwargs"] = {"enable_thinking": False}
        asked = question.fields["messages"][-1]["content"]
        extra = {"question": question.id, "asked": asked, "expected": question.expected}
        made.append(Ask("/v1/chat/completions", body, digest(question.fields), extra=extra))
    return made


def _score(by_id: dict[str, Question], headline: str, record: RequestRecord) -> None:
    """Verdicts into the record; a request that failed has none."""
    if record.error is None:
        question = by_id[record.extra["question"]]
        answers, scores = question.score(record.text, record.extra.get("tool_calls", []))
        record.extra |= {"answers": answers, "scores": scores, "correct": scores[headline]}
