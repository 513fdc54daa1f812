"""What a client answered to an agent's request over ACP as our answer: the inverse of `translate.from_answer`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handraise.agents.acp.translate import REFUSALS, SEPARATOR
from handraise.asks import Answer, Ask, Question
from handraise.errors import AnswerDoesNotFit
from handraise.transports.loose_json import mapping_of, text_of

__all__ = ["LONGEST_REASON", "declined", "to_answer"]

LONGEST_REASON = 1000  # characters of what a client says instead of an answer
ONCE = "allow_once"
CANCELLED = "the client cancelled it"


def to_answer(ask: Ask, result: Any) -> Answer:
    """Raises AnswerDoesNotFit where it is no result of such a request. Whether it fits the ask is for the desk."""
    if not isinstance(result, Mapping):
        raise _misfit("the result is an object")
    match (ask.extra or {}).get("kind"):
        case "form":
            return _of_form(ask, result)
        case "question":
            return _of_question(result)
        case _:
            return _of_permission(ask, result)


def declined(error: Any) -> Answer:
    """What a client means that answers with an error."""
    said = text_of(error, "message")[:LONGEST_REASON].encode(errors="replace").decode()  # half of a pair is no text
    return Answer(rejected=True, reason=said or None)


def _misfit(problem: str, *, question: int | None = None) -> AnswerDoesNotFit:
    return AnswerDoesNotFit([{"question": question, "problem": problem}])


# Permissions --------------------------------------------------------------------------------------------------------


def _of_permission(ask: Ask, result: Mapping[str, Any]) -> Answer:
    outcome = mapping_of(result, "outcome")
    match outcome.get("outcome"):
        case "cancelled":
            return Answer(rejected=True, reason=CANCELLED)
        case "selected":
            return _of_option(ask, outcome.get("optionId"), result)
    raise _misfit("`outcome.outcome` is `selected`, with an `optionId`, or `cancelled`")


def _of_option(ask: Ask, id: Any, result: Mapping[str, Any]) -> Answer:
    extra = ask.extra or {}
    given = extra.get("options")
    options: list[Mapping[str, Any]] = given if isinstance(given, list) else []
    chosen = next((each for each in options if each.get("optionId") == id), None)
    if chosen is None:
        offered = ", ".join(repr(each.get("optionId")) for each in options[:20])
        raise _misfit(f"`outcome.optionId` is none that was offered; those are: {offered or 'none'}")
    if extra.get("asks") == "options":
        taken = [each for each in ask.questions[0].options if (each.extra or {}).get("optionId") == id]
        return Answer(answers=((taken[0].value,),)) if taken else Answer(rejected=True)
    if chosen.get("kind") in REFUSALS:
        return Answer(rejected=True)
    if extra.get("asks") == "questions":
        return Answer(answers=_of_labels(ask.questions, result.get("answers")))
    # The first that is for once is the plain yes. Whatever else allows it is a scope of its own.
    first = next((each.get("optionId") for each in options if each.get("kind") == ONCE), None)
    return Answer(reply="once") if id == first else Answer(reply="always", scope=str(id))


def _of_labels(questions: Sequence[Question], given: Any) -> tuple[tuple[str, ...], ...]:
    """Qwen Code takes one text for each question, by its number; several choices are joined in it."""
    if not isinstance(given, Mapping) or not given:
        raise _misfit("this asks something; give `answers` beside `outcome`, a text by the number of each question")
    found: list[tuple[str, ...]] = []
    for number, question in enumerate(questions):
        said = given.get(str(number))
        if said is None or said == "":
            found.append(())
        elif isinstance(said, str):
            found.append(tuple(_parted(question, said)) if question.multiple else (said,))
        elif isinstance(said, list) and all(isinstance(each, str) for each in said):
            found.append(tuple(said))
        else:
            raise _misfit("an answer is a text", question=number)
    return tuple(found)


def _parted(question: Question, said: str) -> list[str]:
    """The choices in a text. A label may hold what stands between them, so the longest that is one counts."""
    parts = said.split(SEPARATOR)
    found: list[str] = []
    at = 0
    while at < len(parts):
        longest = min(len(parts), at + 20)
        end = next(
            (end for end in range(longest, at, -1) if question.value_of(SEPARATOR.join(parts[at:end])) is not None),
            at + 1,
        )
        found.append(SEPARATOR.join(parts[at:end]))
        at = end
    return found


# Questions ----------------------------------------------------------------------------------------------------------


def _of_question(result: Mapping[str, Any]) -> Answer:
    match result.get("status"):
        case "rejected":
            return Answer(rejected=True)
        case "answered":
            return Answer(answers=_lists(result.get("answers")))
    raise _misfit("`status` is `answered`, with `answers`, or `rejected`")


def _lists(given: Any) -> tuple[tuple[str, ...], ...]:
    if not isinstance(given, list):
        raise _misfit("`answers` is a list for each question")
    for number, entry in enumerate(given):
        if not isinstance(entry, list) or not all(isinstance(value, str) for value in entry):
            raise _misfit("an answer is a list of texts", question=number)
    return tuple(tuple(entry) for entry in given)


def _of_form(ask: Ask, result: Mapping[str, Any]) -> Answer:
    match result.get("action"):
        case "decline":
            return Answer(rejected=True)
        case "accept":
            pass
        case str():  # `cancel`, and what newer clients may say: nobody chose anything
            return Answer(rejected=True, reason=CANCELLED)
        case _:
            raise _misfit("`action` is `accept`, `decline` or `cancel`")
    content = result.get("content")
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise _misfit("`content` is an object")
    answers: list[tuple[str, ...]] = []
    notes: list[str | None] = []
    for number, question in enumerate(ask.questions):
        values, note = _of_property(question, content, number=number)
        answers.append(values)
        notes.append(note)
    return Answer(answers=tuple(answers), notes=tuple(notes) if any(notes) else ())


def _of_property(question: Question, content: Mapping[str, Any], *, number: int) -> tuple[tuple[str, ...], str | None]:
    """Its values, and the text beside a single choice, which is a note to it."""
    form = mapping_of(question.extra or {}, "form")
    if not form:  # it only wants a yes
        return (question.options[0].value,), None
    own = text_of(content, str(form.get("companion")))
    said = content.get(str(form.get("name")))
    if said is None and not own:  # leaving it out means what the form says it means
        said = mapping_of(form, "schema").get("default")
    given = said if isinstance(said, list) else [said]
    values = tuple(_spelled(each, number=number) for each in given if each is not None and each != "")
    if not own:
        return values, None
    if question.multiple:
        return (*values, own), None
    return (values, own) if values else ((own,), None)


def _spelled(value: Any, *, number: int) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return str(value)
    raise _misfit("a value is a text, a number, a boolean or a list of texts", question=number)
