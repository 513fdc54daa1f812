"""An agent that speaks ACP and plays what its prompt says, without a model: `python -m handraise.testing.acp_agent`.

    SCRIPT: form permission        asks both, one after the other, and repeats in its reply what it was told

A prompt without a script that contains "question" makes it ask one, and one that says to do something again makes it
ask for its permission twice. Any other prompt is repeated as it is. It is written with the protocol's official package
(`agent-client-protocol`), so that what we send is read by somebody else's code; nothing else of handraise imports that.
`--forgetful` makes one that cannot take a session up again, `--loading` one that tells everything once more when it
does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, cast
from uuid import uuid4

from acp import PROTOCOL_VERSION, Agent, Client, RequestError, run_agent
from acp.helpers import start_tool_call, tool_diff_content, update_agent_message_text
from acp.schema import (
    AgentCapabilities,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationUrlSessionMode,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionModeResponse,
    ToolCallUpdate,
)
from pydantic import AnyUrl

__all__ = ["Player", "main"]

MARK = "SCRIPT:"
AGAIN = "do exactly that again"
QUESTION = "sandboxagent/session/request_question"  # the package puts the underscore before it
FORM = {
    "type": "object",
    "properties": {
        "question_0": {
            "type": "string",
            "title": "Database",
            "description": "Which database?",
            "oneOf": [
                {"const": "SQLite", "title": "SQLite", "description": "a file"},
                {"const": "Postgres", "title": "Postgres", "description": "a server"},
            ],
        },
        "question_0_custom": {"type": "string", "title": "Other"},
    },
}
OPTIONS = [
    PermissionOption(option_id="forever", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="now", name="Allow once", kind="allow_once"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]
MODES = SessionModeState(
    current_mode_id="default",
    available_modes=[SessionMode(id="default", name="Default"), SessionMode(id="plan", name="Plan")],
)


class Player:
    """What the package calls. One word of a script is one thing that it does."""

    client: Client

    def __init__(self, *, forgetful: bool = False, loading: bool = False) -> None:
        self._able = AgentCapabilities()
        if loading:
            self._able = AgentCapabilities(load_session=True)
        elif not forgetful:
            self._able = AgentCapabilities(session_capabilities=SessionCapabilities(resume=SessionResumeCapabilities()))
        self._mode = MODES.current_mode_id
        self._cancelled = asyncio.Event()
        self._calls = 0

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        info = Implementation(name="handraise-player", version="1.0")
        return InitializeResponse(protocol_version=PROTOCOL_VERSION, agent_capabilities=self._able, agent_info=info)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=uuid4().hex, modes=MODES)

    async def resume_session(self, session_id: str, **_: Any) -> ResumeSessionResponse:
        return ResumeSessionResponse(modes=MODES)

    async def load_session(self, session_id: str, **_: Any) -> LoadSessionResponse:
        await self._say(session_id, "what was said before")
        return LoadSessionResponse(modes=MODES)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self._mode = mode_id
        return SetSessionModeResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        self._cancelled.clear()
        text = "".join(block.text for block in prompt if block.type == "text")
        before, mark, script = text.partition(MARK)
        told: list[Any] = [] if mark else [before]
        if not mark and AGAIN in before:
            script = "permission permission"
        elif not mark and "question" in before.lower():
            script = "question"
        for word in script.split():
            try:
                told.append(await self._do(session_id, word))
            except RequestError as error:
                told.append({"code": error.code, "message": str(error)})
            if self._cancelled.is_set():
                return PromptResponse(stop_reason="cancelled")
        await self._say(session_id, json.dumps(told, ensure_ascii=False))
        return PromptResponse(stop_reason="end_turn")

    async def _do(self, session: str, word: str) -> Any:
        match word:
            case "form":
                mode = ElicitationFormSessionMode(
                    session_id=session, requested_schema=ElicitationSchema.model_validate(FORM)
                )
                said = await self.client.create_elicitation("For the shop", mode)
                return said.model_dump(mode="json", exclude_none=True)
            case "url":
                url = ElicitationUrlSessionMode(
                    session_id=session, elicitation_id="e1", url=AnyUrl("https://login.test/")
                )
                said = await self.client.create_elicitation("Please log in", url)
                return said.model_dump(mode="json", exclude_none=True)
            case "permission":
                return await self._permission(session)
            case "child":
                return await self._permission(f"{session}-child")
            case "question":
                options = [["sqlite", "SQLite"], ["pg", "Postgres"]]
                asked = {"sessionId": session, "questionId": "q1", "prompt": "Which database?", "options": options}
                return await self.client.ext_method(QUESTION, asked)
            case "malformed":
                return await self.client.ext_method(QUESTION, {"sessionId": session, "prompt": 7})
            case "unknown":
                return await self.client.ext_method("nobody/knows", {})
            case "mode":
                return self._mode
            case "wait":
                await self._cancelled.wait()
                return "cancelled"
            case "die":
                sys.stderr.write("out of ink\n")
                sys.stderr.flush()
                os._exit(3)
        return word

    async def _permission(self, session: str) -> Any:
        """What is to be done is said with the call; the request only names it."""
        self._calls += 1
        call = f"call_{self._calls}"
        started = start_tool_call(
            call,
            "make a note",
            kind="edit",
            status="pending",
            content=[tool_diff_content("notes.txt", "new\n", "old\n")],
            raw_input={"path": "notes.txt", "text": "new"},
        )
        await self.client.session_update(session, started)
        said = await self.client.request_permission(session, ToolCallUpdate(tool_call_id=call), OPTIONS)
        return said.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _say(self, session: str, text: str) -> None:
        """In two pieces, as models speak."""
        middle = len(text) // 2
        for piece in (text[:middle], text[middle:]):
            await self.client.session_update(session, update_agent_message_text(piece))


def main() -> None:
    player = Player(forgetful="--forgetful" in sys.argv, loading="--loading" in sys.argv)
    asyncio.run(run_agent(cast("Agent", player), use_unstable_protocol=True))


if __name__ == "__main__":
    main()
