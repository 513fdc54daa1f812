"""Every exception handraise raises on purpose, in one tree.

    HandraiseError
    ├── AskNotFound            no ask has that id
    ├── RuleNotFound           the desk keeps no rule with that id
    ├── AskDiffers             that id was asked before, with other content
    ├── AskDoesNotFit          what was asked is malformed or beyond the limits
    ├── AnswerDoesNotFit       the answer does not fit the questions; the ask stays open
    ├── AlreadyAnswered        somebody else won; says who, where, when and with what
    ├── AskWithdrawn           nobody waits for an answer any more
    ├── NothingToDeliver       the ask has no answer that its agent could not take
    ├── Rejected               the outcome of an ask: a person or policy said no
    ├── Withdrawn              the outcome of an ask: the agent stopped waiting
    ├── CursorTooOld           events after that cursor were pruned; list the asks again
    ├── SessionNotFound
    ├── SessionDiffers         a session of that id was started before, with other content
    ├── SessionEnded           the conversation is over and takes no further prompt
    ├── ChatNotFound
    ├── ChatBusy               a reply is being written, or what was wanted does not go with the chat's last message
    ├── AcpNotFound            no agent runs over ACP under that id
    ├── AcpDiffers             another agent runs over ACP under that id
    ├── AcpEnded               the agent that ran over ACP under that id has ended
    ├── RequestNotFound        an agent over ACP made no request with that id, or no longer waits for its answer
    ├── RequestAnswered        a request of an agent over ACP was answered before, with something else
    ├── MessagesGone           messages of an agent over ACP after that number are no longer kept, or are not its own
    ├── WorkflowNotFound       no workflow of that name lies in the project or the user's config folder
    ├── WorkflowNotTrusted     a file of workflows of a project that nobody here has trusted; nothing of it was run
    ├── PartChanged            a part of a project is no longer what the person looked at; nothing was trusted
    ├── InputDoesNotFit        what a run was to begin with is not of the form that its workflow takes; none was begun
    ├── RunNotFound            no run has that id
    ├── RunEnded               what was wanted does not go with the state that the run or the checkpoint is in
    ├── CheckpointNotFound     no checkpoint has that id
    ├── OutputDoesNotFit       what was given for a checkpoint is not of the form it wants; it stays open
    ├── AgentFailed            the agent, or one turn of it, broke; says it in the agent's own words
    ├── Refused                the desk does not let this caller do that
    │   ├── Unauthorized       no token, an unknown one, a revoked one
    │   └── Forbidden          the token's scope is too small
    ├── Overloaded             the desk has too much of something; try again later
    ├── DeskUnreachable        no desk answered at that address
    ├── DeskBroke              the desk answered with something that is not ours
    ├── StoreError             the database
    │   ├── StoreFailed        a commit failed; nothing of its batch was kept
    │   ├── StoreInUse         another desk holds this database
    │   └── StoreTooNew        written by a newer handraise
    ├── SettingsError          a setting, file or option that cannot be used
    │   └── WorkflowBroken     a file of workflows that cannot be loaded; begins with the file and the line
    ├── PluginNotFound         no such agent, channel or store is installed
    └── ProcessFailed          an agent's program did not start, or is gone

`code` is what HTTP replies carry, with `status`; `fields` are the facts a program may read besides the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handraise.asks import Answer, Ask

__all__ = [
    "AcpDiffers",
    "AcpEnded",
    "AcpNotFound",
    "AgentFailed",
    "AlreadyAnswered",
    "AnswerDoesNotFit",
    "AskDiffers",
    "AskDoesNotFit",
    "AskNotFound",
    "AskWithdrawn",
    "ChatBusy",
    "ChatNotFound",
    "CheckpointNotFound",
    "CursorTooOld",
    "DeskBroke",
    "DeskUnreachable",
    "Forbidden",
    "HandraiseError",
    "InputDoesNotFit",
    "MessagesGone",
    "NothingToDeliver",
    "OutputDoesNotFit",
    "Overloaded",
    "PartChanged",
    "PluginNotFound",
    "ProcessFailed",
    "Refused",
    "Rejected",
    "RequestAnswered",
    "RequestNotFound",
    "RuleNotFound",
    "RunEnded",
    "RunNotFound",
    "SessionDiffers",
    "SessionEnded",
    "SessionNotFound",
    "SettingsError",
    "StoreError",
    "StoreFailed",
    "StoreInUse",
    "StoreTooNew",
    "Unauthorized",
    "Withdrawn",
    "WorkflowBroken",
    "WorkflowNotFound",
    "WorkflowNotTrusted",
]


class HandraiseError(Exception):
    """Anything handraise raises on purpose. `str()` of it is one sentence that says what to do."""

    code = "error"
    status = 500  # of the HTTP reply that says so

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields: Mapping[str, Any] = fields


class AskNotFound(HandraiseError):
    code = "ask_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no ask {id!r}; `handraise asks` lists them", id=id)


class RuleNotFound(HandraiseError):
    code = "rule_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"the desk keeps no rule {id!r}; `handraise rules` lists them", id=id)


class AskDiffers(HandraiseError):
    code = "ask_differs"
    status = 409

    def __init__(self, id: str) -> None:
        super().__init__(
            f"ask {id!r} exists with other content; use a new id to ask something else",
            id=id,
        )


class AskDoesNotFit(HandraiseError):
    code = "ask_does_not_fit"
    status = 422

    def __init__(self, message: str, problems: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message, problems=list(problems))


class AnswerDoesNotFit(HandraiseError):
    """`problems` has an entry `{"question": index or None, "problem": sentence}` for each thing wrong."""

    code = "answer_does_not_fit"
    status = 422

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        where = "; ".join(
            problem["problem"]
            if problem.get("question") is None
            else f"question {problem['question'] + 1}: {problem['problem']}"
            for problem in problems
        )
        super().__init__(f"the answer does not fit, the ask stays open: {where}", problems=list(problems))
        self.problems = list(problems)


class AlreadyAnswered(HandraiseError):
    code = "already_answered"
    status = 409

    def __init__(self, message: str, **fields: Any) -> None:
        """`fields` hold `by`, `via`, `at` and `answer` of the one who won."""
        super().__init__(message, **fields)


class AskWithdrawn(HandraiseError):
    code = "ask_withdrawn"
    status = 410

    def __init__(self, id: str, *, reason: str | None = None) -> None:
        super().__init__(
            f"ask {id!r} was withdrawn: the agent no longer waits" + (f" ({reason})" if reason else ""),
            id=id,
            reason=reason,
        )


class Rejected(HandraiseError):
    """Raised where an ask is awaited for its value. `answer.reason` holds what the person said."""

    code = "rejected"

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"rejected by {answer.by or 'somebody'}" + (f": {answer.reason}" if answer.reason else ""))
        self.answer = answer


class Withdrawn(HandraiseError):
    code = "withdrawn"

    def __init__(self, ask: Ask) -> None:
        super().__init__(
            f"ask {ask.id!r} was withdrawn" + (f": {ask.withdrawn_reason}" if ask.withdrawn_reason else "")
        )
        self.ask = ask


class CursorTooOld(HandraiseError):
    """Raised by a follower of events whose last one is older than what the desk keeps."""

    code = "cursor_too_old"

    def __init__(self, *, through: int) -> None:
        super().__init__(
            f"events up to {through} were pruned before they were read; list the asks again, then follow from there",
            through=through,
        )


class SessionNotFound(HandraiseError):
    code = "session_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no session {id!r}", id=id)


class NothingToDeliver(HandraiseError):
    code = "nothing_to_deliver"
    status = 409

    def __init__(self, id: str, problem: str) -> None:
        super().__init__(f"nothing of ask {id!r} is to be delivered again: {problem}", id=id)


class SessionDiffers(HandraiseError):
    code = "session_differs"
    status = 409

    def __init__(self, id: str) -> None:
        super().__init__(f"there is a session {id!r} that began with something else; choose another id", id=id)


class SessionEnded(HandraiseError):
    code = "session_ended"
    status = 409

    def __init__(self, id: str, *, state: str = "done") -> None:
        super().__init__(f"session {id!r} is {state}; start a new one with `handraise start`", id=id, state=state)


class ChatNotFound(HandraiseError):
    code = "chat_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no chat {id!r}; `handraise chat --list` lists them", id=id)


class ChatBusy(HandraiseError):
    code = "chat_busy"
    status = 409


class AcpNotFound(HandraiseError):
    code = "acp_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"no agent runs over ACP as {id!r}; the first message starts one, with `?agent=`", id=id)


class AcpDiffers(HandraiseError):
    code = "acp_differs"
    status = 409

    def __init__(self, id: str, *, agent: str) -> None:
        super().__init__(f"{id!r} is {agent!r} already; leave `agent` out, or use another id", id=id, agent=agent)


class AcpEnded(HandraiseError):
    code = "acp_ended"
    status = 409

    def __init__(self, id: str, *, agent: str) -> None:
        super().__init__(
            f"{agent!r}, which ran as {id!r}, has ended; delete it, then the first message starts it again",
            id=id,
            agent=agent,
        )


class RequestNotFound(HandraiseError):
    code = "request_not_found"
    status = 404

    def __init__(self, id: int | str) -> None:
        super().__init__(f"the agent waits for no answer to a request {id!r}; read its stream again", id=id)


class RequestAnswered(HandraiseError):
    code = "request_answered"
    status = 409

    def __init__(self, id: int | str, *, by: str) -> None:
        super().__init__(f"the agent's request {id!r} was answered by {by} before, with something else", id=id, by=by)


class MessagesGone(HandraiseError):
    code = "messages_gone"
    status = 410

    def __init__(self, *, after: int, first: int, last: int) -> None:
        super().__init__(
            f"what came right after message {after} is not kept here; read from the start, without a number",
            after=after,
            first=first,
            last=last,
        )


class AgentFailed(HandraiseError):
    """The agent broke, or one turn of it did. The message holds its own words where there are any."""

    code = "agent_failed"


class Refused(HandraiseError):
    code = "refused"


class Unauthorized(Refused):
    code = "unauthorized"
    status = 401


class Forbidden(Refused):
    code = "forbidden"
    status = 403


class Overloaded(HandraiseError):
    code = "overloaded"
    status = 503


class DeskUnreachable(HandraiseError):
    code = "desk_unreachable"


class DeskBroke(HandraiseError):
    code = "desk_broke"


class StoreError(HandraiseError):
    code = "store_error"
    status = 503


class StoreFailed(StoreError):
    code = "store_failed"


class StoreInUse(StoreError):
    code = "store_in_use"


class StoreTooNew(StoreError):
    code = "store_too_new"


class SettingsError(HandraiseError):
    code = "settings"
    status = 422


class WorkflowBroken(SettingsError):
    """What is written does not fit together. The message begins with the file and the line."""

    code = "workflow_broken"


class WorkflowNotFound(HandraiseError):
    code = "workflow_not_found"
    status = 404

    def __init__(self, name: str, *, known: Iterable[str]) -> None:
        names = list(known)
        there = f"there is {', '.join(names)}" if names else "there are none here"
        super().__init__(f"there is no workflow {name!r}; {there}", name=name, known=names)


class WorkflowNotTrusted(HandraiseError):
    """A file of a project, or one that it imports, that nobody has looked at, or that changed since. The message says
    what to type: `handraise trust`."""

    code = "workflow_not_trusted"
    status = 403


class PartChanged(HandraiseError):
    """Somebody changed a part of a project after the person had looked at it. Nothing was trusted."""

    code = "part_changed"
    status = 409


class InputDoesNotFit(HandraiseError):
    """`problems` has an entry `{"at": place, "problem": sentence}` for each thing wrong."""

    code = "input_does_not_fit"
    status = 422


class RunNotFound(HandraiseError):
    code = "run_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no run {id!r}; `handraise runs` lists them", id=id)


class RunEnded(HandraiseError):
    """What was wanted of a run does not go with the state it is in."""

    code = "run_ended"
    status = 409


class CheckpointNotFound(HandraiseError):
    code = "checkpoint_not_found"
    status = 404

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no checkpoint {id!r}; `handraise runs` shows what waits", id=id)


class OutputDoesNotFit(HandraiseError):
    """What was given for a checkpoint is not of the form it wants; it stays open."""

    code = "output_does_not_fit"
    status = 422


class PluginNotFound(HandraiseError):
    code = "plugin_not_found"
    status = 404


class ProcessFailed(HandraiseError):
    code = "process_failed"
    status = 502
