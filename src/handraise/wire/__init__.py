"""Our JSON in both directions: what callers send and what a desk tells, one file a resource.

Bodies and replies are frozen dataclasses without pydantic. `parsing` checks what is sent, `stored` is how a store holds
asks and events, and `schema` makes JSON Schema of all of it; only these three know pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handraise.wire.asks import (
        AnswerBody,
        AskBody,
        DeliveriesBody,
        Delivery,
        HandlingBody,
        LeaseBody,
        LinkBody,
        RejectBody,
        WithdrawBody,
    )
    from handraise.wire.channels import ChannelTestBody, ShowingBody
    from handraise.wire.chats import ChatBody, ChatMessageBody, ChatTitleBody
    from handraise.wire.parsing import (
        MOST_VALUES,
        BadBody,
        check_values,
        handling_fields,
        json_schemas,
        parse,
        parse_ask_body,
        parse_handling,
    )
    from handraise.wire.rules import RuleBody, RuleTestBody
    from handraise.wire.runs import CheckpointBody, RetryBody, RunBody
    from handraise.wire.sessions import PromptBody, SessionBody
    from handraise.wire.stored import (
        LARGE,
        Stored,
        StoredEvent,
        answer_text,
        ask_fields,
        content_text,
        judgement_text,
        parse_answer,
        parse_ask,
        parse_event,
        pruned_frame,
    )
    from handraise.wire.times import time_text, to_milliseconds, to_time
    from handraise.wire.tokens import TokenBody
    from handraise.wire.trust import TrustBody

__all__ = [
    "LARGE",
    "MOST_VALUES",
    "AnswerBody",
    "AskBody",
    "BadBody",
    "ChannelTestBody",
    "ChatBody",
    "ChatMessageBody",
    "ChatTitleBody",
    "CheckpointBody",
    "DeliveriesBody",
    "Delivery",
    "HandlingBody",
    "LeaseBody",
    "LinkBody",
    "PromptBody",
    "RejectBody",
    "RetryBody",
    "RuleBody",
    "RuleTestBody",
    "RunBody",
    "SessionBody",
    "ShowingBody",
    "Stored",
    "StoredEvent",
    "TokenBody",
    "TrustBody",
    "WithdrawBody",
    "answer_text",
    "ask_fields",
    "check_values",
    "content_text",
    "handling_fields",
    "json_schemas",
    "judgement_text",
    "parse",
    "parse_answer",
    "parse_ask",
    "parse_ask_body",
    "parse_event",
    "parse_handling",
    "pruned_frame",
    "time_text",
    "to_milliseconds",
    "to_time",
]

# Modules are loaded when one of their names is wanted, those without pydantic first: a command that only reads replies
# starts quickly.
_MODULES = (
    *("times", "asks", "sessions", "runs", "chats", "rules", "tokens", "trust", "channels"),
    *("stored", "parsing"),
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        for module in _MODULES if name in __all__ else ():
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
