"""An agent that speaks ACP line by line, and does on the wire whatever its prompt says, also what it should not.

    question form      asks both, one after the other, and repeats in its reply what it was sent

It uses nothing but the standard library, so that nothing it gets or sends is read by anybody's code in between.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

Json = dict[str, Any]

CHOICES = [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}]
OPTIONS = [
    {"optionId": "forever", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "now", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
FORM = {
    "type": "object",
    "properties": {
        "db": {"type": "string", "title": "Database", "oneOf": [{"const": "sqlite", "title": "SQLite"}]},
        "db_custom": {"type": "string"},
        "copies": {"type": "integer", "title": "Copies"},
        "parts": {"type": "array", "title": "Parts", "items": {"enum": ["web", "api"]}},
        "fast": {"type": "boolean", "title": "Fast"},
    },
}
ASKS: dict[str, tuple[str, Json]] = {
    "question": (
        "_sandboxagent/session/request_question",
        {"questionId": "q1", "prompt": "Which?", "options": [["option-a", "Option A"], ["option-b", "Option B"]]},
    ),
    "several": (
        "_sandboxagent/session/request_question",
        {"questions": [{"question": "Which?", "options": CHOICES, "multiple": True}, {"question": "Why?"}]},
    ),
    "permission": (
        "session/request_permission",
        {
            "toolCall": {"toolCallId": "c1", "kind": "execute", "title": "make", "rawInput": {"command": "make"}},
            "options": OPTIONS,
        },
    ),
    "qwen": (
        "session/request_permission",
        {
            "toolCall": {
                "toolCallId": "c2",
                "title": "Ask",
                "rawInput": {"questions": [{"question": "Which?", "header": "Database", "options": CHOICES}]},
            },
            "options": OPTIONS[1:],
        },
    ),
    "form": ("elicitation/create", {"mode": "form", "message": "For the shop", "requestedSchema": FORM}),
    "url": ("elicitation/create", {"mode": "url", "message": "Log in", "url": "https://login.test/"}),
    "odd": ("elicitation/create", {"mode": "_telepathy", "message": "Think"}),
    "empty": ("_sandboxagent/session/request_question", {"prompt": 7}),
    "file": ("fs/read_text_file", {"path": "/etc/motd"}),
}


class Agent:
    def __init__(self) -> None:
        self.numbers = count(1)
        self.lines = iter(sys.stdin)
        self.later: list[Json] = []

    def send(self, message: Json) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def read(self) -> Iterator[Json]:
        while True:
            if self.later:
                yield self.later.pop(0)
                continue
            line = next(self.lines, None)
            if line is None:
                return
            yield json.loads(line)

    def response(self, id: Any) -> Json:
        """What was answered to a request; everything else is for later, but for the end of the turn."""
        held: list[Json] = []
        for message in self.read():
            if message.get("id") == id and "method" not in message:
                self.later = held + self.later
                return message
            if message.get("method") == "_die":
                self.die()
            held.append(message)
        raise SystemExit

    def serve(self) -> None:
        sessions = count(1)
        for message in self.read():
            match message.get("method"):
                case "initialize":
                    info = {"agentInfo": {"name": "raw", "version": "1"}, "unknown": {"kept": True}}
                    able = {"agentCapabilities": {"loadSession": True, "_meta": {"mine": 1}}}
                    got = {"got": message["params"], "pid": os.getpid(), "tint": os.environ.get("TINT")}
                    meta = {"_meta": got}
                    self.send({"id": message["id"], "result": {**info, **able, **meta}})
                case "session/new":
                    self.send({"id": message["id"], "result": {"sessionId": f"s{next(sessions)}"}})
                case "session/prompt":
                    self.prompt(message)
                case "fail":
                    error = {"code": -32007, "message": "no", "data": {"why": [1, None]}}
                    self.send({"id": message["id"], "error": error})
                case "session/cancel" | "$/cancel_request" | "_told":
                    self.send({"method": "_heard", "params": message})

    def prompt(self, message: Json) -> None:
        session = message["params"]["sessionId"]
        text = "".join(block["text"] for block in message["params"]["prompt"])
        told = [self.do(word, session, message["id"]) for word in text.split()]
        self.update(session, json.dumps(told))
        self.send({"id": message["id"], "result": {"stopReason": "end_turn"}})

    def update(self, session: str, text: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        self.send({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def die(self) -> None:
        sys.stderr.write("out of ink\n")
        raise SystemExit(3)

    def ask(self, word: str, session: str, *, id: Any = None, **more: Any) -> Any:
        method, params = ASKS[word]
        id = f"ask-{next(self.numbers)}" if id is None else id
        self.send({"id": id, "method": method, "params": {"sessionId": session, **params, **more}})
        return id

    def do(self, word: str, session: str, prompt: Any) -> Any:
        word, _, amount = word.partition(":")
        match word:
            case "reused":  # the same id for one request after the other
                return [self.response(self.ask("permission", session, id=0)) for _ in range(2)]
            case "twice":  # and while the first one is open
                ids = [self.ask("question", session, id=0), self.ask("question", session, id=0)]
                return self.response(ids[0])
            case "both":
                ids = [self.ask("question", session), self.ask("permission", session)]
                return [self.response(id) for id in ids]
            case "child":
                return self.response(self.ask("question", f"{session}-child"))
            case "login":
                return self.response(self.ask("url", session, requestId=prompt))
            case "withdraw" | "unread":
                id = self.ask("question" if word == "withdraw" else "file", session)
                if amount:  # once somebody has seen it
                    next(self.read())
                self.send({"method": "$/cancel_request", "params": {"requestId": id}})
                return self.response(id)
            case "flood":
                for number in range(int(amount)):
                    self.update(session, f"{number} {'x' * 100}")
            case "deep":
                for depth in range(100, 1100, 50):
                    nested = "[" * depth + "]" * depth
                    print(f'{{"jsonrpc":"2.0","method":"_deep","params":{nested}}}', flush=True)
            case "noise":
                print('Loading...\n\n[1, 2]\n{"id": 1}\nNaN\n' + '{"jsonrpc":"2.0","id":99,"result":{}}', flush=True)
            case "die":
                self.die()
            case "busy":  # it goes on to talk while it waits
                id = self.ask("file", session)
                for number in range(int(amount)):
                    self.update(session, str(number))
                return self.response(id)
            case _ if word in ASKS:
                return self.response(self.ask(word, session))
        return word


if __name__ == "__main__":
    Agent().serve()
