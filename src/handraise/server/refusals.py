"""What a refusal means to a caller: a sentence for the document, a real example, and the facts that come with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from handraise.asks import Answer
from handraise.channels import BadCall
from handraise.errors import (
    AcpDiffers,
    AcpEnded,
    AcpNotFound,
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDiffers,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    ChatBusy,
    ChatNotFound,
    CheckpointNotFound,
    Forbidden,
    HandraiseError,
    InputDoesNotFit,
    MessagesGone,
    NothingToDeliver,
    OutputDoesNotFit,
    Overloaded,
    PartChanged,
    PluginNotFound,
    ProcessFailed,
    RequestAnswered,
    RequestNotFound,
    RuleNotFound,
    RunEnded,
    RunNotFound,
    SessionDiffers,
    SessionEnded,
    SessionNotFound,
    SettingsError,
    StoreFailed,
    Unauthorized,
    WorkflowBroken,
    WorkflowNotFound,
    WorkflowNotTrusted,
)
from handraise.server.http import ExtraMissing, RouteNotFound
from handraise.transports.bodies import TooLarge
from handraise.wire import BadBody
from handraise.wire.asks import ASK_EXAMPLE
from handraise.wire.fields import Count, Time
from handraise.wire.schema import Schema, type_schema

__all__ = ["REFUSALS", "Refusal", "name_of", "refusal_of", "refusal_schema"]


class Refusal(NamedTuple):
    meaning: str
    example: HandraiseError
    fields: Mapping[str, Any] = {}  # the kinds of the facts, by name
    optional: tuple[str, ...] = ()  # facts that are not always there


_ID = {"id": str}
_PROBLEMS: Mapping[str, Any] = {
    "problems": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"at": {"type": "string"}, "problem": {"type": "string"}},
            "required": ["at", "problem"],
        },
    }
}
_ANSWER_PROBLEMS: Mapping[str, Any] = {
    "problems": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"question": {"type": ["integer", "null"]}, "problem": {"type": "string"}},
            "required": ["question", "problem"],
        },
    }
}
_NEITHER = "an ask has either `questions`, at least one, or a `permission`"
_UNFIT = 'approved: "perhaps" is not of type "boolean"'
_FILE = "/home/ana/shop/.handraise/workflows/shop.py"
_WON = ASK_EXAMPLE["answer"]

REFUSALS: Mapping[type[HandraiseError], Refusal] = {
    BadBody: Refusal("The query or the body cannot be read.", BadBody("wait is a number of seconds from 0 to 300")),
    Unauthorized: Refusal(
        "No token, or one that is not or no longer known.",
        Unauthorized(
            "this needs a valid token: send `Authorization: Bearer …`; `handraise token add` makes one",
        ),
    ),
    BadCall: Refusal(
        "Who calls is not the place it says it is, or says something that cannot be used.",
        BadCall("no channel 'nobody' of this desk is called by its place"),
    ),
    Forbidden: Refusal(
        "The token's scope is too small, or the Host or Origin is not ours.",
        Forbidden("the token 'ci' may not do this; it takes the scope 'answer'", scope="answer", token="ci"),  # noqa: S106
        dict.fromkeys(("scope", "token", "host", "origin"), str),
        optional=("scope", "token", "host", "origin"),
    ),
    RouteNotFound: Refusal(
        "There is nothing of that name.",
        RouteNotFound("there is no token of that name; `handraise token list` shows them"),
    ),
    AskNotFound: Refusal("There is no such ask, or it is not yours to see.", AskNotFound("nobody"), _ID),
    RuleNotFound: Refusal("The desk keeps no such rule.", RuleNotFound("1f3a9c2e"), _ID),
    SessionNotFound: Refusal("There is no such session.", SessionNotFound("nobody"), _ID),
    ChatNotFound: Refusal("There is no such chat.", ChatNotFound("nobody"), _ID),
    ChatBusy: Refusal(
        "A reply is being written, or there is none that could be written anew.",
        ChatBusy(
            "chat 'chat_5d41402abc4b2a76b971' takes nothing now: a reply is being written; wait for it, or stop it",
            id="chat_5d41402abc4b2a76b971",
        ),
        _ID,
    ),
    PluginNotFound: Refusal(
        "There is no agent of that name.",
        PluginNotFound(
            "agents: no 'clippy'; there are acp, claude, opencode",
            family="agents",
            name="clippy",
            names=["acp", "claude", "opencode"],
        ),
        {"family": str, "name": str, "names": tuple[str, ...]},
    ),
    SessionDiffers: Refusal(
        "A session of this `id` was started before, with other content.",
        SessionDiffers("nightly-7"),
        _ID,
    ),
    NothingToDeliver: Refusal(
        "The ask has no answer that its agent could not take.",
        NothingToDeliver("deploy-17", "its agent has the answer"),
        _ID,
    ),
    SessionEnded: Refusal(
        "The session is over, or was not started here and cannot be steered from here.",
        SessionEnded("ses_5d41402abc4b2a76b971"),
        {"id": str, "state": str},
    ),
    AskDiffers: Refusal("Something else was asked under this id.", AskDiffers("build-7"), _ID),
    AlreadyAnswered: Refusal(
        "Somebody was faster, and said something else.",
        AlreadyAnswered(
            "ask 'build-7' was already answered by ana in http",
            id="build-7",
            by=_WON["by"],
            via=_WON["via"],
            at=_WON["at"],
            answer=_WON,
        ),
        {"id": str, "by": str, "via": str, "at": Time, "answer": Answer},
    ),
    AskWithdrawn: Refusal(
        "The agent no longer waits.", AskWithdrawn("build-7", reason="aborted"), {"id": str, "reason": str | None}
    ),
    WorkflowNotFound: Refusal(
        "There is no workflow of that name.",
        WorkflowNotFound("shop", known=["release", "review"]),
        {"name": str, "known": tuple[str, ...]},
    ),
    RunNotFound: Refusal("There is no such run.", RunNotFound("nobody"), _ID),
    CheckpointNotFound: Refusal("There is no such checkpoint.", CheckpointNotFound("nobody"), _ID),
    RunEnded: Refusal(
        "This does not go with the state that the run or the checkpoint is in.",
        RunEnded("run run_5d41402abc4b is done, so there is nothing to cancel", id="run_5d41402abc4b", state="done"),
        {"id": str, "state": str},
    ),
    InputDoesNotFit: Refusal(
        "The input is not of the form that the workflow takes. No run was begun.",
        InputDoesNotFit(
            "the input does not fit: goal: Field required", problems=[{"at": "goal", "problem": "Field required"}]
        ),
        _PROBLEMS,
    ),
    OutputDoesNotFit: Refusal(
        "The output is not of the form that the checkpoint wants. It stays open.",
        OutputDoesNotFit(_UNFIT, problems=[{"at": "approved", "problem": _UNFIT}]),
        _PROBLEMS,
    ),
    WorkflowNotTrusted: Refusal(
        "A file of workflows of a project, or one that it imports, that nobody has trusted. Nothing of it was run.",
        WorkflowNotTrusted(f"{_FILE} is not trusted here; `handraise trust` shows what it would do", file=_FILE),
        {"file": str},
        optional=("file",),
    ),
    PartChanged: Refusal(
        "A part is no longer what the person saw, or is not there. Nothing was trusted.",
        PartChanged("rules was changed while you looked at it, so nothing was trusted; look again", name="rules"),
        {"name": str},
    ),
    WorkflowBroken: Refusal(
        "A file of workflows cannot be loaded.",
        WorkflowBroken("shop.py:12: plan: {explore}: nothing before it is called 'explore'; there is input"),
    ),
    AcpNotFound: Refusal("No agent runs over ACP under that id.", AcpNotFound("nobody"), _ID),
    RequestNotFound: Refusal("The agent made no such request.", RequestNotFound("ask-7"), {"id": str | int}),
    AcpDiffers: Refusal(
        "Another agent runs under that id.", AcpDiffers("demo", agent="qwen"), {"id": str, "agent": str}
    ),
    AcpEnded: Refusal("The agent has ended.", AcpEnded("demo", agent="qwen"), {"id": str, "agent": str}),
    RequestAnswered: Refusal(
        "A client was faster, and said something else.",
        RequestAnswered("ask-7", by="ana"),
        {"id": str | int, "by": str},
    ),
    MessagesGone: Refusal(
        "What came after that message is no longer kept, or the agent never said so much.",
        MessagesGone(after=7, first=100, last=20099),
        {"after": Count, "first": Count, "last": Count},
    ),
    ProcessFailed: Refusal(
        "The agent's program does not start, or takes nothing more.",
        ProcessFailed("there is no program 'qwen'; install it, or name another one"),
        {"exit_code": int | None},
        optional=("exit_code",),
    ),
    TooLarge: Refusal("More than 4 MiB.", TooLarge("the body is larger than 4 MiB; send less text")),
    AskDoesNotFit: Refusal(
        "What is asked is malformed or beyond the limits.",
        AskDoesNotFit(f"questions: {_NEITHER}", [{"at": "questions", "problem": _NEITHER}]),
        _PROBLEMS,
    ),
    AnswerDoesNotFit: Refusal(
        "The answer does not fit what was asked. The ask stays open.",
        AnswerDoesNotFit([{"question": 0, "problem": "one value only; got 2"}]),
        _ANSWER_PROBLEMS,
    ),
    SettingsError: Refusal(
        "What is wanted cannot be had here: a name that is taken, a folder that is not there, a mode that the agent "
        "does not have, a model that is not configured.",
        SettingsError("there is a token 'ci' already; revoke it first, or choose another name"),
    ),
    ExtraMissing: Refusal(
        "A package is not installed where the desk runs.",
        ExtraMissing("this desk has no MCP; `pip install 'handraise[mcp]'` where it runs, and start it again"),
    ),
    Overloaded: Refusal(
        "Too many calls wait here. What was asked is kept.",
        Overloaded(
            "5000 calls wait here already; what you asked is kept. Wait on one stream instead "
            "(`GET /v1/events?worker=`), or ask again later under the same id"
        ),
    ),
    StoreFailed: Refusal(
        "The database could not write; nothing of this was kept.",
        StoreFailed(
            "the database could not write (disk I/O error); nothing of this was kept, what was acknowledged before is "
            "safe. Free space on the disk or look at its health, then try again"
        ),
    ),
}


def refusal_of(kind: type[HandraiseError]) -> Refusal:
    """That of a stranger's error is its docstring and a bare sentence."""
    known = REFUSALS.get(kind)
    meaning = (kind.__doc__ or kind.code).partition("\n")[0]
    return known or Refusal(meaning, HandraiseError(meaning))


def name_of(kind: type[HandraiseError]) -> str:
    """The name of its schema."""
    return "".join(word.capitalize() for word in kind.code.split("_"))


def refusal_schema(kind: type[HandraiseError]) -> Schema:
    refusal = refusal_of(kind)
    facts = {name: fact if isinstance(fact, dict) else type_schema(fact) for name, fact in refusal.fields.items()}
    properties = {"error": {"const": kind.code, "type": "string"}, "message": {"type": "string"}, **facts}
    example = {"error": kind.code, "message": refusal.example.message, **refusal.example.fields}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in refusal.optional],
        "examples": [example],
    }
