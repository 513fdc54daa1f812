"""The OpenAPI document: shapes from the records themselves, routes and refusals written down beside them.

`asks.bound` and the routes demand more than the types say. That is `_LIMITS`, and the tests hold both to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple, get_args

from handraise.agents import MODES
from handraise.asks import LONGEST_NAME, LONGEST_TEXT, MOST_OPTIONS, MOST_QUESTIONS, Ask
from handraise.channels import Showing
from handraise.chat import APIS
from handraise.rules.risks import RISKS
from handraise.server.routes.health import PROBLEMS
from handraise.trust import KINDS
from handraise.wire import (
    AnswerBody,
    AskBody,
    ChannelTestBody,
    ChatBody,
    ChatMessageBody,
    ChatTitleBody,
    CheckpointBody,
    DeliveriesBody,
    LinkBody,
    PromptBody,
    RejectBody,
    RetryBody,
    RuleBody,
    RuleTestBody,
    RunBody,
    SessionBody,
    ShowingBody,
    TokenBody,
    TrustBody,
    WithdrawBody,
    json_schemas,
)
from handraise.workflow.trace import TYPES

__all__ = ["document"]

Schema = dict[str, Any]

_REFS = "#/components/schemas/{model}"


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1. Do not change what you get: everybody gets the same."""
    paths: dict[str, Any] = {}
    for route in _ROUTES:
        method, _, path = route.route.partition(" ")
        paths.setdefault(path, {})[method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "handraise",
            "version": version("handraise"),
            "summary": "The one desk where every coding agent's raised hand arrives.",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "parameters": _PARAMETERS,
            "securitySchemes": _SECURITY,
        },
    }


# Routes -----------------------------------------------------------------------------------------------------


class _Route(NamedTuple):
    route: str  # method and path
    id: str
    summary: str
    scope: str | None  # what a token needs; empty for any token, None where none is needed
    replies: Mapping[int, tuple[str, str]]  # status: (a schema, a media type or nothing; what it means)
    refusals: tuple[str, ...] = ()
    body: str | None = None
    body_required: bool = True
    parameters: tuple[str, ...] = ()  # by their names under `_PARAMETERS`; those of the path come by themselves
    tag: str = "asks"
    is_for_browsers: bool = False  # no token opens it


_TAGS = {
    "asks": "What agents ask and people answer.",
    "events": "What happens, as it happens.",
    "channels": "The places where people are told what waits, and what became of it there.",
    "sessions": "Conversations with agents: those started here, with what was said in them, and those that ask from "
    "elsewhere.",
    "runs": "Workflows, their runs, and what waits for people in them.",
    "chats": "Conversations with a model. What it asks is an ask of the agent `chat`, and is answered as every other.",
    "rules": "What decides about permissions before a person is asked.",
    "trust": "What the files of a project would make happen, and which of it a person let them.",
    "acp": "Agents that speak ACP, for clients by HTTP: messages are JSON-RPC, as the protocol has them.",
    "access": "Tokens and signing in.",
    "audit": "Who or what decided, when, through what and from where.",
    "desk": "The desk itself.",
    "web": "The web app's files, and the pages behind answer links, which need no script.",
    "mcp": "The question tool for agents that speak MCP. Messages and replies are that protocol's own.",
    "opencode": "The routes of an OpenCode server, so that its clients answer for every agent. In its own words.",
    "runbook": "The run routes of runbook, so that its clients answer what a run asks. In its own words.",
}

_READ = ("bad_request", "too_large")
_SETTLED = ("already_answered", "ask_withdrawn")
_NO_SUCH_SESSION = ("not_found", "session_not_found")
_NO_SUCH_QUESTION = (*_NO_SUCH_SESSION, "ask_not_found")
_NO_SUCH_CHAT = ("not_found", "chat_not_found")
_NO_SUCH_RUN = ("not_found", "run_not_found")
_NO_SUCH_CHECKPOINT = ("not_found", "checkpoint_not_found")
_NO_FORM = {
    404: ("text/html", "The link leads nowhere."),
    410: ("text/html", "The link has ended, or its ask is settled."),
    429: ("text/html", "Too many links that lead nowhere came from this address."),
}
_MCP_SETTINGS = ("mcp_session", "mcp_cwd", "mcp_limit", "MCP-Protocol-Version", "Mcp-Session-Id")
_MCP_REFUSED = {
    400: ("McpError", "A setting, a message or an era that cannot be read, or no session where there has to be one."),
    404: ("McpError", "There is no such session, or it was opened with another token. Open a new one."),
    406: ("McpError", "The reply may be JSON or a stream; accept both."),
}

_ROUTES = (
    _Route(
        "POST /v1/asks",
        "raise_an_ask",
        "Raise a hand, or join the one raised before under the same id",
        scope="ask",
        parameters=("wait",),
        body="AskBody",
        replies={
            201: ("Ask", "A new ask. With `wait` it may be settled already."),
            200: ("Ask", "Joined: the same was asked before under this id. One that was withdrawn is open again."),
        },
        refusals=(*_READ, "ask_differs", "ask_does_not_fit", "overloaded", "store_failed"),
    ),
    _Route(
        "GET /v1/asks",
        "list_asks",
        "Asks in the order they were raised, in every state unless one is named",
        scope="answer",
        parameters=("state", "agent", "session", "run", "q", "order", "after_ask", "limit"),
        replies={200: ("Asks", "A page of asks.")},
        refusals=("bad_request",),
    ),
    _Route(
        "GET /v1/asks/{id}",
        "show_an_ask",
        "One ask, at once or as soon as it is settled. Never counts as delivered",
        scope="",
        parameters=("wait",),
        replies={200: ("Ask", "The ask. After an expired wait it is told as it is.")},
        refusals=("bad_request", "ask_not_found", "overloaded"),
    ),
    _Route(
        "POST /v1/asks/{id}/answer",
        "answer_an_ask",
        "Answer its questions, or reply to the permission it wants. The first answer counts",
        scope="answer",
        body="AnswerBody",
        replies={200: ("Ask", "It is settled with this answer, by you or by somebody who said the same before.")},
        refusals=(*_READ, "ask_not_found", *_SETTLED, "answer_does_not_fit", "store_failed"),
    ),
    _Route(
        "POST /v1/asks/{id}/reject",
        "reject_an_ask",
        "Refuse it, finally. The reason reaches the agent",
        scope="answer",
        body="RejectBody",
        body_required=False,
        replies={200: ("Ask", "It is rejected.")},
        refusals=(*_READ, "ask_not_found", *_SETTLED, "store_failed"),
    ),
    _Route(
        "POST /v1/asks/{id}/keep-waiting",
        "keep_waiting",
        "Move the deadline by the time the ask was given",
        scope="answer",
        replies={200: ("Ask", "The ask with its new deadline, or unchanged where it has none.")},
        refusals=("too_large", "ask_not_found", *_SETTLED, "store_failed"),
    ),
    _Route(
        "POST /v1/asks/{id}/deliver",
        "deliver_again",
        "Have an agent that was started here told an answer that it could not take",
        scope="answer",
        replies={202: ("Ask", "It will be told so. Whether it took the answer is told as always.")},
        refusals=(
            "too_large",
            "ask_not_found",
            "nothing_to_deliver",
            "session_not_found",
            "session_ended",
            "store_failed",
        ),
    ),
    _Route(
        "POST /v1/asks/{id}/withdraw",
        "withdraw_an_ask",
        "Say that the agent no longer waits, and what a person told it in its own terminal, where that is known",
        scope="ask",
        body="WithdrawBody",
        body_required=False,
        replies={
            200: (
                "Ask",
                "It is withdrawn. With an `answer` that fits it is answered or rejected by `agent`, and delivered.",
            )
        },
        refusals=(*_READ, "ask_not_found", "already_answered", "store_failed"),
    ),
    _Route(
        "POST /v1/asks/{id}/link",
        "make_an_answer_link",
        "Make a link with which whoever holds it answers this ask, once. Revoking the token that made it ends it",
        scope="answer",
        body="LinkBody",
        body_required=False,
        replies={201: ("AnswerLink", "The link, which is told only now.")},
        refusals=(*_READ, "ask_not_found", *_SETTLED, "store_failed"),
    ),
    _Route(
        "GET /v1/asks/{id}/showings",
        "list_where_an_ask_was_shown",
        "Where it was sent or shown, and where that failed",
        scope="answer",
        replies={200: ("Showings", "The newest word of each channel, by name.")},
        refusals=("ask_not_found",),
        tag="channels",
    ),
    _Route(
        "POST /v1/asks/{id}/showings",
        "report_a_showing",
        "For a channel that is a program of its own: what became of showing it there, or that nothing is left to do",
        scope="answer",
        body="ShowingBody",
        replies={200: ("Showings", "It is written down. One that nobody could be shown does not wait unseen.")},
        refusals=(*_READ, "ask_not_found", "store_failed"),
        tag="channels",
    ),
    _Route(
        "GET /v1/showings",
        "list_showings",
        "Where everything that waits was sent or shown, and where that failed, the oldest ask first",
        scope="answer",
        replies={200: ("WaitingShowings", "At most 1000 of them.")},
        tag="channels",
    ),
    _Route(
        "GET /v1/channels",
        "list_channels",
        "The channels of this desk, what each can do, and how it is",
        scope="answer",
        parameters=("examine",),
        replies={200: ("Channels", "In the order of the settings.")},
        refusals=("bad_request",),
        tag="channels",
    ),
    _Route(
        "GET /v1/channels/{channel}/places",
        "list_what_a_channel_shows",
        "For a channel that is a program of its own: what it has shown and not taken back, and where",
        scope="answer",
        replies={200: ("Places", "By ask; none for a channel that nobody knows.")},
        refusals=("not_found",),
        tag="channels",
    ),
    _Route(
        "POST /v1/channels/{channel}/test",
        "test_a_channel",
        "Ask a question that this channel shows, like any other. What becomes of it is read from the ask",
        scope="admin",
        body="ChannelTestBody",
        body_required=False,
        replies={201: ("ChannelTest", "It waits for ten minutes.")},
        refusals=(*_READ, "not_found", "settings", "store_failed"),
        tag="channels",
    ),
    _Route(
        "POST /webhooks/{channel}",
        "call_a_channel",
        "Where the place of a channel calls us. The channel finds out from body and headers who calls; what it says "
        "is done afterwards",
        scope=None,
        replies={
            200: ("Received", "It is written down."),
            401: ("BadCall", "Nobody here is called by that place, or it cannot prove who it is."),
        },
        refusals=("too_large", "store_failed"),
        tag="channels",
    ),
    _Route(
        "POST /v1/deliveries",
        "report_deliveries",
        "Say which answers agents took, and why they could not take others",
        scope="ask",
        body="DeliveriesBody",
        replies={200: ("Reported", "What is written down, and the ids nobody knows.")},
        refusals=(*_READ, "store_failed"),
    ),
    _Route(
        "GET /v1/events",
        "follow_events",
        "Every event once and in order, after a cursor or from now on. A token that may only ask names its `worker`",
        scope="",
        parameters=("after_event", "run", "session", "worker", "also", "Last-Event-ID"),
        replies={
            200: (
                "text/event-stream",
                "Each frame has the cursor as `id` and an Event as `data`, or a Pruned where events after your cursor "
                "are no longer kept. With `also`, frames without an id have a Hint: read again what it names; or, of "
                "`chats`, a Draft: what a reply grew by.",
            )
        },
        refusals=("bad_request",),
        tag="events",
    ),
    _Route(
        "GET /v1/cursor",
        "show_the_cursor",
        "Where the events stand, to follow them from here later",
        scope="answer",
        replies={200: ("Cursor", "The cursor of the newest event.")},
        tag="events",
    ),
    _Route(
        "POST /v1/sessions",
        "start_a_session",
        "Start an agent with its first prompt. What goes wrong later is in the state of the session",
        scope="admin",
        body="SessionBody",
        replies={
            201: ("Session", "The session. It is `running` until its first turn ends."),
            200: ("Session", "The session that was started under this `id` before, with the same content."),
        },
        refusals=(*_READ, "plugin_not_found", "session_differs", "settings", "store_failed"),
        tag="sessions",
    ),
    _Route(
        "GET /v1/sessions",
        "list_sessions",
        "The newest 200 sessions",
        scope="answer",
        replies={200: ("Sessions", "The newest first.")},
        tag="sessions",
    ),
    _Route(
        "GET /v1/sessions/{session}",
        "show_a_session",
        "One session, at once or as soon as its turn has ended",
        scope="answer",
        parameters=("wait_for_the_end",),
        replies={200: ("Session", "The session. After an expired wait it is told as it is.")},
        refusals=("bad_request", *_NO_SUCH_SESSION),
        tag="sessions",
    ),
    _Route(
        "GET /v1/sessions/{session}/messages",
        "read_the_messages_of_a_session",
        "What was said in it, the oldest first: 200 at a time, fewer where they are large. Only what is started here "
        "has messages",
        scope="answer",
        parameters=("after_message", "before_message", "messages", "wait_for_messages"),
        replies={200: ("Messages", "Those that were wanted; none where nothing more was said in time.")},
        refusals=("bad_request", *_NO_SUCH_SESSION),
        tag="sessions",
    ),
    _Route(
        "GET /v1/sessions/{session}/wire",
        "inspect_a_session",
        "The raw messages between an agent and its adapter, without secrets: the last ones, those before or after one, "
        "or those of an ask. They are kept for seven days",
        scope="admin",
        parameters=(
            "after_wire",
            "before_wire",
            "way",
            "wire_name",
            "wire_text",
            "wire_ask",
            "wires",
            "wait_for_wires",
        ),
        replies={200: ("Wires", "The oldest first. `next` is where to read on, as `after` or else as `before`.")},
        refusals=("bad_request", *_NO_SUCH_SESSION),
        tag="sessions",
    ),
    _Route(
        "POST /v1/sessions/{session}/prompt",
        "prompt_a_session",
        "Tell it something. It is carried out once the turns before it have ended",
        scope="admin",
        body="PromptBody",
        replies={202: ("Session", "Written down; the worker that has the session carries it out.")},
        refusals=(*_READ, *_NO_SUCH_SESSION, "session_ended", "store_failed"),
        tag="sessions",
    ),
    _Route(
        "POST /v1/sessions/{session}/abort",
        "abort_a_session",
        "End the turn that runs, and withdraw what it asks. The session takes another prompt",
        scope="admin",
        replies={202: ("Session", "Written down; the worker that has the session carries it out.")},
        refusals=(*_NO_SUCH_SESSION, "session_ended", "store_failed"),
        tag="sessions",
    ),
    _Route(
        "POST /v1/sessions/{session}/close",
        "close_a_session",
        "End the turn, the conversation and the agent's process, and withdraw what it asks",
        scope="admin",
        replies={202: ("Session", "Written down; the worker that has the session carries it out.")},
        refusals=(*_NO_SUCH_SESSION, "session_ended", "store_failed"),
        tag="sessions",
    ),
    _Route(
        "GET /v1/agents",
        "list_agents",
        "The agents that this desk can start, and what each can do. None where it runs without a worker",
        scope="answer",
        parameters=("probe",),
        replies={200: ("Agents", "By name.")},
        refusals=("bad_request",),
        tag="sessions",
    ),
    _Route(
        "GET /v1/sessions/{session}/events",
        "follow_the_questions_of_a_session",
        "The questions of one session as they come and go: `question.requested`, `question.resolved`",
        scope="answer",
        parameters=("after_event", "Last-Event-ID"),
        replies={200: ("text/event-stream", "Each frame has the cursor as `id` and a QuestionEvent as `data`.")},
        refusals=("bad_request", "not_found", "session_not_found"),
        tag="sessions",
    ),
    _Route(
        "POST /v1/sessions/{session}/questions/{question}/reply",
        "reply_to_a_question_of_a_session",
        "Answer it. `answers` is all that is read",
        scope="answer",
        body="AnswerBody",
        replies={204: ("", "It is answered.")},
        refusals=(*_READ, *_NO_SUCH_QUESTION, *_SETTLED, "answer_does_not_fit", "store_failed"),
        tag="sessions",
    ),
    _Route(
        "POST /v1/sessions/{session}/questions/{question}/reject",
        "reject_a_question_of_a_session",
        "Refuse it, finally",
        scope="answer",
        replies={204: ("", "It is rejected.")},
        refusals=(*_NO_SUCH_QUESTION, *_SETTLED, "store_failed"),
        tag="sessions",
    ),
    _Route(
        "GET /v1/workflows",
        "list_workflows",
        "The workflows of the nearest project above a folder, then the user's own. Their files are run to find them",
        scope="admin",
        parameters=("workflows_cwd",),
        replies={200: ("Workflows", "By file, in the order in which one is looked for.")},
        refusals=("bad_request", "settings"),
        tag="runs",
    ),
    _Route(
        "POST /v1/runs",
        "start_a_run",
        "Start a workflow. Its input is checked before anything is written down",
        scope="admin",
        body="RunBody",
        replies={201: ("Run", "The run. A worker begins with it as soon as one is there.")},
        refusals=(
            *(
                *_READ,
                "workflow_not_found",
                "workflow_not_trusted",
                "input_does_not_fit",
                "workflow_broken",
                "settings",
                "store_failed",
            ),
        ),
        tag="runs",
    ),
    _Route(
        "GET /v1/runs",
        "list_runs",
        "Runs, the newest first, without their inputs and outputs",
        scope="answer",
        parameters=("runs",),
        replies={200: ("Runs", "The newest first. What each began with and gave is told with the run itself.")},
        refusals=("bad_request",),
        tag="runs",
    ),
    _Route(
        "GET /v1/runs/{run}",
        "show_a_run",
        "One run, at once or as soon as it has ended or waits for a person",
        scope="answer",
        parameters=("wait_for_a_run",),
        replies={200: ("Run", "The run. After an expired wait it is told as it is.")},
        refusals=("bad_request", *_NO_SUCH_RUN, "overloaded"),
        tag="runs",
    ),
    _Route(
        "GET /v1/runs/{run}/trace",
        "read_the_trace_of_a_run",
        "What happened in it and what its agents asked, by time: about 200 events at once, fewer where they are large",
        scope="answer",
        parameters=("after_trace", "wait_for_the_trace"),
        replies={200: ("Trace", "Those after `after`; none where nothing more happened in time.")},
        refusals=("bad_request", *_NO_SUCH_RUN, "overloaded"),
        tag="runs",
    ),
    _Route(
        "POST /v1/runs/{run}/cancel",
        "cancel_a_run",
        "Stop its agents and commands, and withdraw what they ask. What was done stays done",
        scope="admin",
        replies={202: ("Run", "Written down; the worker that has the run carries it out.")},
        refusals=(*_NO_SUCH_RUN, "run_ended", "store_failed"),
        tag="runs",
    ),
    _Route(
        "POST /v1/runs/{run}/retry",
        "retry_a_run",
        "Go on with a run that failed, was cancelled or is parked; or do it again from a step",
        scope="admin",
        body="RetryBody",
        body_required=False,
        replies={
            202: ("Retried", "It goes on. What was done before and is not named stays done."),
            200: ("Retried", "With `dry_run`: what would be done. Nothing was changed."),
        },
        refusals=(
            *(
                *_READ,
                *_NO_SUCH_RUN,
                "workflow_not_found",
                "workflow_not_trusted",
                "run_ended",
                "workflow_broken",
                "settings",
            ),
            "store_failed",
        ),
        tag="runs",
    ),
    _Route(
        "POST /v1/runs/{run}/rerun",
        "rerun_a_run",
        "A new run of what the file holds now, with the same input",
        scope="admin",
        replies={201: ("Retried", "The new run. `again` is every step of it.")},
        refusals=(
            *_NO_SUCH_RUN,
            "workflow_not_found",
            "workflow_not_trusted",
            "input_does_not_fit",
            "workflow_broken",
            "store_failed",
        ),
        tag="runs",
    ),
    _Route(
        "GET /v1/checkpoints",
        "list_checkpoints",
        "Checkpoints, the oldest first, in every state unless one is named; fewer at once where they are large",
        scope="answer",
        parameters=("run", "checkpoint_state", "after_checkpoint", "checkpoints"),
        replies={200: ("Checkpoints", "The oldest first. `next` is there where there are more.")},
        refusals=("bad_request",),
        tag="runs",
    ),
    _Route(
        "GET /v1/checkpoints/{checkpoint}",
        "show_a_checkpoint",
        "One checkpoint, with what is shown to people and what they have to give",
        scope="answer",
        replies={200: ("Checkpoint", "The checkpoint.")},
        refusals=_NO_SUCH_CHECKPOINT,
        tag="runs",
    ),
    _Route(
        "POST /v1/checkpoints/{checkpoint}",
        "give_to_a_checkpoint",
        "Give what it waits for. The first one counts",
        scope="answer",
        body="CheckpointBody",
        replies={200: ("Checkpoint", "It has this output, from you or from somebody who gave the same before.")},
        refusals=(*_READ, *_NO_SUCH_CHECKPOINT, "run_ended", "output_does_not_fit", "store_failed"),
        tag="runs",
    ),
    _Route(
        "GET /v1/chats",
        "list_chats",
        "The 200 chats that changed last, without their messages, and the models that there are",
        scope="answer",
        replies={200: ("Chats", "Those that changed last come first.")},
        tag="chats",
    ),
    _Route(
        "POST /v1/chats",
        "begin_a_chat",
        "Begin a chat with a model. With a `text` it begins with that message, and a reply is written",
        scope="admin",
        body="ChatBody",
        replies={201: ("Chat", "The chat, with its messages.")},
        refusals=(*_READ, "settings", "store_failed"),
        tag="chats",
    ),
    _Route(
        "GET /v1/chats/{chat}",
        "read_a_chat",
        "A chat and what was said in it, with what is being written as it is now",
        scope="answer",
        parameters=("since_version",),
        replies={200: ("Chat", "The messages by their ids, which sort in the order in which it was said.")},
        refusals=("bad_request", *_NO_SUCH_CHAT),
        tag="chats",
    ),
    _Route(
        "POST /v1/chats/{chat}",
        "rename_a_chat",
        "Give it another title",
        scope="admin",
        body="ChatTitleBody",
        replies={200: ("Chat", "The chat, with its messages.")},
        refusals=(*_READ, *_NO_SUCH_CHAT, "store_failed"),
        tag="chats",
    ),
    _Route(
        "DELETE /v1/chats/{chat}",
        "delete_a_chat",
        "Forget it with all that was said in it. A reply is stopped, and what it asks is withdrawn",
        scope="admin",
        replies={204: ("", "It is gone.")},
        refusals=(*_NO_SUCH_CHAT, "store_failed"),
        tag="chats",
    ),
    _Route(
        "POST /v1/chats/{chat}/messages",
        "say_something_in_a_chat",
        "A message. It answers the question that waits, if one does; a reply is written in any case",
        scope="admin",
        body="ChatMessageBody",
        replies={201: ("ChatMessage", "The message. The same `nonce` again is the same message.")},
        refusals=(*_READ, *_NO_SUCH_CHAT, "chat_busy", "store_failed"),
        tag="chats",
    ),
    _Route(
        "POST /v1/chats/{chat}/stop",
        "stop_a_reply",
        "Stop the reply that is being written, if one is. What was written stays",
        scope="admin",
        replies={202: ("Chat", "The chat, with its messages. Whoever writes hears it.")},
        refusals=(*_NO_SUCH_CHAT, "store_failed"),
        tag="chats",
    ),
    _Route(
        "POST /v1/chats/{chat}/retry",
        "retry_a_reply",
        "Write the last reply anew. One that asked a question stays",
        scope="admin",
        replies={202: ("Chat", "The chat, with its messages. The last reply is `replaced`.")},
        refusals=(*_NO_SUCH_CHAT, "chat_busy", "store_failed"),
        tag="chats",
    ),
    _Route(
        "GET /v1/acp",
        "list_acp_agents",
        "The agents that run over ACP here, and those that have ended and were not deleted",
        scope="admin",
        replies={200: ("AcpServers", "In the order in which they were started.")},
        tag="acp",
    ),
    _Route(
        "POST /v1/acp/{server}",
        "send_to_an_acp_agent",
        "Send one message: the first starts the agent. A request waits for its response, without limit; sent once more "
        "under its id it joins, as long as nobody has the response",
        scope="admin",
        parameters=("acp_agent", "Prefer"),
        body="AcpMessage",
        replies={
            200: ("AcpMessage", "To a request: the agent's response, which the stream has too."),
            202: ("", "To a response or a notification: it was taken. To a request with `Prefer: respond-async` too."),
        },
        refusals=(
            *(*_READ, "not_found", "acp_not_found", "request_not_found", "acp_differs", "acp_ended"),
            *("request_answered", *_SETTLED, "answer_does_not_fit", "settings", "process_failed", "overloaded"),
            "store_failed",
        ),
        tag="acp",
    ),
    _Route(
        "GET /v1/acp/{server}",
        "follow_an_acp_agent",
        "What the agent says, after a number or from the start: requests, notifications and responses",
        scope="admin",
        parameters=("after_acp_message", "Last-Event-ID"),
        replies={
            200: ("text/event-stream", "Each frame is a `message`, with a number as `id` and JSON-RPC as `data`.")
        },
        refusals=("bad_request", "not_found", "acp_not_found", "messages_gone", "process_failed"),
        tag="acp",
    ),
    _Route(
        "DELETE /v1/acp/{server}",
        "end_an_acp_agent",
        "End the agent and withdraw what it asks. The id is free afterwards",
        scope="admin",
        replies={204: ("", "It is told to end, and what it asked is withdrawn.")},
        refusals=("not_found", "acp_not_found"),
        tag="acp",
    ),
    _Route(
        "GET /v1/tokens",
        "list_tokens",
        "All tokens, without their secrets, which are kept nowhere",
        scope="admin",
        replies={200: ("Tokens", "By name.")},
        tag="access",
    ),
    _Route(
        "POST /v1/tokens",
        "add_a_token",
        "Make a token. Its secret is told here and never again",
        scope="admin",
        body="TokenBody",
        replies={201: ("NewToken", "The new token.")},
        refusals=(*_READ, "settings", "store_failed"),
        tag="access",
    ),
    _Route(
        "DELETE /v1/tokens/{name}",
        "revoke_a_token",
        "Refuse a token from now on, also on connections and streams that are open",
        scope="admin",
        replies={204: ("", "It is revoked.")},
        refusals=("not_found", "store_failed"),
        tag="access",
    ),
    _Route(
        "POST /v1/signin",
        "make_a_sign_in_link",
        "Make a link that signs a browser in, once",
        scope="admin",
        replies={201: ("SignInLink", "The link.")},
        tag="access",
    ),
    _Route(
        "GET /signin/{code}",
        "show_the_sign_in_page",
        "The page with the button. Looking at it does not use the link up",
        scope=None,
        replies={200: ("text/html", "A page.")},
        tag="access",
    ),
    _Route(
        "POST /signin/{code}",
        "sign_in",
        "Use the link up and give the browser both halves of its session",
        scope=None,
        replies={
            200: (
                "text/html",
                "Signed in. A script of the page keeps one half and opens the inbox.",
            ),
            410: ("text/html", "The link was used or has expired."),
        },
        refusals=("store_failed",),
        tag="access",
    ),
    _Route(
        "GET /v1/rules",
        "list_rules",
        "The rules for permissions that hold for asks from a folder, the first one first",
        scope="admin",
        parameters=("cwd",),
        replies={200: ("Rules", "Those of the project, of the user, of the desk, and of its sessions, in this order.")},
        refusals=("bad_request",),
        tag="rules",
    ),
    _Route(
        "POST /v1/rules",
        "add_a_rule",
        "Keep a rule at the desk. It counts from the next ask on",
        scope="admin",
        body="RuleBody",
        replies={201: ("Rule", "The rule, with its id.")},
        refusals=(*_READ, "settings", "store_failed"),
        tag="rules",
    ),
    _Route(
        "POST /v1/rules/test",
        "test_the_rules",
        "What the rules would decide, and why. Nothing is asked, and no program that decides is run",
        scope="admin",
        body="RuleTestBody",
        replies={200: ("RuleTest", "What would be decided.")},
        refusals=_READ,
        tag="rules",
    ),
    _Route(
        "DELETE /v1/rules/{rule}",
        "remove_a_rule",
        "Forget a rule that the desk keeps",
        scope="admin",
        replies={200: ("Rule", "The rule that was removed.")},
        refusals=("not_found", "rule_not_found", "store_failed"),
        tag="rules",
    ),
    _Route(
        "GET /v1/trust",
        "look_at_a_project",
        "What is trusted, and with `cwd` what the project around that folder would make happen",
        scope="admin",
        parameters=("project_cwd",),
        replies={200: ("Trust", "The projects that are trusted, and the parts of the one around `cwd`.")},
        refusals=("bad_request", "settings", "overloaded"),
        tag="trust",
    ),
    _Route(
        "POST /v1/trust",
        "trust_a_project",
        "Trust parts of a project as a person saw them. Only a browser that signed in may: every token is refused",
        scope="admin",
        body="TrustBody",
        replies={200: ("Trust", "The project, as it stands now.")},
        refusals=(*_READ, "settings", "part_changed", "overloaded"),
        tag="trust",
        is_for_browsers=True,
    ),
    _Route(
        "DELETE /v1/trust",
        "forget_a_project",
        "Trust nothing any more of the project around a folder, which may be gone",
        scope="admin",
        parameters=("project_cwd",),
        replies={200: ("TrustedProject", "What is not trusted any more.")},
        refusals=("bad_request", "not_found", "settings", "overloaded"),
        tag="trust",
    ),
    _Route(
        "GET /v1/audit",
        "read_the_audit",
        "A line for every decision that is still kept, by people, policy, timeouts and agents, in order",
        scope="admin",
        parameters=("since", "until", "after_line", "lines"),
        replies={200: ("Audit", "A page of lines. It may have few or none, and is the last one if it has no `next`.")},
        refusals=("bad_request",),
        tag="audit",
    ),
    _Route(
        "GET /",
        "show_the_front_page",
        "The web app. A browser that is not signed in gets the page too, with status 401; it says how to sign in",
        scope="answer",
        replies={200: ("text/html", "A page.")},
        tag="web",
    ),
    _Route(
        "GET /app/{path}",
        "read_a_file_of_the_app",
        "A file of the web app, with an ETag",
        scope="answer",
        replies={200: ("*/*", "The file.")},
        refusals=("not_found",),
        tag="web",
    ),
    _Route(
        "GET /sw.js",
        "read_the_service_worker",
        "The service worker of the web app",
        scope="answer",
        replies={200: ("text/javascript", "A script.")},
        tag="web",
    ),
    _Route(
        "GET /manifest.webmanifest",
        "read_the_manifest",
        "What a device has to know to install the web app",
        scope="answer",
        replies={200: ("application/manifest+json", "A manifest.")},
        tag="web",
    ),
    _Route(
        "GET /a/{link}",
        "show_an_answer_page",
        "The ask of an answer link, as a form. Looking at it answers nothing and does not use the link up",
        scope=None,
        replies={200: ("text/html", "The form."), **_NO_FORM},
        tag="web",
    ),
    _Route(
        "POST /a/{link}",
        "send_an_answer_page",
        "What was filled in. The answer that settles the ask uses the link up",
        scope=None,
        replies={
            200: ("text/html", "It is settled, or the deadline was moved."),
            **_NO_FORM,
            409: ("text/html", "Somebody was faster."),
            422: ("text/html", "The form again, with what is wrong; the link is as good as before."),
            503: ("text/html", "The form again: the database failed, and nothing was kept."),
        },
        refusals=("too_large",),
        tag="web",
    ),
    _Route(
        "GET /a/style.css",
        "read_the_style_of_plain_pages",
        "The style of the pages that need no script",
        scope=None,
        replies={200: ("text/css", "A style sheet.")},
        tag="web",
    ),
    _Route(
        "GET /healthz",
        "check_health",
        "Whether the desk is well",
        scope=None,
        replies={
            200: ("Health", "It takes asks. `degraded` says that something is wrong all the same."),
            503: ("Down", "The database can be neither written nor read."),
        },
        tag="desk",
    ),
    _Route(
        "GET /v1/proof",
        "prove_the_desk",
        "Proof that this is the desk which wrote its address into its home",
        scope=None,
        parameters=("nonce",),
        replies={200: ("Proof", "The nonce and the address of the desk, signed with the key in `desk.json`.")},
        refusals=("bad_request",),
        tag="desk",
    ),
    _Route(
        "GET /metrics",
        "show_metrics",
        "Numbers for a monitoring system, as OpenMetrics",
        scope="answer",
        replies={200: ("application/openmetrics-text", "One line a number.")},
        tag="desk",
    ),
    _Route(
        "GET /openapi.json",
        "show_this_document",
        "This document",
        scope="",
        replies={200: ("Document", "OpenAPI 3.1.")},
        tag="desk",
    ),
    _Route(
        "POST /mcp",
        "send_a_message_by_mcp",
        "One message of MCP, over streamable HTTP, in both eras of that protocol",
        scope="ask",
        parameters=_MCP_SETTINGS,
        body="McpMessage",
        replies={
            200: ("text/event-stream", "Progress and the result; plain JSON where that was there at once."),
            202: ("", "A notification was taken."),
            **_MCP_REFUSED,
        },
        refusals=("too_large", "extra_missing", "overloaded"),
        tag="mcp",
    ),
    _Route(
        "GET /mcp",
        "follow_a_session_by_mcp",
        "What the desk tells a session beside its calls: nothing. Clients of the older era listen all the same",
        scope="ask",
        parameters=_MCP_SETTINGS,
        replies={200: ("text/event-stream", "Comments, to keep the connection."), **_MCP_REFUSED},
        refusals=("extra_missing", "overloaded"),
        tag="mcp",
    ),
    _Route(
        "DELETE /mcp",
        "end_a_session_by_mcp",
        "End a session of the older era, and withdraw what was asked in it and not taken",
        scope="ask",
        parameters=_MCP_SETTINGS,
        replies={200: ("", "It is over."), **_MCP_REFUSED},
        refusals=("extra_missing", "overloaded"),
        tag="mcp",
    ),
    *(
        _Route(route, id, summary, scope="answer", replies={200: (reply, "As OpenCode tells it.")}, tag="opencode")
        for route, id, summary, reply in (
            ("GET /question", "opencode_questions", "Open questions", "OpenCodeRequests"),
            ("GET /permission", "opencode_permissions", "Open permissions", "OpenCodeRequests"),
            ("GET /session/status", "opencode_session_status", "Sessions that wait", "Document"),
            ("GET /event", "opencode_events", "Events of one directory, or all", "text/event-stream"),
            ("GET /global/event", "opencode_global_events", "Events with their directory", "text/event-stream"),
        )
    ),
    _Route(
        "GET /global/health",
        "opencode_health",
        "Whether the desk is there",
        scope="",
        replies={200: ("Document", "As OpenCode tells it.")},
        tag="opencode",
    ),
    *(
        _Route(
            route,
            id,
            summary,
            scope="answer",
            body=body,
            replies={
                200: ("True", "Done."),
                400: ("OpenCodeBadRequest", "Not what OpenCode takes, or not an answer to this."),
                404: ("OpenCodeNotFound", "There is none of that id that waits, or no such route."),
            },
            refusals=("too_large", "store_failed"),
            tag="opencode",
        )
        for route, id, summary, body in (
            (
                "POST /question/{question_request}/reply",
                "opencode_reply_to_a_question",
                "Answer by label",
                "OpenCodeAnswers",
            ),
            ("POST /question/{question_request}/reject", "opencode_reject_a_question", "Refuse it", None),
            ("POST /permission/{permission_request}/reply", "opencode_reply_to_a_permission", "Reply", "OpenCodeReply"),
            (
                "POST /session/{opencode_session}/permissions/{permission_request}",
                "opencode_reply_to_a_permission_of_a_session",
                "Reply, the way older clients do",
                "OpenCodeResponse",
            ),
        )
    ),
    _Route(
        "GET /runs/{run}",
        "runbook_run",
        "A run, with its open questions in full and the ids of its open checkpoints",
        scope="answer",
        replies={
            200: ("RunbookRun", "As runbook tells it."),
            404: ("RunbookRefusal", "`run_not_found`, or no such route."),
        },
        tag="runbook",
    ),
    _Route(
        "POST /runs/{run}/questions/{question}",
        "runbook_answer_a_question",
        "Answer it by label, or reject it",
        scope="answer",
        body="RunbookAnswer",
        replies={
            200: ("RunbookAnswered", "It is settled."),
            400: ("RunbookRefusal", "Neither answers nor a rejection, or answers that do not fit. It waits on."),
            404: (
                "RunbookRefusal",
                "`run_not_found`; `question_not_found`, also where it is settled; or no such route.",
            ),
        },
        refusals=("too_large", "store_failed"),
        tag="runbook",
    ),
)


def _operation(route: _Route) -> Schema:
    wanted = [route.scope] if route.scope else []
    enough = _TOGETHER[-1:] if route.is_for_browsers else _TOGETHER
    operation: Schema = {
        "operationId": route.id,
        "summary": route.summary,
        "tags": [route.tag],
        "security": [] if route.scope is None else [dict.fromkeys(together, wanted) for together in enough],
        "responses": {str(status): _reply(*told) for status, told in route.replies.items()},
    }
    in_path = [f"{part[1:-1]}_in_path" for part in route.route.split("/") if part.startswith("{")]
    parameters = [{"$ref": f"#/components/parameters/{name}"} for name in (*in_path, *route.parameters)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": _ref(route.body)}},
        }
    always = ("forbidden",) if route.scope is None else ("unauthorized", "forbidden")
    for status, codes in _by_status((*always, *route.refusals)).items():
        operation["responses"].setdefault(str(status), _refusal(codes))
    return operation


def _reply(what: str, meaning: str) -> Schema:
    reply: Schema = {"description": meaning}
    if "/" in what:
        reply["content"] = {what: {"schema": {"type": "object" if what.endswith("+json") else "string"}}}
        if what in _TEXTS:
            reply["content"][what]["example"] = _TEXTS[what]
    elif what:
        reply["content"] = {"application/json": {"schema": _ref(what)}}
    return reply


def _refusal(codes: list[str]) -> Schema:
    refs = [_ref(_name(code)) for code in codes]
    return {
        "description": " Or: ".join(_REFUSALS[code].meaning for code in codes),
        "content": {"application/json": {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}}},
    }


def _by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for code in codes:
        found.setdefault(_REFUSALS[code].status, []).append(code)
    return dict(sorted(found.items()))


def _ref(name: str) -> Schema:
    return {"$ref": _REFS.format(model=name)}


# Small pieces of schema -------------------------------------------------------------------------------------

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
# No control, format or private characters, and of the separators only the plain space.
_PRINTABLE = r"^(?: |[^\p{Cc}\p{Cf}\p{Co}\p{Z}])+$"


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _object(fields: Mapping[str, Schema], *, optional: Iterable[str] = ()) -> Schema:
    required = [name for name in fields if name not in set(optional)]
    return {"type": "object", "properties": dict(fields), "required": required}


# Parameters -------------------------------------------------------------------------------------------------


def _parameter(name: str, schema: Schema, meaning: str, *, place: str = "query") -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": meaning}


def _in_path(name: str, meaning: str, *, pattern: str | None = None, example: str | None = None) -> Schema:
    schema: Schema = {"type": "string", "minLength": 1} | ({"pattern": pattern} if pattern else {})
    parameter = _parameter(name, schema, meaning, place="path")
    return parameter | ({"example": example} if example else {})


_PARAMETERS: dict[str, Schema] = {
    "id_in_path": _in_path("id", "The id of an ask, percent-encoded.", example="build-7"),
    "session_in_path": _in_path("session", "The id of a session, percent-encoded.", example="claude:4f1c"),
    "question_in_path": _in_path("question", "The id of an ask, percent-encoded.", example="build-7"),
    "server_in_path": _in_path("server", "What you call the agent, percent-encoded: at most 200 characters."),
    "acp_agent": _parameter(
        "agent",
        _TEXT,
        "With the first message: `gemini`, `qwen`, `copilot`, `claude-agent-acp`, `codex-acp`, or a name that has a "
        "`command` in the settings. Later it may be left out.",
    ),
    "Prefer": _parameter("Prefer", _TEXT, "`respond-async` does not wait for the response.", place="header"),
    "after_acp_message": _parameter(
        "after", {**_COUNT, "maximum": 2**62}, "Read on after this message. Without it, from the start."
    ),
    "chat_in_path": _in_path("chat", "The id of a chat.", example="chat_5d41402abc4b2a76b971"),
    "since_version": _parameter(
        "since",
        {**_COUNT, "maximum": 2**62},
        "Only the messages that changed after this `version` of the chat. Without it, all of them.",
    ),
    "run_in_path": _in_path("run", "The id of a run.", example="run_5d41402abc4b"),
    "checkpoint_in_path": _in_path("checkpoint", "The id of a checkpoint.", example="run_5d41402abc4b.review"),
    "workflows_cwd": _parameter(
        "cwd", {"type": "string"}, "The folder to look from, on the machine of the desk; without it, that of the desk."
    ),
    "runs": _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "At most so many."),
    "wait_for_a_run": _parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": 300},
        "Seconds to wait until it is not `running`. When they have passed it is told as it is.",
    ),
    "wait_for_the_trace": _parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": 300},
        "Seconds to wait where nothing more happened yet. Of a run that has ended nothing more comes.",
    ),
    "after_trace": _parameter(
        "after", {"type": "string", "pattern": r"^(?:[0-9]{1,18}-[0-9]{1,18})?$"}, "`next` of the page before."
    ),
    "after_checkpoint": _parameter(
        "after", {"type": "string", "pattern": r"^(?:[0-9]{1,18}-.*)?$"}, "`next` of the page before."
    ),
    "checkpoints": _parameter(
        "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000}, "Checkpoints a page."
    ),
    "checkpoint_state": _parameter("state", _one_of("open", "given", "withdrawn"), "Only those in this state."),
    "channel_in_path": _in_path("channel", "The name of a channel, as the settings have it.", example="linear"),
    "name_in_path": _in_path("name", "The name of the token.", example="ci"),
    "rule_in_path": _in_path("rule", "The id of a rule that the desk keeps.", example="1f3a9c2e"),
    "code_in_path": _in_path("code", "What the link holds."),
    "link_in_path": _in_path("link", "What the link holds."),
    "path_in_path": _in_path("path", "Where the file lies among those of the app.", example="app.css"),
    "question_request_in_path": _in_path("question_request", "The id of an ask, with `que_`.", pattern="^que"),
    "permission_request_in_path": _in_path("permission_request", "The id of an ask, with `per_`.", pattern="^per"),
    "opencode_session_in_path": _in_path("opencode_session", "The id of a session, with `ses_`.", pattern="^ses"),
    "cwd": _parameter("cwd", {"type": "string"}, "The folder that an agent works in."),
    "project_cwd": _parameter("cwd", {"type": "string"}, "A folder of the project, on the machine of the desk."),
    "wait": _parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": 300},
        "Seconds to wait for the answer. When they have passed the ask is told as it is.",
    ),
    "wait_for_the_end": _parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": 300},
        "Seconds to wait until it is neither `running` nor `waiting`. When they have passed it is told as it is.",
    ),
    "wait_for_messages": _parameter(
        "wait", {"type": "number", "minimum": 0, "maximum": 300}, "Seconds to wait where nothing more was said yet."
    ),
    "after_message": _parameter("after", _TEXT, "The id of the last message you have."),
    "before_message": _parameter(
        "before",
        _TEXT,
        "The id of the first message you have: the last ones before it are told, the oldest of them first. Empty for "
        "the newest of all.",
    ),
    "messages": _parameter(
        "limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 200}, "At most so many."
    ),
    "after_wire": _parameter("after", _TEXT, "The id of a message: those after it."),
    "before_wire": _parameter("before", _TEXT, "The id of a message: the last ones before it."),
    "way": _parameter("way", _one_of("in", "out"), "Only what came from the agent, or what went to it."),
    "wire_name": _parameter("name", _TEXT, "Only messages that the protocol calls this."),
    "wire_text": _parameter(
        "q", {"type": "string", "maxLength": 500}, "Only messages that hold this text, in any case of its letters."
    ),
    "wire_ask": _parameter(
        "ask", _TEXT, "Only what became this ask and what carried its answer, whatever else is given; `*` is every ask."
    ),
    "wires": _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 200}, "Messages a page."),
    "wait_for_wires": _parameter(
        "wait", {"type": "number", "minimum": 0, "maximum": 300}, "Seconds to wait where none came after `after` yet."
    ),
    "probe": _parameter(
        "probe",
        _one_of("0", "1"),
        "1 starts each program to see for itself, which takes seconds and the scope `admin`.",
    ),
    "nonce": _parameter(
        "nonce",
        {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "64 hexadecimal digits, chosen anew for every call.",
    )
    | {"required": True},
    "examine": _parameter(
        "examine",
        _one_of("0", "1"),
        "1 lets each channel look what is wrong with it, which may ask its place and takes the scope `admin`.",
    ),
    "state": _parameter(
        "state",
        _one_of("asked", "answered", "rejected", "withdrawn", "settled"),
        "Only asks in this state; `settled` is every state but `asked`.",
    ),
    "q": _parameter(
        "q",
        {"type": "string", "maxLength": 500},
        "Only asks in which people see this text, in any case: in what was asked and by whom, in what was answered, in "
        "the reason why it ended. It is taken as it is; there are no wildcards.",
    ),
    "order": _parameter("order", _one_of("oldest", "newest"), "Which ask comes first; without it, the oldest."),
    "agent": _parameter("agent", _TEXT, "Only what this agent asked."),
    "session": _parameter("session", _TEXT, "Only of this session."),
    "run": _parameter("run", _TEXT, "Only of this run."),
    "worker": _parameter("worker", _TEXT, "Only what this worker waits for."),
    "also": _parameter(
        "also",
        {**_TEXT, "examples": ["checkpoints,sessions,runs,chats,showings"]},
        "Tell, too, when some of these may have changed: `checkpoints`, `sessions`, `runs`, `chats`, `showings`, with "
        "commas between them. With `chats`, what replies grow by is told as well.",
    ),
    "limit": _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Asks a page."),
    "after_ask": _parameter("after", {**_COUNT, "maximum": 2**62}, "`next` of the page before."),
    "after_event": _parameter("after", {**_COUNT, "maximum": 2**62}, "Read on after this cursor; 0 is the beginning."),
    "since": _parameter("since", _TIME, "Only what was decided at this time or later."),
    "until": _parameter("until", _TIME, "Only what was decided before this time."),
    "after_line": _parameter("after", {**_COUNT, "maximum": 2**62}, "`next` of the page before."),
    "lines": _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Lines a page."),
    "mcp_session": _parameter("session", _TEXT, "Which conversation it is; the client's own, unless said here."),
    "mcp_cwd": _parameter("cwd", _TEXT, "The folder that the agent works in, for people to see."),
    "mcp_limit": _parameter(
        "limit",
        {"type": "number", "minimum": 1, "maximum": 86_400},
        "When a question that waits returns as pending; 45, or 240 for a client that takes progress.",
    ),
    "MCP-Protocol-Version": _parameter(
        "MCP-Protocol-Version", _TEXT, "The era: `2026-07-28`, or one before it.", place="header"
    ),
    "Mcp-Session-Id": _parameter(
        "Mcp-Session-Id", _TEXT, "In the older era, what the first reply told.", place="header"
    ),
    "Last-Event-ID": _parameter(
        "Last-Event-ID", {**_COUNT, "maximum": 2**62}, "As `after`, and stronger; browsers send it.", place="header"
    ),
}

_SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`handraise token add` makes one."},
    "basic": {"type": "http", "scheme": "basic", "description": "Any user name, the token as password."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "handraise-4263",
        "description": "One half of a browser's session, set by signing in. The number is the port of the desk. Alone "
        "it opens the files of the web app.",
    },
    "session": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Handraise-Session",
        "description": "The other half, which the web app keeps for its origin. Neither half is a token.",
    },
}
_TOGETHER = (("bearer",), ("basic",), ("cookie", "session"))  # each of these is enough; the last is a browser


# Refusals ---------------------------------------------------------------------------------------------------


class _Refusal(NamedTuple):
    status: int
    meaning: str
    message: str  # a real one, for the example
    fields: Mapping[str, Schema] = {}
    facts: Mapping[str, Any] = {}
    optional: tuple[str, ...] = ()


_PROBLEM = _object({"at": _TEXT, "problem": _TEXT})
_QUESTION_PROBLEM = _object({"question": {"type": ["integer", "null"]}, "problem": _TEXT})

_REFUSALS = {
    "bad_request": _Refusal(
        400,
        "The query or the body cannot be read.",
        "wait is a number of seconds from 0 to 300",
    ),
    "unauthorized": _Refusal(
        401,
        "No token, or one that is not or no longer known.",
        "this needs a valid token: send `Authorization: Bearer …`; `handraise token add` makes one",
    ),
    "bad_call": _Refusal(
        401,
        "Who calls is not the place it says it is, or says something that cannot be used.",
        "no channel 'nobody' of this desk is called by its place",
    ),
    "forbidden": _Refusal(
        403,
        "The token's scope is too small, or the Host or Origin is not ours.",
        "the token 'ci' may not do this; it takes the scope 'answer'",
        fields={"scope": _TEXT, "token": _TEXT, "host": _TEXT, "origin": _TEXT},
        facts={"scope": "answer", "token": "ci"},
        optional=("scope", "token", "host", "origin"),
    ),
    "not_found": _Refusal(
        404,
        "There is nothing of that name.",
        "there is no token of that name; `handraise token list` shows them",
    ),
    "ask_not_found": _Refusal(
        404,
        "There is no such ask, or it is not yours to see.",
        "there is no ask 'nobody'; `handraise asks` lists them",
        fields={"id": _TEXT},
        facts={"id": "nobody"},
    ),
    "rule_not_found": _Refusal(
        404,
        "The desk keeps no such rule.",
        "the desk keeps no rule '1f3a9c2e'; `handraise rules` lists them",
        fields={"id": _TEXT},
        facts={"id": "1f3a9c2e"},
    ),
    "session_not_found": _Refusal(
        404,
        "There is no such session.",
        "there is no session 'nobody'",
        fields={"id": _TEXT},
        facts={"id": "nobody"},
    ),
    "chat_not_found": _Refusal(
        404,
        "There is no such chat.",
        "there is no chat 'nobody'; `handraise chat --list` lists them",
        fields={"id": _TEXT},
        facts={"id": "nobody"},
    ),
    "chat_busy": _Refusal(
        409,
        "A reply is being written, or there is none that could be written anew.",
        "chat 'chat_5d41402abc4b2a76b971' takes nothing now: a reply is being written; wait for it, or stop it",
        fields={"id": _TEXT},
        facts={"id": "chat_5d41402abc4b2a76b971"},
    ),
    "plugin_not_found": _Refusal(
        404,
        "There is no agent of that name.",
        "agents: no 'clippy'; there are acp, claude, opencode",
        fields={"family": _TEXT, "name": _TEXT, "names": _list(_TEXT)},
        facts={"family": "agents", "name": "clippy", "names": ["acp", "claude", "opencode"]},
    ),
    "session_differs": _Refusal(
        409,
        "A session of this `id` was started before, with other content.",
        "there is a session 'nightly-7' that began with something else; choose another id",
        fields={"id": _TEXT},
        facts={"id": "nightly-7"},
    ),
    "nothing_to_deliver": _Refusal(
        409,
        "The ask has no answer that its agent could not take.",
        "nothing of ask 'deploy-17' is to be delivered again: its agent has the answer",
        fields={"id": _TEXT},
        facts={"id": "deploy-17"},
    ),
    "session_ended": _Refusal(
        409,
        "The session is over, or was not started here and cannot be steered from here.",
        "session 'ses_5d41402abc4b2a76b971' is done; start a new one with `handraise start`",
        fields={"id": _TEXT, "state": _TEXT},
        facts={"id": "ses_5d41402abc4b2a76b971", "state": "done"},
    ),
    "ask_differs": _Refusal(
        409,
        "Something else was asked under this id.",
        "ask 'build-7' exists with other content; use a new id to ask something else",
        fields={"id": _TEXT},
        facts={"id": "build-7"},
    ),
    "already_answered": _Refusal(
        409,
        "Somebody was faster, and said something else.",
        "ask 'build-7' was already answered by ana in http",
        fields={"id": _TEXT, "by": _TEXT, "via": _TEXT, "at": _TIME, "answer": _ref("Answer")},
    ),
    "ask_withdrawn": _Refusal(
        410,
        "The agent no longer waits.",
        "ask 'build-7' was withdrawn: the agent no longer waits (aborted)",
        fields={"id": _TEXT, "reason": _TEXT_OR_NULL},
        facts={"id": "build-7", "reason": "aborted"},
    ),
    "workflow_not_found": _Refusal(
        404,
        "There is no workflow of that name.",
        "there is no workflow 'shop'; there is release, review",
        fields={"name": _TEXT, "known": _list(_TEXT)},
        facts={"name": "shop", "known": ["release", "review"]},
    ),
    "run_not_found": _Refusal(
        404,
        "There is no such run.",
        "there is no run 'nobody'; `handraise runs` lists them",
        fields={"id": _TEXT},
        facts={"id": "nobody"},
    ),
    "checkpoint_not_found": _Refusal(
        404,
        "There is no such checkpoint.",
        "there is no checkpoint 'nobody'; `handraise runs` shows what waits",
        fields={"id": _TEXT},
        facts={"id": "nobody"},
    ),
    "run_ended": _Refusal(
        409,
        "This does not go with the state that the run or the checkpoint is in.",
        "run run_5d41402abc4b is done, so there is nothing to cancel",
        fields={"id": _TEXT, "state": _TEXT},
        facts={"id": "run_5d41402abc4b", "state": "done"},
    ),
    "input_does_not_fit": _Refusal(
        422,
        "The input is not of the form that the workflow takes. No run was begun.",
        "the input does not fit: goal: Field required",
        fields={"problems": _list(_PROBLEM)},
        facts={"problems": [{"at": "goal", "problem": "Field required"}]},
    ),
    "output_does_not_fit": _Refusal(
        422,
        "The output is not of the form that the checkpoint wants. It stays open.",
        'approved: "perhaps" is not of type "boolean"',
        fields={"problems": _list(_PROBLEM)},
        facts={"problems": [{"at": "approved", "problem": 'approved: "perhaps" is not of type "boolean"'}]},
    ),
    "workflow_not_trusted": _Refusal(
        403,
        "A file of workflows of a project, or one that it imports, that nobody has trusted. Nothing of it was run.",
        "/home/ana/shop/.handraise/workflows/shop.py is not trusted here; `handraise trust` shows what it would do",
        fields={"file": _TEXT},
        facts={"file": "/home/ana/shop/.handraise/workflows/shop.py"},
        optional=("file",),
    ),
    "part_changed": _Refusal(
        409,
        "A part is no longer what the person saw, or is not there. Nothing was trusted.",
        "rules was changed while you looked at it, so nothing was trusted; look again",
        fields={"name": _TEXT},
        facts={"name": "rules"},
    ),
    "workflow_broken": _Refusal(
        422,
        "A file of workflows cannot be loaded.",
        "shop.py:12: plan: {explore}: nothing before it is called 'explore'; there is input",
    ),
    "acp_not_found": _Refusal(
        404,
        "No agent runs over ACP under that id.",
        "no agent runs over ACP as 'nobody'; the first message starts one, with `?agent=`",
        fields={"id": _TEXT},
        facts={"id": "nobody"},
    ),
    "request_not_found": _Refusal(
        404,
        "The agent made no such request.",
        "the agent waits for no answer to a request 'ask-7'; read its stream again",
        fields={"id": {"type": ["string", "integer"]}},
        facts={"id": "ask-7"},
    ),
    "acp_differs": _Refusal(
        409,
        "Another agent runs under that id.",
        "'demo' is 'qwen' already; leave `agent` out, or use another id",
        fields={"id": _TEXT, "agent": _TEXT},
        facts={"id": "demo", "agent": "qwen"},
    ),
    "acp_ended": _Refusal(
        409,
        "The agent has ended.",
        "'qwen', which ran as 'demo', has ended; delete it, then the first message starts it again",
        fields={"id": _TEXT, "agent": _TEXT},
        facts={"id": "demo", "agent": "qwen"},
    ),
    "request_answered": _Refusal(
        409,
        "A client was faster, and said something else.",
        "the agent's request 'ask-7' was answered by ana before, with something else",
        fields={"id": {"type": ["string", "integer"]}, "by": _TEXT},
        facts={"id": "ask-7", "by": "ana"},
    ),
    "messages_gone": _Refusal(
        410,
        "What came after that message is no longer kept, or the agent never said so much.",
        "what came right after message 7 is not kept here; read from the start, without a number",
        fields={"after": _COUNT, "first": _COUNT, "last": _COUNT},
        facts={"after": 7, "first": 100, "last": 20099},
    ),
    "process_failed": _Refusal(
        502,
        "The agent's program does not start, or takes nothing more.",
        "there is no program 'qwen'; install it, or name another one",
        fields={"exit_code": {"type": ["integer", "null"]}},
        optional=("exit_code",),
    ),
    "too_large": _Refusal(
        413,
        "More than 4 MiB.",
        "the body is larger than 4 MiB; send less text",
    ),
    "ask_does_not_fit": _Refusal(
        422,
        "What is asked is malformed or beyond the limits.",
        "questions: an ask has either `questions`, at least one, or a `permission`",
        fields={"problems": _list(_PROBLEM)},
        facts={
            "problems": [
                {"at": "questions", "problem": "an ask has either `questions`, at least one, or a `permission`"}
            ]
        },
    ),
    "answer_does_not_fit": _Refusal(
        422,
        "The answer does not fit what was asked. The ask stays open.",
        "the answer does not fit, the ask stays open: question 1: one value only; got 2",
        fields={"problems": _list(_QUESTION_PROBLEM)},
        facts={"problems": [{"question": 0, "problem": "one value only; got 2"}]},
    ),
    "settings": _Refusal(
        422,
        "What is wanted cannot be had here: a name that is taken, a folder that is not there, a mode that the agent "
        "does not have, a model that is not configured.",
        "there is a token 'ci' already; revoke it first, or choose another name",
    ),
    "extra_missing": _Refusal(
        501,
        "A package is not installed where the desk runs.",
        "this desk has no MCP; `pip install 'handraise[mcp]'` where it runs, and start it again",
    ),
    "overloaded": _Refusal(
        503,
        "Too many calls wait here. What was asked is kept.",
        "5000 calls wait here already; what you asked is kept. Wait on one stream instead "
        "(`GET /v1/events?worker=`), or ask again later under the same id",
    ),
    "store_failed": _Refusal(
        503,
        "The database could not write; nothing of this was kept.",
        "the database could not write (disk I/O error); nothing of this was kept, what was acknowledged before is "
        "safe. Free space on the disk or look at its health, then try again",
    ),
}


def _name(code: str) -> str:
    return "".join(word.capitalize() for word in code.split("_"))


def _refusal_schema(code: str, refusal: _Refusal) -> Schema:
    fields = {"error": {"const": code, "type": "string"}, "message": _TEXT, **refusal.fields}
    schema = _object(fields, optional=refusal.optional)
    facts = refusal.facts
    if code == "already_answered":
        won = _EXAMPLES["Ask"]["answer"]
        facts = {"id": "build-7", "by": won["by"], "via": won["via"], "at": won["at"], "answer": won}
    schema["examples"] = [{"error": code, "message": refusal.message, **facts}]
    return schema


# Shapes -----------------------------------------------------------------------------------------------------

# What is checked beyond the types of the records.
_TEXTS_LIMIT: Schema = {"maxLength": LONGEST_TEXT}
_NAME_LIMIT: Schema = {"minLength": 1, "maxLength": LONGEST_NAME, "pattern": _PRINTABLE}
_LIMITS: dict[str, Schema] = {
    "AskBody.id": {"pattern": _PRINTABLE, "not": {"pattern": r"^(?:@|\.\.?$)"}},
    "AskBody.questions": {"maxItems": MOST_QUESTIONS},
    "Origin.agent": _NAME_LIMIT,
    "Origin.session": _NAME_LIMIT,
    **{
        f"Origin.{name}": {"maxLength": LONGEST_NAME, "pattern": f"^$|{_PRINTABLE}"}
        for name in ("run", "step", "parent")
    },
    **{f"Origin.{name}": _TEXTS_LIMIT for name in ("cwd", "machine")},
    "Question.question": {"minLength": 1, **_TEXTS_LIMIT},
    "Question.header": _TEXTS_LIMIT,
    "Question.options": {"maxItems": MOST_OPTIONS},
    "Option.label": {"minLength": 1, **_TEXTS_LIMIT},
    **{f"Option.{name}": _TEXTS_LIMIT for name in ("description", "value", "preview")},
    "Permission.tool": {"minLength": 1, **_TEXTS_LIMIT},
    **{f"Permission.{name}": _TEXTS_LIMIT for name in ("summary", "command", "cwd", "url")},
    "Permission.replies": {"minItems": 1},
}
_MEANINGS = {
    "Scope.by_desk": "The desk keeps it as rules for the session and its subagents, and the agent is only ever told "
    "`once`. A pattern that no rule can say for certain is not kept.",
    "WithdrawBody.answer": "What a person said in the agent's own terminal. One that does not fit is a withdrawal. Its "
    "`by` is not read: it is `agent`.",
    "ShowingBody.place": "The channel's own word for where it is shown, to find it again.",
    "ShowingBody.left": "It says there how it ended, or is gone: nothing is left to do.",
    "ChannelTestBody.where": "In a channel that shows only what belongs to a place in it: which one.",
    "SessionBody.id": "Makes it safe to repeat: the same id with the same content is the same session.",
    "SessionBody.cwd": "A folder on the machine of the desk that starts it.",
    "SessionBody.mode": "What it may do without asking. Without one its own configuration decides.",
    "SessionBody.command": "What to run, for the agent `acp`: a program that speaks ACP, and its arguments.",
    "SessionBody.stale_after": "Seconds without a sign of life and without an open ask after which a turn is stopped.",
    "ChatBody.model": "A name under `[models]` in the settings of the desk. Without one, the default.",
    "ChatBody.title": "Without one the chat is called by how its first message begins.",
    "ChatBody.by": "Who says it, where the token may speak for others.",
    "ChatBody.via": "The place it is said in.",
    "ChatMessageBody.nonce": "Any text of yours; the same one again is the same message, so a send may be repeated.",
    "ChatMessageBody.by": "Who says it, where the token may speak for others.",
    "ChatMessageBody.via": "The place it is said in.",
    "RunBody.input": "What the workflow takes, at most 1 MiB of it. Without one, an empty object.",
    "RunBody.cwd": "A folder on the machine of the desk: where the workflow is looked for, and where it runs. Without "
    "one, that of the desk.",
    "TrustBody.cwd": "A folder of the project, on the machine of the desk.",
    "PartBody.name": "As `GET /v1/trust` told it.",
    "PartBody.fingerprint": "As `GET /v1/trust` told it: what the person saw.",
    "RetryBody.from": "The step from which everything is done again. Without one, what did not succeed.",
    "RetryBody.dry_run": "Only say what would be done.",
    "CheckpointBody.output": "What the checkpoint's `schema` wants.",
    "CheckpointBody.by": "Who gave it, where the token may speak for others.",
    "CheckpointBody.via": "The place it was given in.",
}
_QUESTIONS_OR_PERMISSION = [
    {
        "title": "Questions",
        "required": ["questions"],
        "properties": {"questions": {"minItems": 1}, "permission": {"type": "null"}},
    },
    {
        "title": "A permission",
        "required": ["permission"],
        "properties": {"permission": {"type": "object"}, "questions": {"maxItems": 0}},
    },
]
_ANSWERS_OR_REPLY = [
    {
        "title": "Answers",
        "required": ["answers"],
        "properties": {"answers": {"type": "array"}, "reply": {"type": "null"}},
    },
    {
        "title": "A reply",
        "required": ["reply"],
        "properties": {"reply": {"type": "string"}, "answers": {"type": "null"}},
    },
]
# Without options and own text nobody could answer.
_STATE_OR_LEFT = [
    {
        "required": ["state"],
        "properties": {"state": {"type": "string"}, "left": {"const": False}},
    },
    {"required": ["left"], "properties": {"left": {"const": True}, "state": {"type": "null"}}},
]
_UNANSWERABLE = {
    "required": ["custom"],
    "properties": {"custom": {"const": False}, "options": {"maxItems": 0}, "kind": {"const": "choice"}},
}
_ALWAYS_TOLD = {
    "Answer": ["answers", "reply", "rejected", "reason", "notes", "by", "via", "at"],
    "Ask": [
        *("id", "questions", "permission", "origin", "state", "asked_at", "deadline", "remaining", "fallback"),
        *("answer", "delivered_at", "delivery_error", "withdrawn_reason"),
    ],
}


def _schemas() -> dict[str, Schema]:
    bodies = (
        AskBody,
        AnswerBody,
        RejectBody,
        WithdrawBody,
        LinkBody,
        ShowingBody,
        ChannelTestBody,
        DeliveriesBody,
        SessionBody,
        PromptBody,
        TokenBody,
        TrustBody,
    )
    of_runs, of_chats = (RunBody, RetryBody, CheckpointBody), (ChatBody, ChatMessageBody, ChatTitleBody)
    schemas = json_schemas(Ask, *bodies, RuleBody, RuleTestBody, *of_runs, *of_chats, refs=_REFS)
    for schema in schemas.values():
        schema.pop("title", None)
        for field in schema["properties"].values():
            field.pop("title", None)
    for where, limits in _LIMITS.items():
        record, _, name = where.partition(".")
        field = schemas[record]["properties"][name]
        given = next((branch for branch in field.get("anyOf", ()) if branch.get("type") != "null"), field)
        given |= limits
    for where, meaning in _MEANINGS.items():
        record, _, name = where.partition(".")
        schemas[record]["properties"][name]["description"] = meaning
    schemas["AskBody"]["oneOf"] = _QUESTIONS_OR_PERMISSION
    schemas["AnswerBody"]["oneOf"] = _ANSWERS_OR_REPLY
    schemas["ShowingBody"]["oneOf"] = _STATE_OR_LEFT
    schemas["Question"]["not"] = _UNANSWERABLE
    for name, always in _ALWAYS_TOLD.items():
        schemas[name]["required"] = always
    schemas["Ask"]["properties"] |= {"asked_at": _TIME, **_OF_PERMISSIONS}
    schemas |= _TOLD
    for name, example in _EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return schemas | {_name(code): _refusal_schema(code, refusal) for code, refusal in _REFUSALS.items()}


# What the desk found out about a permission when it was asked.
_OF_PERMISSIONS: dict[str, Schema] = {
    "risks": {
        "type": "array",
        "items": _one_of(*RISKS),
        "description": "Of a permission: what it can do that people should think twice about. It leaves out nothing "
        "that it knows, and it does not know everything.",
    },
    "commands": {
        **_list(_TEXT),
        "minItems": 2,
        "description": "Of a permission: the commands of its line, in order, where there is more than one.",
    },
    "doubt": _TEXT
    | {"description": "Of a permission: why it cannot be said for certain what it does. Not there where it can be."},
    "only_at_desk": _TEXT
    | {
        "description": "Of a permission: why an answer link, a notification or a place that does not say for sure who "
        "answers can only refuse it. Not there where they can allow it."
    },
    "card": _object(
        {
            "heading": _object({"key": _TEXT, "count": _COUNT, "host": _TEXT}, optional=["count", "host"])
            | {"description": "What the agent wants: a key of the word catalogue, and what the ask does not say."},
            "parts": _list(_one_of("plan", "command", "commands", "paths", "url", "diff", "arguments", "approved"))
            | {"description": "What it is about, in the order in which it is read."},
            "arguments": _list(_TEXT)
            | {"description": "The names in `permission.input` that no other part shows; all, where this is missing."},
            "approved": _list(_TEXT)
            | {"description": "The names in `permission.extra.input`, which goes back to the agent with its plan."},
            "elsewhere": _list(_COUNT)
            | {"description": "Places in `permission.paths` where a link leads elsewhere: see `permission.resolved`."},
            "claim": {"type": "boolean"}
            | {"description": "`permission.summary` says something that no part says. It may be a lie."},
            "lacks_diff": {"type": "boolean"}
            | {"description": "Files are to be changed, and the agent does not show how."},
            "notification": {"type": "boolean"} | {"description": "The button of a notification may allow it."},
        },
        optional=["arguments", "approved", "elsewhere", "claim", "lacks_diff", "notification"],
    )
    | {
        "description": "Of a permission: what people have to see of it. It names fields of the ask. "
        "Asks of older desks have none."
    },
}

_RULE = {
    "id": _TEXT | {"description": "Of one that is kept at the desk."},
    "source": _TEXT | {"description": "Where it stands, as in `handraise.toml:12` or `desk:1f3a9c2e`."},
    "tool": _TEXT,
    "action": {"type": "string", "enum": ["allow", "reject", "ask", "delegate"]},
    "matches": {"type": "object", "description": "By argument: a pattern, a list of which any has to fit, or a flag."},
    "agent": _TEXT,
    "context": {"type": "string", "enum": ["thread", "subagent"]},
    "message": _TEXT,
    "to": _list(_TEXT),
    "timeout": {"type": "number"},
    "session": _TEXT | {"description": "It holds for this session and its subagents: somebody said `always` there."},
    "by": _TEXT | {"description": "Who said that."},
    "never": _TEXT | {"description": "Why it can never match."},
    "warnings": _list(_TEXT) | {"description": "What it allows that its author may not see."},
}
_SESSION = {
    "id": _TEXT,
    "agent": _TEXT,
    "state": {
        **_one_of("running", "waiting", "idle", "failed", "done"),
        "description": "`waiting` is for a person; `failed` says why in `error` and takes another prompt; `done` takes "
        "none.",
    },
    "managed": {"type": "boolean", "description": "It was started here, so it can be steered from here."},
    "parent": {**_TEXT_OR_NULL, "description": "Of a subagent: the session that it works for."},
    "cwd": _TEXT_OR_NULL,
    "machine": _TEXT_OR_NULL,
    "run": {**_TEXT_OR_NULL, "description": "The run of a workflow that started it."},
    "step": {**_TEXT_OR_NULL, "description": "And the step of that run."},
    "mode": {**_TEXT_OR_NULL, "enum": [*MODES, None]},
    "command": {
        "type": ["array", "null"],
        "items": _TEXT,
        "description": "Of the agent `acp`: what is run, where the settings do not say it.",
    },
    "error": _TEXT_OR_NULL,
    "created_at": _TIME,
    "updated_at": _TIME,
    "open_asks": {**_COUNT, "description": "Its own and those of its subagents."},
}
_RUN: dict[str, Schema] = {
    "id": _TEXT,
    "workflow": _TEXT,
    "state": {
        **_one_of("running", "waiting", "done", "failed", "cancelled", "parked"),
        "description": "`waiting` is for a person; `parked` cannot go on as it is, and says why in `error`.",
    },
    "input": {},
    "output": {"description": "What its last step gave."},
    "error": _TEXT_OR_NULL,
    "file": {**_TEXT, "description": "Where the workflow was found."},
    "cwd": _TEXT,
    "created_at": _TIME,
    "created_by": {**_TEXT, "description": "Name of the token."},
    "updated_at": _TIME,
    "open_asks": _COUNT,
    "open_checkpoints": _COUNT,
}
_TRACE_EVENT: dict[str, Schema] = {
    "id": _TEXT,
    "type": {
        "type": "string",
        "description": "More are in [events](events.md#the-trace-of-a-run).",
        "examples": list(TYPES),
    },
    "run_id": _TEXT,
    "step_id": _TEXT_OR_NULL,
    "session_id": _TEXT,
    "question": {**_ref("AgentQuestion"), "description": "Of `agent_question_asked`."},
    "question_id": {**_TEXT, "description": "Of the other events about a question."},
    "answers": {**_list(_list(_TEXT)), "description": "Of `agent_question_answered`: labels, a list per question."},
    "permission": {"type": "object", "description": "Of `agent_permission_asked`."},
    "permission_id": {**_TEXT, "description": "Of the other events about a permission."},
    "reply": {**_TEXT, "description": "Of `agent_permission_answered`: `once`, `always` or `reject`."},
    "reason": _TEXT_OR_NULL,
    "by": _TEXT_OR_NULL,
    "why": {**_list(_TEXT), "description": "Of an answer that policy gave: the rules that decided or were skipped."},
    "checkpoint_id": _TEXT,
    "attempt": _COUNT,
    "kind": {**_TEXT, "description": "Of a step."},
    "command": {**_TEXT, "description": "Of `step_started` of a shell step: what is run."},
    "steps": {
        **_list({"type": "object"}),
        "description": "Of `run_started` and `steps_changed`: what stands after what. Each has an `id` and a `kind`, "
        "or `branches` that run at the same time, which are lists of the same.",
    },
    "output": {"description": "Of a step or a run that is done."},
    "error": _TEXT_OR_NULL,
    "timestamp": _TIME,
}
_CHECKPOINT: dict[str, Schema] = {
    "id": _TEXT,
    "run": _TEXT,
    "workflow": _TEXT,
    "cwd": _TEXT,
    "step": _TEXT,
    "state": _one_of("open", "given", "withdrawn"),
    "input": {**_TEXT, "description": "What people are shown."},
    "schema": {"type": ["object", "boolean"], "description": "JSON Schema of what they have to give."},
    "output": {"description": "What was given."},
    "by": _TEXT_OR_NULL,
    "via": _TEXT_OR_NULL,
    "asked_at": _TIME,
}
_AGENT_QUESTION: dict[str, Schema] = {
    "id": _TEXT,
    "session_id": _TEXT,
    "step_id": _TEXT,
    "questions": _list(
        _object(
            {
                "question": _TEXT,
                "header": _TEXT,
                "options": _list(_object({"label": _TEXT, "description": _TEXT})),
                "multiple": {"type": "boolean"},
                "custom": {"type": "boolean"},
            }
        )
    ),
    "asked_at": _TIME,
}
_MESSAGE = {
    "id": {"type": "string", "description": "Ids sort in the order in which it was said."},
    "role": {**_one_of("person", "agent", "tool", "notice"), "description": "A `notice` is the desk's own."},
    "text": _TEXT,
    "at": _TIME,
    "extra": {
        "type": "object",
        "description": "Of a tool: its name and input. Of a notice about a turn that did not reach its end: `turn`, "
        "which is `aborted` or `failed`.",
    },
}
_CHAT: dict[str, Schema] = {
    "id": _TEXT,
    "title": _TEXT,
    "model": {**_TEXT, "description": "A name under `[models]` in the settings."},
    "state": {
        **_one_of("idle", "writing", "asking"),
        "description": "`writing` a reply, also one that is only wanted yet; `asking` while its question waits.",
    },
    "ask": {**_TEXT_OR_NULL, "description": "The ask of the question that waits."},
    "version": {**_COUNT, "description": "It grows with every change. Give it as `since` to read what is newer."},
    "created_at": _TIME,
    "updated_at": _TIME,
}
_CHAT_BLOCK: dict[str, Schema] = {
    "type": {
        **_TEXT,
        "description": "`content` and `reasoning_content` are text, `tool_call` is a tool that was used, `error` says "
        "what went wrong, `action` is something that a person does. Newer desks may tell more of them: show what you "
        "do not know as a plain line.",
    },
    "content": {**_TEXT, "description": "What people read: text, an error, a question."},
    "status": {
        **_TEXT,
        "description": "`success`; `loading` and `error` of a tool; `pending` and `denied` of an action.",
    },
    "tool_call": {
        **_object({"id": _TEXT, "name": _TEXT, "params": _TEXT, "response": _TEXT}, optional=["response"]),
        "description": "Of a tool: `params` is JSON, `response` what it said, cut to 4,000 characters.",
    },
    "action_type": {**_TEXT, "description": "Of an action. `question_request` is a question."},
    "extra": {
        "type": "object",
        "description": "Of an action. That of a question is a ChatQuestion. Of an error about a question that was not "
        "allowed: `violation`, a key of our catalogue, and what is filled in.",
    },
}
_CHAT_QUESTION: dict[str, Schema] = {
    "needsUserAction": {"type": "boolean", "description": "As long as it waits."},
    "questionHeader": _TEXT,
    "questionText": _TEXT,
    "questionOptions": _list(_object({"label": _TEXT, "description": _TEXT}, optional=["description"])),
    "questionMultiple": {"type": "boolean"},
    "questionCustom": {"type": "boolean", "description": "Whether a card takes own words. A message always does."},
    "questionResolution": _one_of("asked", "replied", "rejected"),
    "answerText": {**_TEXT, "description": "What was answered, in full."},
    "answerMessageId": {**_TEXT, "description": "The message that a person wrote instead of choosing."},
    "askId": {**_TEXT, "description": "The ask through which it is answered or rejected."},
    "toolCallId": {**_TEXT, "description": "What the model called the question."},
}
_CAN = (
    *("questions", "permissions", "several_questions", "multi_select", "free_text", "notes", "edits", "plans"),
    *("subagents", "resume", "attach"),
)
_CAPABILITIES: dict[str, Schema] = {
    "agent": _TEXT,
    "installed": {"type": "boolean"},
    "version": _TEXT_OR_NULL,
    "driven": {**_TEXT_OR_NULL, "description": "The version that was run with this release of handraise, if any."},
    "program": {**_TEXT_OR_NULL, "description": "Where it is."},
    **{name: {"type": "boolean"} for name in _CAN},
    "modes": _list(_TEXT),
    "checked": {**_list(_TEXT), "description": "The fields that were asked of the running program."},
    "problem": {**_TEXT_OR_NULL, "description": "Why it cannot be used here, and what to do."},
}
_LIST_OR_NULL: Schema = {"type": ["array", "null"]}
_AUDIT_LINE: dict[str, Schema] = {
    name: {**schema, "description": meaning}
    for name, schema, meaning in (
        ("cursor", _COUNT, "Of the event it was told with."),
        ("at", _TIME, "When it was decided."),
        ("decision", _one_of("answered", "rejected", "withdrawn", "kept_waiting"), "What was decided."),
        ("decided_by", _one_of("person", "policy", "timeout", "agent"), "Who or what did."),
        ("by", _TEXT_OR_NULL, "The name that the decision carries. Programs of an admin may say another than theirs."),
        ("via", _TEXT_OR_NULL, "Through what: `http`, `cli`, `terminal`, `sdk`, `opencode`, `policy`, …"),
        (
            "identity",
            {"type": ["string", "null"], "enum": ["strong", "shared", None]},
            "How sure it is who decided: `shared` where others could have been it too. Null where nobody did.",
        ),
        ("token", _TEXT_OR_NULL, "Name of the token it came with; null where no call was made."),
        ("address", _TEXT_OR_NULL, "Where the call came from, as the desk saw it: behind a proxy, the proxy."),
        ("ask", _TEXT, "Id of the ask."),
        ("kind", _one_of("question", "permission", "plan"), "What kind of ask."),
        ("title", _TEXT, "What was asked, or was to be done, on one line; hidden characters are spelled out."),
        ("agent", _TEXT, "Who asked."),
        ("session", _TEXT, "In which session."),
        ("run", _TEXT_OR_NULL, "In which run."),
        ("step", _TEXT_OR_NULL, "In which step of it."),
        ("cwd", _TEXT_OR_NULL, "In which folder."),
        ("machine", _TEXT_OR_NULL, "On which machine."),
        ("answers", {**_LIST_OR_NULL, "items": _list(_TEXT)}, "Values given, a list per question."),
        ("reply", _TEXT_OR_NULL, "What a permission got: `once`, `always`, `reject`."),
        ("scope", _TEXT_OR_NULL, "How far an `always` reaches."),
        ("patterns", {**_LIST_OR_NULL, "items": _TEXT}, "What an `always` was narrowed to."),
        ("input", {"type": ["object", "null"]}, "What the tool gets instead, where it was edited."),
        ("reason", _TEXT_OR_NULL, "Why it was rejected or withdrawn, or what was said with a reply."),
        ("notes", {**_LIST_OR_NULL, "items": _TEXT_OR_NULL}, "What was said beside the answers."),
        ("why", {**_LIST_OR_NULL, "items": _TEXT}, "How policy came to it: rules, the timeout."),
    )
}
_SHOWING: dict[str, Schema] = {
    "channel": _TEXT,
    "state": {
        **_one_of(*get_args(Showing)),
        "description": "`shown` where the place says that somebody saw it.",
    },
    "error": {**_TEXT_OR_NULL, "description": "Why it failed."},
    "at": _TIME,
}
_REACH: dict[str, Schema] = {
    name: {**schema, "description": meaning}
    for name, schema, meaning in (
        ("options", _COUNT, "Choices that it shows as controls of its own; 0: people read them and write."),
        ("describes", {"type": "boolean"}, "With a line under each."),
        ("multiple", {"type": "boolean"}, "Several of them at once."),
        ("text", {"type": "boolean"}, "Own words in place."),
        ("edits", {"type": "boolean"}, "What was posted is rewritten once it is settled."),
        ("needs_address", {"type": "boolean"}, "It calls the desk, which must be reachable from there."),
        ("acknowledge", {"type": ["number", "null"]}, "Seconds within which its calls must be answered."),
        ("starts_agents", {"type": "boolean"}, "So it runs where a worker is."),
        ("longest", _COUNT, "Characters of one message."),
        ("identity", _one_of("strong", "shared"), "Whether it says which person answers, or only that somebody did."),
    )
}
_PROBLEM_CODES: Schema = _list({"type": "string", "enum": list(PROBLEMS)})
_SCOPES: Schema = _list({"type": "string", "enum": ["ask", "answer", "admin"]})

_TOLD: dict[str, Schema] = {
    "Asks": _object({"asks": _list(_ref("Ask")), "next": _TEXT}, optional=["next"]),
    "Reported": _object({"reported": _COUNT, "unknown": _list(_TEXT)}),
    "Event": _object(
        {
            "type": {
                "type": "string",
                "description": "Newer desks may tell more of them.",
                "examples": ["asked", "answered", "rejected", "withdrawn", "delivered", "deadline_moved", "unseen"],
            },
            "at": _TIME,
            "ask": _ref("Ask"),
        }
    ),
    "Pruned": _object(
        {
            "type": {"const": "pruned", "type": "string"},
            "at": _TIME,
            "through": {
                **_COUNT,
                "description": "The cursor of the last event that is gone, and the `id` of the frame.",
            },
            "message": _TEXT,
        }
    ),
    "Hint": _object(
        {
            "type": {"const": "changed", "type": "string"},
            "at": _TIME,
            "what": {
                **_list({"type": "string", "enum": ["chats", "checkpoints", "runs", "sessions", "showings"]}),
                "description": "Of these something may have changed. The first hint of a stream names all you asked "
                "for.",
            },
        }
    ),
    "Draft": _object(
        {
            "type": {"const": "draft", "type": "string"},
            "chat": _TEXT,
            "message": {**_TEXT, "description": "The id of the reply that grows."},
            "block": {**_COUNT, "description": "Which of its blocks, from 0."},
            "offset": {
                **_COUNT,
                "description": "How long the text was before, in UTF-16 code units. Append where yours is as long, "
                "leave out what you have, and read the chat where something is missing.",
            },
            "text": _TEXT,
        }
    ),
    "QuestionEvent": _object(
        {
            "type": {"type": "string", "enum": ["question.requested", "question.resolved"]},
            "session_id": _TEXT,
            "at": _TIME,
            "question_id": _TEXT,
            "prompt": _TEXT,
            "options": _list(_TEXT),
            "response": _TEXT_OR_NULL,
            "status": {"type": "string", "enum": ["requested", "answered", "rejected"]},
        }
    ),
    "Cursor": _object({"cursor": _COUNT}),
    "Audit": _object({"lines": _list(_ref("AuditLine")), "next": _TEXT}, optional=["next"]),
    "AuditLine": _object(_AUDIT_LINE),
    "Session": _object(_SESSION),
    "Sessions": _object({"sessions": _list(_ref("Session"))}),
    "Message": _object(_MESSAGE, optional=["extra"]),
    "Messages": _object(
        {
            "messages": _list(_ref("Message")),
            "next": {
                **_TEXT,
                "description": "Only where there are more: give it as `after` to read on, or as `before` if you did.",
            },
        },
        optional=["next"],
    ),
    "Wire": _object(
        {
            "id": _TEXT,
            "at": _TIME,
            "way": {**_one_of("in", "out"), "description": "From the agent, or to it."},
            "name": {**_TEXT, "description": "What the agent's protocol calls it; empty where it has no name for it."},
            "ask": {**_TEXT_OR_NULL, "description": "The ask that it is, or whose answer it carries."},
            "body": {"description": "As it was, but for secrets and for what is too long."},
            "size": {**_COUNT, "description": "Its characters, before it was cut."},
            "pieces": {**_COUNT, "description": "How many in a row it stands for; the body is that of the last one."},
        }
    ),
    "Wires": _object(
        {
            "wire": _list(_ref("Wire")),
            "recording": {"type": "boolean", "description": "Whether this desk keeps such messages."},
            "ask": {
                "anyOf": [_ref("Ask"), {"type": "null"}],
                "description": "With `ask=`: the ask, without secrets too, or null where there is none.",
            },
            "next": _TEXT,
        },
        optional=["ask", "next"],
    ),
    "Capabilities": _object(_CAPABILITIES),
    "Agents": _object({"agents": _list(_ref("Capabilities"))}),
    "Workflow": _object(
        {
            "name": _TEXT,
            "description": _TEXT,
            "file": _TEXT,
            "steps": _list(_object({"id": _TEXT, "kind": _one_of("agent", "checkpoint", "shell", "function")})),
            "input": {"type": ["object", "null"], "description": "JSON Schema of what a run begins with."},
            "problem": {**_TEXT, "description": "Why the file cannot be loaded; then `name` is the file's."},
            "untrusted": {"type": "boolean", "description": "With `problem`: nobody trusted it as it is now."},
        },
        optional=["problem", "untrusted"],
    ),
    "Workflows": _object({"workflows": _list(_ref("Workflow"))}),
    "Run": _object(_RUN),
    "ListedRun": _object({name: kind for name, kind in _RUN.items() if name not in ("input", "output")}),
    "Runs": _object({"runs": _list(_ref("ListedRun"))}),
    "Retried": _object(
        {
            **_RUN,
            "again": {**_list(_TEXT), "description": "Steps that were begun before and are done again."},
            "then": {**_list(_TEXT), "description": "Steps that come after them, for the first time."},
        },
        optional=["then"],
    ),
    "Chat": _object({**_CHAT, "messages": _list(_ref("ChatMessage"))}),
    "ListedChat": _object(_CHAT),
    "Chats": _object(
        {
            "chats": _list(_ref("ListedChat")),
            "models": _list(_object({"name": _TEXT, "api": _one_of(*APIS), "model": _TEXT})),
            "model": {**_TEXT_OR_NULL, "description": "The one that a chat has unless it names another."},
        }
    ),
    "ChatMessage": _object(
        {
            "id": {**_TEXT, "description": "Ids sort in the order in which it was said."},
            "role": _one_of("user", "assistant"),
            "state": {
                **_one_of("done", "writing", "stopped", "failed", "replaced"),
                "description": "One that is `replaced` does not count any more: its reply was written anew.",
            },
            "blocks": _list(_ref("ChatBlock")),
            "at": _TIME,
            "version": {**_COUNT, "description": "The chat's, when it changed last."},
        }
    ),
    "ChatBlock": _object(_CHAT_BLOCK, optional=[name for name in _CHAT_BLOCK if name != "type"]),
    "ChatQuestion": _object(_CHAT_QUESTION, optional=["questionHeader", "answerText", "answerMessageId"]),
    "AgentQuestion": _object(_AGENT_QUESTION),
    "TraceEvent": _object(
        _TRACE_EVENT, optional=[name for name in _TRACE_EVENT if name not in ("id", "type", "run_id", "timestamp")]
    ),
    "Trace": _object(
        {
            "events": _list(_ref("TraceEvent")),
            "next": {**_TEXT, "description": "Give it as `after` to read on."},
            "state": {**_RUN["state"], "description": "Of the run, when it was looked at."},
        }
    ),
    "Checkpoint": _object(_CHECKPOINT),
    "Checkpoints": _object({"checkpoints": _list(_ref("Checkpoint")), "next": _TEXT}, optional=["next"]),
    "RunbookRun": _object(
        {
            "run_id": _TEXT,
            "workflow_id": _TEXT,
            "status": _one_of("running", "success", "failure", "cancelled"),
            "input": {},
            "output": {},
            "error": _TEXT_OR_NULL,
            "started_at": _TIME,
            "completed_at": _TIME,
            "pending_checkpoints": _list(_TEXT),
            "pending_questions": _list(_ref("AgentQuestion")),
        },
        optional=["output", "error", "completed_at"],
    ),
    "RunbookAnswer": {
        **_object(
            {"answers": _list(_list(_TEXT)), "reject": {"type": "boolean"}},
            optional=["answers", "reject"],
        ),
        "anyOf": [
            {"title": "Answers", "required": ["answers"]},
            {"title": "A rejection", "required": ["reject"], "properties": {"reject": {"const": True}}},
        ],
    },
    "RunbookAnswered": _object({"status": {"const": "answered", "type": "string"}}),
    "RunbookRefusal": _object({"error": _TEXT}),
    "Rule": _object(
        _RULE,
        optional=(
            "id",
            "matches",
            "agent",
            "context",
            "message",
            "to",
            "timeout",
            "session",
            "by",
            "never",
            "warnings",
        ),
    ),
    "Rules": _object(
        {"rules": _list(_ref("Rule")), "untrusted": _list(_ref("Rule")), "problems": _list(_TEXT)},
    ),
    "RuleTest": _object(
        {
            "action": {"type": "string", "enum": ["allow", "reject", "ask", "delegate"]},
            "rule": {"anyOf": [_ref("Rule"), {"type": "null"}]},
            "why": _list(_TEXT),
            "problems": _list(_TEXT),
        }
    ),
    "Part": _object(
        {
            "name": {**_TEXT, "description": "What it is called in the project, such as `rules`."},
            "kind": _one_of(*KINDS),
            "project": {**_TEXT, "description": "The folder of the project."},
            "state": {
                **_one_of("trusted", "changed", "new"),
                "description": "`changed` is one that was trusted before. Only what is `trusted` is used.",
            },
            "lines": {**_list(_TEXT), "description": "What it would do; of a changed one, what changed."},
            "problems": {**_list(_TEXT), "description": "Why nobody can trust it, and what helps."},
            "owners": {**_list(_TEXT), "description": "Files of other users, who can change them."},
            "fingerprint": {**_TEXT_OR_NULL, "description": "Stands for what is shown. Null if nobody can trust it."},
        }
    ),
    "TrustedProject": _object({"project": _TEXT, "parts": _list(_TEXT)}),
    "Trust": _object(
        {
            "cwd": _TEXT_OR_NULL,
            "parts": _list(_ref("Part")),
            "problems": {**_list(_TEXT), "description": "Files of workflows that cannot be read."},
            "projects": {**_list(_ref("TrustedProject")), "description": "All that are trusted on this machine."},
        }
    ),
    "AcpMessage": {
        **_object(
            {
                "jsonrpc": {"const": "2.0", "type": "string"},
                "id": {"type": ["string", "integer"]},
                "method": _TEXT,
                "params": {"type": ["object", "array"]},
                "result": {},
                "error": {"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]},
            },
            optional=["id", "method", "params", "result", "error"],
        ),
        "oneOf": [
            {"title": "A request or a notification", "required": ["method"]},
            {"title": "A result", "required": ["id", "result"], "not": {"required": ["method"]}},
            {"title": "An error", "required": ["id", "error"], "not": {"required": ["method"]}},
        ],
    },
    "AcpServer": _object(
        {
            "serverId": _TEXT,
            "agent": _TEXT,
            "createdAtMs": {**_COUNT, "description": "Milliseconds since 1970."},
            "session": {**_TEXT, "description": "The desk's session that its asks belong to."},
            "state": _one_of("starting", "running", "ended"),
            "exitCode": {"type": ["integer", "null"], "description": "Negative for the signal that ended it."},
            "lastEventId": {**_COUNT, "description": "The number of the newest message."},
        }
    ),
    "AcpServers": _object({"servers": _list(_ref("AcpServer"))}),
    "Token": _object({"name": _TEXT, "scopes": _SCOPES, "created_at": _TIME}),
    "Tokens": _object({"tokens": _list(_ref("Token"))}),
    "NewToken": _object({"name": _TEXT, "scopes": _SCOPES, "token": _TEXT}),
    "Showing": _object(_SHOWING),
    "Showings": _object({"showings": _list(_ref("Showing"))}),
    "WaitingShowings": _object({"showings": _list(_object({"ask": _TEXT, **_SHOWING}))}),
    "Reach": _object(_REACH),
    "Channel": _object(
        {
            "name": {**_TEXT, "description": "As the settings call it."},
            "kind": _TEXT,
            "state": {
                **_one_of("running", "elsewhere", "broken"),
                "description": "`elsewhere` where another desk of the database runs it, or none can.",
            },
            "trouble": {**_TEXT_OR_NULL, "description": "Why it is broken."},
            "reach": {"oneOf": [_ref("Reach"), {"type": "null"}], "description": "Null where it cannot be made."},
            "problems": {**_list(_TEXT), "description": "With `examine`: what is wrong, and what to do."},
        },
        optional=["problems"],
    ),
    "Channels": _object({"channels": _list(_ref("Channel"))}),
    "Places": _object({"places": {"type": "object", "additionalProperties": _TEXT}}),
    "ChannelTest": _object({"ask": {**_TEXT, "description": "The id of the ask."}}),
    "Received": _object({"received": {"const": True, "type": "boolean"}}),
    "AnswerLink": _object({"url": {"type": "string", "format": "uri"}, "expires_at": _TIME}),
    "SignInLink": _object({"url": {"type": "string", "format": "uri"}}),
    "Proof": _object({"proof": _TEXT}),
    "Health": _object(
        {"status": {"type": "string", "enum": ["ok", "degraded"]}, "version": _TEXT, "problems": _PROBLEM_CODES}
    ),
    "Down": _object(
        {
            "error": {"type": "string", "enum": ["store_failed"]},
            "message": _TEXT,
            "status": {"type": "string", "enum": ["down"]},
            "version": _TEXT,
            "problems": _PROBLEM_CODES,
        }
    ),
    "Document": {"type": "object"},
    "True": {"const": True, "type": "boolean"},
    "OpenCodeRequests": _list(_object({"id": _TEXT, "sessionID": _TEXT})),
    "OpenCodeAnswers": _object({"answers": _list(_list(_TEXT))}),
    "OpenCodeReply": _object(
        {"reply": {"type": "string", "enum": ["once", "always", "reject"]}, "message": _TEXT_OR_NULL},
        optional=["message"],
    ),
    "OpenCodeResponse": _object({"response": {"type": "string", "enum": ["once", "always", "reject"]}}),
    "OpenCodeBadRequest": _object({"name": {"const": "BadRequest", "type": "string"}, "data": {"type": "object"}}),
    "McpMessage": _object(
        {
            "jsonrpc": {"const": "2.0", "type": "string"},
            "id": {"type": ["string", "integer"]},
            "method": _TEXT,
            "params": {"type": "object"},
        },
        optional=("id", "params"),
    ),
    "McpError": {
        "anyOf": [
            _object({"jsonrpc": _TEXT, "error": _object({"code": {"type": "integer"}, "message": _TEXT})}),
            _ref("BadRequest"),
        ],
    },
    "OpenCodeNotFound": {
        "anyOf": [_object({"_tag": _TEXT, "requestID": _TEXT, "message": _TEXT}), _ref("NotFound")],
    },
}

# Taken from real replies; the tests ask the same again and compare.
_ASK_BODY = {
    "id": "build-7",
    "questions": [
        {
            "header": "Database",
            "question": "Which database should I use?",
            "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres"}],
        }
    ],
    "origin": {"agent": "claude", "session": "claude:4f1c", "cwd": "/home/ana/shop", "machine": "laptop"},
    "question_timeout": 600,
}
_ASK = {
    "id": "build-7",
    "questions": [
        {
            "question": "Which database should I use?",
            "options": [
                {"label": "SQLite", "description": "one file", "value": "SQLite", "recommended": False},
                {"label": "Postgres", "description": "", "value": "Postgres", "recommended": False},
            ],
            "header": "Database",
            "multiple": False,
            "custom": True,
            "kind": "choice",
        }
    ],
    "permission": None,
    "origin": {"agent": "claude", "session": "claude:4f1c", "cwd": "/home/ana/shop", "machine": "laptop"},
    "state": "answered",
    "asked_at": "2026-01-01T12:00:00.000Z",
    "deadline": "2026-01-01T12:10:00.000Z",
    "remaining": None,
    "fallback": {
        "answers": [["SQLite"]],
        "reply": None,
        "rejected": False,
        "reason": None,
        "notes": [],
        "by": "policy:timeout",
        "via": "policy",
        "at": None,
        "why": ["no answer in 600 s", "accept-first"],
    },
    "answer": {
        "answers": [["Postgres"]],
        "reply": None,
        "rejected": False,
        "reason": None,
        "notes": [],
        "by": "ana",
        "via": "http",
        "at": "2026-01-01T12:00:42.000Z",
    },
    "delivered_at": None,
    "delivery_error": None,
    "withdrawn_reason": None,
}
_CHAT_EXAMPLE: dict[str, Any] = {
    "id": "chat_5d41402abc4b2a76b971",
    "title": "Where should the shop keep its data?",
    "model": "local",
    "state": "asking",
    "ask": "chat_5d41402abc4b2a76b971:1767268842000-000000-1f3a9c",
    "version": 4,
    "created_at": "2026-01-01T12:00:00.000Z",
    "updated_at": "2026-01-01T12:00:42.000Z",
    "messages": [
        {
            "id": "1767268800000-000000-4d90e1",
            "role": "user",
            "state": "done",
            "blocks": [{"type": "content", "content": "Where should the shop keep its data?", "status": "success"}],
            "at": "2026-01-01T12:00:00.000Z",
            "version": 1,
        },
        {
            "id": "1767268842000-000000-1f3a9c",
            "role": "assistant",
            "state": "done",
            "blocks": [
                {"type": "content", "content": "It depends on how many write to it.", "status": "success"},
                {
                    "type": "action",
                    "action_type": "question_request",
                    "content": "Which database should I use?",
                    "status": "pending",
                    "extra": {
                        "needsUserAction": True,
                        "questionHeader": "Storage",
                        "questionText": "Which database should I use?",
                        "questionOptions": [{"label": "SQLite", "description": "one file"}, {"label": "PostgreSQL"}],
                        "questionMultiple": False,
                        "questionCustom": True,
                        "questionResolution": "asked",
                        "askId": "chat_5d41402abc4b2a76b971:1767268842000-000000-1f3a9c",
                        "toolCallId": "call_1",
                    },
                },
            ],
            "at": "2026-01-01T12:00:42.000Z",
            "version": 4,
        },
    ],
}
_EXAMPLES: dict[str, Any] = {
    "AskBody": _ASK_BODY,
    "Ask": _ASK,
    "Event": {"type": "answered", "at": "2026-01-01T12:00:42.000Z", "ask": _ASK},
    "Pruned": {
        "type": "pruned",
        "at": "2026-01-01T12:00:42.000Z",
        "through": 1000,
        "message": "events up to this one were pruned before you read them; list the asks again, then go on from here",
    },
    "Hint": {"type": "changed", "at": "2026-01-01T12:00:42.000Z", "what": ["checkpoints"]},
    "AuditLine": {
        "cursor": 2,
        "at": "2026-01-01T12:00:42.000Z",
        "decision": "answered",
        "decided_by": "person",
        "by": "ana",
        "via": "http",
        "identity": "strong",
        "token": "ana",
        "address": "127.0.0.1",
        "ask": "build-7",
        "kind": "question",
        "title": "Which database should I use?",
        "agent": "claude",
        "session": "claude:4f1c",
        "run": None,
        "step": None,
        "cwd": "/home/ana/shop",
        "machine": "laptop",
        "answers": [["Postgres"]],
        "reply": None,
        "scope": None,
        "patterns": None,
        "input": None,
        "reason": None,
        "notes": None,
        "why": None,
    },
    "AnswerBody": {"answers": [["Postgres"]]},
    "RejectBody": {"reason": "let us talk first"},
    "ShowingBody": {"channel": "pager", "state": "sent", "place": "message 17"},
    "Showing": {"channel": "linear", "state": "failed", "error": "HTTP 500", "at": "2026-01-01T12:00:00.000Z"},
    "ChannelTestBody": {"where": "ENG-42"},
    "Channel": {
        "name": "linear",
        "kind": "linear",
        "state": "running",
        "trouble": None,
        "reach": {
            "options": 20,
            "describes": False,
            "multiple": False,
            "text": True,
            "edits": False,
            "needs_address": True,
            "acknowledge": 5.0,
            "starts_agents": True,
            "longest": 4000,
            "identity": "strong",
        },
    },
    "LinkBody": {"by": "ana", "via": "mail", "expires_in": 3600},
    "WithdrawBody": {"reason": "aborted"},
    "DeliveriesBody": {"deliveries": [{"id": "build-7"}, {"id": "build-6", "error": "the agent had died"}]},
    "Reported": {"reported": 1, "unknown": ["build-6"]},
    "Session": {
        "id": "claude:4f1c",
        "agent": "claude",
        "state": "idle",
        "managed": False,
        "parent": None,
        "cwd": "/home/ana/shop",
        "machine": "laptop",
        "run": None,
        "step": None,
        "mode": None,
        "command": None,
        "error": None,
        "created_at": "2026-01-01T12:00:00.000Z",
        "updated_at": "2026-01-01T12:00:00.000Z",
        "open_asks": 0,
    },
    "SessionBody": {
        "agent": "claude",
        "prompt": "Add a health check to the shop",
        "cwd": "/home/ana/shop",
        "mode": "accept-edits",
        "question_timeout": 600,
    },
    "PromptBody": {"prompt": "And a test for it"},
    "Message": {
        "id": "1767268842000-000000-1f3a9c",
        "role": "agent",
        "text": "The health check is in.",
        "at": "2026-01-01T12:00:42.000Z",
    },
    "ChatBody": {"text": "Where should the shop keep its data?"},
    "ChatMessageBody": {"text": "And a backup of it?", "nonce": "7f3c"},
    "ChatTitleBody": {"title": "Storage of the shop"},
    "Chat": _CHAT_EXAMPLE,
    "ChatMessage": _CHAT_EXAMPLE["messages"][1],
    "ChatQuestion": _CHAT_EXAMPLE["messages"][1]["blocks"][1]["extra"],
    "Draft": {
        "type": "draft",
        "chat": "chat_5d41402abc4b2a76b971",
        "message": "1767268842000-000000-1f3a9c",
        "block": 0,
        "offset": 7,
        "text": "depends",
    },
    "RunBody": {"workflow": "shop", "input": {"goal": "a health check"}, "cwd": "/home/ana/shop"},
    "Run": {
        "id": "run_5d41402abc4b",
        "workflow": "shop",
        "state": "waiting",
        "input": {"goal": "a health check"},
        "output": None,
        "error": None,
        "file": "/home/ana/shop/.handraise/workflows/shop.py",
        "cwd": "/home/ana/shop",
        "created_at": "2026-01-01T12:00:00.000Z",
        "created_by": "admin",
        "updated_at": "2026-01-01T12:00:00.000Z",
        "open_asks": 0,
        "open_checkpoints": 1,
    },
    "RetryBody": {"from": "review", "dry_run": True},
    "CheckpointBody": {"output": {"approved": True}},
    "Checkpoint": {
        "id": "run_5d41402abc4b.review",
        "run": "run_5d41402abc4b",
        "workflow": "feature",
        "cwd": "/home/ana/shop",
        "step": "review",
        "state": "open",
        "input": "Do this?",
        "schema": {"type": "boolean"},
        "output": None,
        "by": None,
        "via": None,
        "asked_at": "2026-01-01T12:00:42.000Z",
    },
    "TraceEvent": {
        "id": "run_5d41402abc4b-ask-000000000002",
        "type": "agent_question_answered",
        "run_id": "run_5d41402abc4b",
        "step_id": "plan",
        "session_id": "ses_run_5d41402abc4b_plan_1",
        "question_id": "que_1",
        "answers": [["Postgres"]],
        "by": "ana",
        "timestamp": "2026-01-01T12:00:42.000Z",
    },
    "RunbookAnswer": {"answers": [["Postgres"]]},
    "RuleBody": {"tool": "shell", "action": "allow", "matches": {"command": ["git status*", "git diff*"]}},
    "RuleTestBody": {"tool": "shell", "arguments": {"command": "git push"}, "agent": "codex"},
    "TokenBody": {"name": "ci", "scopes": ["ask"]},
    "TrustBody": {"cwd": "/home/ana/shop", "parts": [{"name": "rules", "fingerprint": "9f86d081884c7d65"}]},
    "Cursor": {"cursor": 2},
    "Proof": {"proof": "5d9c68c6c50ed3d02a2fcf54f63993b6" * 2},
    "Health": {"status": "ok", "version": "0.1.0", "problems": []},
    "Down": {
        "error": "store_failed",
        "message": "the database does not answer; the log of the desk says why",
        "status": "down",
        "version": "0.1.0",
        "problems": ["database_away"],
    },
}
_TEXTS = {
    "text/event-stream": "id: 2\nevent: answered\n"
    'data: {"type":"answered","at":"2026-01-01T12:00:42.000Z","ask":{…}}\n\n',
    "application/openmetrics-text": "# TYPE handraise_asks_open gauge\nhandraise_asks_open 1\n# EOF\n",
}

_ABOUT = """\
An agent raises a hand with `POST /v1/asks`; policy or people answer; the answer goes back. Asking again under the same
id joins, so everything is safe to repeat. Times are RFC 3339 in UTC with milliseconds, durations seconds. Fields we do
not know are kept in `extra` of the record they came with.

Every route but `/healthz` and the sign-in page wants a token. Its scopes: `ask` raises, sees and withdraws its own asks
and reports delivery; `answer` lists, follows events, reads sessions and runs, answers, rejects, keeps waiting and gives
to checkpoints; `admin` does everything, also start and steer sessions and runs, and talk in chats. Where a route needs
a scope it is named with the security scheme. What agents in people's own terminals call, under /attach, is theirs and
no part of this document.

Refusals are `{"error": code, "message": one sentence, …facts}`; a wrong method is 405 `method_not_allowed`, an unknown
path 404 `not_found`."""
