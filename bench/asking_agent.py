"""An ACP agent on stdin and stdout: one question per prompt, and its answer ends the turn.

It does nothing else, so that it is not what gets measured.
"""

import json
import os
from typing import Any

STDIN, STDOUT = 0, 1

QUESTION = (
    b'{"jsonrpc":"2.0","id":"%s","method":"_sandboxagent/session/request_question","params":{"sessionId":"%s",'
    b'"questions":[{"header":"Storage","question":"Which database?","options":['
    b'{"label":"SQLite","description":"one file"},{"label":"PostgreSQL","description":"shared"},'
    b'{"label":"None","description":"in memory"}]}]}}\n'
)
END_OF_TURN = b'{"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn"}}\n'
NEW_SESSION = b'{"jsonrpc":"2.0","id":%d,"result":{"sessionId":"%s"}}\n'
INITIALIZED = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":1,"agentCapabilities":{},"authMethods":[],'
    b'"agentInfo":{"name":"asking-agent","version":"1"}}}\n'
)


class AskingAgent:
    """Many sessions at once. A question's id holds its session's name, so that a reader needs no table."""

    def __init__(self) -> None:
        self.sessions = 0
        self.asked = 0
        self.prompt_of: dict[str, int] = {}

    def reply(self, message: dict[str, Any]) -> bytes:
        match message.get("method"):
            case "session/prompt":
                self.asked += 1
                session: str = message["params"]["sessionId"]
                question = f"q-{session}-{self.asked}"
                self.prompt_of[question] = message["id"]
                return QUESTION % (question.encode(), session.encode())
            case None:
                prompt = self.prompt_of.pop(message["id"], None)
                return b"" if prompt is None else END_OF_TURN % prompt
            case "session/new":
                self.sessions += 1
                return NEW_SESSION % (message["id"], b"s%d" % self.sessions)
            case "initialize":
                return INITIALIZED % int(message["id"])
            case _:
                return b""


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(STDOUT, view) :]


def main() -> None:
    agent = AskingAgent()
    rest = b""
    while data := os.read(STDIN, 1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        write_all(b"".join([agent.reply(json.loads(line)) for line in lines if line]))


if __name__ == "__main__":
    main()
