"""The `question` tool: what a model may ask, and the block in the transcript that shows it. Pure.

A call asks one question, is the only call of its response, and pauses the chat. The block lies under the message that
asked and has the fields that other chat clients know; one that does not know them shows a generic action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from handraise.asks import Answer, Ask, Option, Origin, Question
from handraise.text.words import Words, speak

__all__ = [
    "AGENT",
    "MOST_OPTIONS",
    "TOOL",
    "Block",
    "QuestionCall",
    "Violation",
    "content_block",
    "corrected",
    "cut_off",
    "error_block",
    "inserted_text",
    "question_block",
    "question_of",
    "rejected",
    "replied",
    "to_ask",
    "tool_result",
    "violation",
    "violation_block",
    "violation_in",
]

Block = dict[str, Any]

AGENT = "chat"  # who asks, at the desk
TOOL = "question"
QUESTION_REQUEST = "question_request"
LONGEST_HEADER = 30
LONGEST_LABEL = 30
LONGEST_DESCRIPTION = 500
LONGEST_QUESTION = 4_000
MOST_OPTIONS = 20  # what a card shows at once


class Choice(BaseModel):
    """One choice. There is no value beside the label: what a person sees is what is sent."""

    model_config = ConfigDict(extra="ignore", title="Option")

    label: Annotated[
        str,
        Field(min_length=1, max_length=LONGEST_LABEL, description="Shown on the button, and sent when it is chosen."),
    ]
    description: Annotated[str, Field(max_length=LONGEST_DESCRIPTION, description="A line under the label.")] = ""

    @field_validator("label")
    @classmethod
    def _is_one_line(cls, label: str) -> str:
        if not label.strip() or len(label.splitlines()) != 1:
            raise ValueError("a label is one line that is not blank")
        return label


class QuestionCall(BaseModel):
    """The arguments of the tool."""

    model_config = ConfigDict(extra="ignore", title="Question")

    question: Annotated[
        str,
        Field(min_length=1, max_length=LONGEST_QUESTION, description="The whole question, in one or two sentences."),
    ]
    options: Annotated[
        list[Choice], Field(max_length=MOST_OPTIONS, description="The likely answers, each one distinct.")
    ]
    header: Annotated[str, Field(max_length=LONGEST_HEADER, description="A very short label of the question.")] = ""
    multiple: Annotated[bool, Field(description="Whether several options may be chosen.")] = False
    custom: Annotated[bool, Field(description="Whether the person may type an answer of their own.")] = True

    @field_validator("question")
    @classmethod
    def _is_said(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the text of the question is missing")
        return question

    @model_validator(mode="after")
    def _can_be_answered(self) -> QuestionCall:
        labels = [option.label for option in self.options]
        if len(set(labels)) < len(labels):
            raise ValueError("two options have the same label; labels are what tells them apart")
        if not labels and not self.custom:
            raise ValueError("without options and without custom text nobody could answer")
        return self


class Violation(NamedTuple):
    """Why a response may not ask, as a text of the catalogue with what is filled in."""

    key: str
    values: Mapping[str, str | int]

    def text(self, words: Words) -> str:
        return words(self.key, **self.values)


def violation(calls: Sequence[str]) -> Violation | None:
    """Why a response that calls these tools, in order, may not ask; None where it asks nothing or may."""
    asked = calls.count(TOOL)
    if not asked or len(calls) == 1:
        return None
    if asked > 1:
        return Violation("chat.violation.several", {"tool": TOOL, "times": asked})
    if calls[-1] != TOOL:
        return Violation("chat.violation.after", {"tool": TOOL, "other": calls[-1]})
    return Violation("chat.violation.beside", {"tool": TOOL, "other": calls[0]})


def corrected(reason: str) -> str:
    """What the model is told about a question that was refused."""
    return f"{reason} Nobody has seen the question. Call `{TOOL}` alone, once, as the last call of your response."


def tool_result(block: Block) -> str:
    """What the tool returns to the model, once the block is resolved."""
    if block["extra"]["questionResolution"] == "rejected":
        return "The user declined to answer this question. Do not ask it again."
    return "The user's answer is the next message."


# At the desk --------------------------------------------------------------------------------------------------------


def to_ask(call: QuestionCall, *, id: str, chat: str) -> Ask:
    options = tuple(Option(option.label, description=option.description) for option in call.options)
    question = Question(call.question, options, header=call.header, multiple=call.multiple, custom=call.custom)
    return Ask(id=id, questions=(question,), origin=Origin(agent=AGENT, session=chat))


def inserted_text(ask: Ask, answer: Answer) -> str:
    """The message that a choice becomes: one label a line, own text last, and what was noted to it behind that."""
    [question] = ask.questions
    return "\n".join([*(question.label_of(value) for value in answer.values), *filter(None, answer.notes)])


# Blocks -------------------------------------------------------------------------------------------------------------


def content_block(text: str) -> Block:
    return {"type": "content", "content": text, "status": "success"}


def error_block(reason: str) -> Block:
    return {"type": "error", "content": reason, "status": "error"}


def violation_block(violation: Violation) -> Block:
    """Readable as it is in English. `extra` is for clients that speak the reader's language."""
    about = {"violation": violation.key, **violation.values}
    return {**error_block(violation.text(speak("en"))), "extra": about}


def violation_in(block: Block) -> Violation | None:
    about = dict(block.get("extra") or {})
    key = about.pop("violation", None)
    return Violation(key, about) if isinstance(key, str) else None


def cut_off(blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a reply that ended before its tools did."""
    return [{**block, "status": "error"} if block["status"] == "loading" else block for block in blocks]


def question_block(call: QuestionCall, *, ask: str, tool_call: str) -> Block:
    header = {"questionHeader": call.header} if call.header else {}
    options = [option.model_dump(exclude_defaults=True) for option in call.options]
    return {
        "type": "action",
        "action_type": QUESTION_REQUEST,
        "content": call.question,
        "status": "pending",
        "extra": {
            "needsUserAction": True,
            **header,
            "questionText": call.question,
            "questionOptions": options,
            "questionMultiple": call.multiple,
            "questionCustom": call.custom,
            "questionResolution": "asked",
            "askId": ask,
            "toolCallId": tool_call,
        },
    }


def replied(block: Block, text: str, *, message: str | None = None) -> Block:
    """`message` is the one that a person wrote by hand, where that was the answer."""
    by_hand = {} if message is None else {"answerMessageId": message}
    return _resolved(block, status="success", resolution="replied", answerText=text, **by_hand)


def rejected(block: Block) -> Block:
    return _resolved(block, status="denied", resolution="rejected")


def _resolved(block: Block, *, status: str, resolution: Literal["replied", "rejected"], **fields: str) -> Block:
    extra = {**block["extra"], "needsUserAction": False, "questionResolution": resolution, **fields}
    return {**block, "status": status, "extra": extra}


def question_of(blocks: Sequence[Block]) -> Block | None:
    """The question that a message ends with, pending or not."""
    last = blocks[-1] if blocks else {}
    return last if last.get("action_type") == QUESTION_REQUEST else None


def problems_of(unfit: ValidationError) -> str:
    """What is wrong with the arguments of a call, in a sentence for people."""
    return malformed([{"loc": error["loc"], "msg": error["msg"]} for error in unfit.errors(include_url=False)])


def malformed(errors: Sequence[Mapping[str, Any]]) -> str:
    where = [
        f"{'.'.join(map(str, error.get('loc', ()))) or 'arguments'}: {error.get('msg', '')}" for error in errors[:3]
    ]
    return f"The model asked a question that cannot be shown ({'; '.join(where)})."
