"""How a connection over ACP begins: who we are, what we can do, and what the agent says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from handraise.agents._conversation import LONGEST_WORDS
from handraise.agents._programs import last_words, listening
from handraise.errors import AgentFailed, ProcessFailed
from handraise.text.inert import inert
from handraise.transports.jsonrpc import METHOD_NOT_FOUND, Id, JsonRpc, PeerGone, RpcError
from handraise.transports.process import Process

__all__ = ["introduce", "request", "shake_hands", "ways_to_load"]

VERSION = 1  # of the protocol
CLIENT: Mapping[str, Any] = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    "elicitation": {"form": {}, "url": {}},  # without it, agents take their question tool away
    "_meta": {"sandboxagent.dev": {"sessionRequestQuestion": True}},
}
START = 60.0  # seconds for each step of the handshake; agents in Node take some on a busy machine
LOGIN_WANTED = -32000  # the protocol's own


async def shake_hands(process: Process, *, name: str) -> Mapping[str, Any]:
    """What an agent says of itself, without a session. Raises AgentFailed."""
    rpc = JsonRpc(process, asked=_refuse, told=lambda method, params: None)
    async with listening(rpc.listen()):
        return await introduce(rpc, process, name=name)


async def _refuse(id: Id, method: str, params: dict[str, Any]) -> Any:
    raise RpcError(f"there is no session for {method[:100]}", number=METHOD_NOT_FOUND)


async def introduce(rpc: JsonRpc, process: Process, *, name: str) -> Mapping[str, Any]:
    ours = {"name": "handraise", "version": version("handraise")}
    asking = {"protocolVersion": VERSION, "clientCapabilities": CLIENT, "clientInfo": ours}
    told = await request(rpc, process, "initialize", asking, name=name)
    spoken = told.get("protocolVersion")
    if spoken != VERSION:
        raise AgentFailed(
            f"{name} speaks version {inert(str(spoken), keep='')[:20]} of ACP and not {VERSION}; "
            "install a version of it that does"
        )
    return told


async def request(
    rpc: JsonRpc, process: Process, method: str, params: Mapping[str, Any], *, name: str
) -> Mapping[str, Any]:
    """A step that takes seconds at most. Raises AgentFailed."""
    try:
        async with asyncio.timeout(START):
            told = await rpc.request(method, params)
    except TimeoutError:
        raise AgentFailed(
            f"{name} did not answer {method!r} in {START:.0f} seconds; check that it speaks ACP"
        ) from None
    except RpcError as error:
        words = inert(error.message)[:LONGEST_WORDS]
        if error.number == LOGIN_WANTED:
            raise AgentFailed(f"{name} wants you to log in ({words}); start it once by itself") from error
        raise AgentFailed(f"{name} refused {method!r}: {words}") from error
    except (PeerGone, ProcessFailed) as error:
        await process.close()
        words = last_words(process) or f"its process ended with exit code {process.exit_code}"
        raise AgentFailed(f"{name} did not start: {words}") from error
    return told if isinstance(told, Mapping) else {}


def ways_to_load(told: Mapping[str, Any]) -> list[str]:
    """How the agent takes a session up again. Resuming comes first: it does not tell everything once more."""
    able = told.get("agentCapabilities")
    if not isinstance(able, Mapping):
        return []
    of_sessions = able.get("sessionCapabilities")
    resumes = isinstance(of_sessions, Mapping) and isinstance(of_sessions.get("resume"), Mapping)
    return ["session/resume"] * resumes + ["session/load"] * (able.get("loadSession") is True)
