"""Chats with a model: the messages, the blocks that they are made of, and how a reply grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import Count, Doc, Limits, Name, Time

ChatText = Annotated[str, Limits(pattern=r"\S", max_length=100_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBody:
    """What `POST /v1/chats` takes; with a text, the chat begins with that message."""

    model: Annotated[
        Name | None, Doc("A name under `[models]` in the settings of the desk. Without one, the default.")
    ] = None
    title: Annotated[
        Annotated[str, Limits(max_length=1_000)] | None,
        Doc("Without one the chat is called by how its first message begins."),
    ] = None
    text: ChatText | None = None
    by: Annotated[Name | None, Doc("Who says it, where the token may speak for others.")] = None
    via: Annotated[Name | None, Doc("The place it is said in.")] = None

    EXAMPLE: ClassVar[Any] = {"text": "Where should the shop keep its data?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessageBody:
    """What `POST /v1/chats/{chat}/messages` takes. The same nonce again is the same message."""

    text: ChatText
    nonce: Annotated[
        Name | None, Doc("Any text of yours; the same one again is the same message, so a send may be repeated.")
    ] = None
    by: Annotated[Name | None, Doc("Who says it, where the token may speak for others.")] = None
    via: Annotated[Name | None, Doc("The place it is said in.")] = None

    EXAMPLE: ClassVar[Any] = {"text": "And a backup of it?", "nonce": "7f3c"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTitleBody:
    title: Annotated[str, Limits(min_length=1, max_length=1_000)]

    EXAMPLE: ClassVar[Any] = {"title": "Storage of the shop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChat:
    """A chat as a list has it, without its messages."""

    id: str
    title: str
    model: Annotated[str, Doc("A name under `[models]` in the settings.")]
    state: Annotated[
        Literal["idle", "writing", "asking"],
        Doc("`writing` a reply, also one that is only wanted yet; `asking` while its question waits."),
    ]
    ask: Annotated[str | None, Doc("The ask of the question that waits.")]
    version: Annotated[Count, Doc("It grows with every change. Give it as `since` to read what is newer.")]
    created_at: Time
    updated_at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOption:
    IN_PLACE: ClassVar = True

    label: str
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion:
    needsUserAction: Annotated[bool, Doc("As long as it waits.")]
    questionHeader: str | None = None
    questionText: str
    questionOptions: tuple[ChatOption, ...]
    questionMultiple: bool
    questionCustom: Annotated[bool, Doc("Whether a card takes own words. A message always does.")]
    questionResolution: Literal["asked", "replied", "rejected"]
    answerText: Annotated[str | None, Doc("What was answered, in full.")] = None
    answerMessageId: Annotated[str | None, Doc("The message that a person wrote instead of choosing.")] = None
    askId: Annotated[str, Doc("The ask through which it is answered or rejected.")]
    toolCallId: Annotated[str, Doc("What the model called the question.")]

    EXAMPLE: ClassVar[Any] = {
        "needsUserAction": True,
        "questionHeader": "Storage",
        "questionText": "Which database should I use?",
        "questionOptions": [{"label": "SQLite", "description": "one file"}, {"label": "PostgreSQL"}],
        "questionMultiple": False,
        "questionCustom": True,
        "questionResolution": "asked",
        "askId": "chat_5d41402abc4b2a76b971:1767268842000-000000-1f3a9c",
        "toolCallId": "call_1",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    IN_PLACE: ClassVar = True

    id: str
    name: str
    params: str
    response: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBlock:
    type: Annotated[
        str,
        Doc(
            "`content` and `reasoning_content` are text, `tool_call` is a tool that was used, `error` says what "
            "went wrong, `action` is something that a person does. Newer desks may tell more of them: show what "
            "you do not know as a plain line.",
        ),
    ]
    content: Annotated[str | None, Doc("What people read: text, an error, a question.")] = None
    status: Annotated[
        str | None, Doc("`success`; `loading` and `error` of a tool; `pending` and `denied` of an action.")
    ] = None
    tool_call: Annotated[
        ToolCall | None, Doc("Of a tool: `params` is JSON, `response` what it said, cut to 4,000 characters.")
    ] = None
    action_type: Annotated[str | None, Doc("Of an action. `question_request` is a question.")] = None
    extra: Annotated[
        Mapping[str, Any] | None,
        Doc(
            "Of an action. That of a question is a ChatQuestion. Of an error about a question that was not "
            "allowed: `violation`, a key of our catalogue, and what is filled in.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    id: Annotated[str, Doc("Ids sort in the order in which it was said.")]
    role: Literal["user", "assistant"]
    state: Annotated[
        Literal["done", "writing", "stopped", "failed", "replaced"],
        Doc("One that is `replaced` does not count any more: its reply was written anew."),
    ]
    blocks: tuple[ChatBlock, ...]
    at: Time
    version: Annotated[Count, Doc("The chat's, when it changed last.")]

    EXAMPLE: ClassVar[Any] = {
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
                "extra": ChatQuestion.EXAMPLE,
            },
        ],
        "at": "2026-01-01T12:00:42.000Z",
        "version": 4,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(ListedChat):
    messages: tuple[ChatMessage, ...]

    EXAMPLE: ClassVar[Any] = {
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
            ChatMessage.EXAMPLE,
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    IN_PLACE: ClassVar = True

    name: str
    api: Literal["openai", "anthropic"]
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats:
    chats: tuple[ListedChat, ...]
    models: tuple[ChatModel, ...]
    model: Annotated[str | None, Doc("The one that a chat has unless it names another.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    type: Literal["draft"]
    chat: str
    message: Annotated[str, Doc("The id of the reply that grows.")]
    block: Annotated[Count, Doc("Which of its blocks, from 0.")]
    offset: Annotated[
        Count,
        Doc(
            "How long the text was before, in UTF-16 code units. Append where yours is as long, leave out what "
            "you have, and read the chat where something is missing.",
        ),
    ]
    text: str

    EXAMPLE: ClassVar[Any] = {
        "type": "draft",
        "chat": "chat_5d41402abc4b2a76b971",
        "message": "1767268842000-000000-1f3a9c",
        "block": 0,
        "offset": 7,
        "text": "depends",
    }
