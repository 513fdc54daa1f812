"""Plays the program's side of a recorded conversation: `replaying.py RECORDING SENT`. Whatever it is sent goes to SENT.

A recording has a line for each message, `{"dir": "out" | "in", "msg": {…}}`. Before it goes past an "in" it waits for a
line like it: the answer to the same request, else anything that is no answer. `{"raw": "…"}` is written as it stands,
and `{"wait": true}` waits for any line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO


class Host:
    """Who started us."""

    def __init__(self, log: TextIO) -> None:
        self.asked = ""  # the id of the last request that was made of us
        self._log = log
        self._unused: list[dict[str, Any]] = []  # what came before its turn

    def wait(self, expected: dict[str, Any] | None) -> None:
        for message in self._unused:
            if fits(message, expected):
                self._unused.remove(message)
                return
        while not fits(message := self._read(), expected):
            self._unused.append(message)

    def _read(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        self._log.write(line)
        self._log.flush()
        message: dict[str, Any] = json.loads(line)
        self.asked = message.get("request_id", self.asked)
        return message


def fits(message: dict[str, Any], expected: dict[str, Any] | None) -> bool:
    return expected is None or answers(message) == answers(expected)


def answers(message: dict[str, Any]) -> str | None:
    response = message.get("response")
    return response["request_id"] if isinstance(response, dict) else None


def main() -> None:
    recording, sent = map(Path, sys.argv[1:3])  # more arguments are the agent's own
    with sent.open("a") as log:
        host = Host(log)
        for line in recording.read_text().splitlines():
            match json.loads(line):
                case {"wait": True}:
                    host.wait(None)
                case {"dir": "in", "msg": expected}:
                    host.wait(expected)
                case {"raw": raw}:
                    print(raw, flush=True)
                case {"msg": message}:
                    if message.get("type") == "control_response":
                        message["response"]["request_id"] = host.asked
                    print(json.dumps(message), flush=True)
        while True:
            host.wait(None)


main()
