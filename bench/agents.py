"""`make bench-agents`: what the desk adds to a real agent's question, beside the same agent without us in one run.

Two figures per agent: the model emitted the call → the question is there for somebody to see, and the answer was sent
→ the agent's next request reaches the model. *Own* is a bare client of that agent's own interface, which answers as
soon as it hears the question; *ours* is a desk (`handraise serve` on SQLite), a listener on its event stream and an
answer over HTTP. Own and ours take turns, question by question, with one model and one clock for both.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2

from handraise.client import Client
from handraise.config import Settings
from handraise.events import Asked
from handraise.testing.model import Request, ScriptedModel, Step, call
from handraise.transports.process import Process, end
from handraise.transports.sse import Frames
from servers import Server, desk, free_port
from tests.helpers.trusting import trust_project
from tests.live.homes import Home, claude_home, opencode_home
from tests.live.programs import PINNED, ensure

DOCS = Path(__file__).parent.parent / "docs"
MOST = 10.0  # milliseconds that the desk may add to each
PROMPT = "SCENARIO:bench"
QUESTION = {
    "question": "Which database?",
    "header": "Database",
    "options": [{"label": "SQLite", "description": "a file"}, {"label": "Postgres", "description": "a server"}],
}
PATIENCE = 60.0
WARM_UP = 3


class Peer(Protocol):
    """Something that runs a turn in which the agent asks once, and answers at once."""

    async def turn(self) -> tuple[float, float]:
        """When the question was there to be seen, and when the answer was about to be sent."""


class Timed:
    """The model's side of the clock."""

    def __init__(self) -> None:
        self.emitted = 0.0
        self.model = ScriptedModel({"bench": [self._ask, "done"]})

    def _ask(self, request: Request) -> Step:
        self.emitted = time.monotonic()
        if request.api == "messages":
            return call("AskUserQuestion", questions=[{**QUESTION, "multiSelect": False}])
        return call("question", questions=[QUESTION])

    async def measure(self, peer: Peer) -> tuple[float, float]:
        """Milliseconds from the call to the question, and from the answer to the next request."""
        before = len(self.model.requests)
        async with asyncio.timeout(PATIENCE):
            seen, sent = await peer.turn()
            next_request = await self.model.requested(before + 2)
        return (seen - self.emitted) * 1000, (next_request.at - sent) * 1000


# Without us ------------------------------------------------------------------------------------------


class BareOpenCode:
    """A client of `opencode serve`: its event stream and its reply route."""

    def __init__(self, http: httpx2.AsyncClient, session: str) -> None:
        self._http = http
        self._session = session
        self._events: asyncio.Queue[tuple[float, dict[str, Any]]] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def started(cls, command: Path, home: Home) -> AsyncIterator[Peer]:
        port = free_port()
        arguments = [str(command), "serve", "--port", str(port), "--hostname", "127.0.0.1"]
        process = await Process.start_detached(arguments, cwd=home.project, env=home.env, log=home.project / "log")
        try:
            async with httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False
            ) as http:
                await _until_healthy(http)
                session = (await http.post("/session", json={"title": "bench"})).json()["id"]
                peer = cls(http, session)
                listening = asyncio.create_task(peer._listen())
                try:
                    await peer._next("server.connected")
                    yield peer
                finally:
                    listening.cancel()
        finally:
            await end(process, patience=5)

    async def _listen(self) -> None:
        frames = Frames()
        async with self._http.stream("GET", "/event", timeout=None) as response:
            async for chunk in response.aiter_bytes():
                at = time.monotonic()
                for frame in frames.feed(chunk):
                    self._events.put_nowait((at, json.loads(frame.data)))

    async def _next(self, type: str) -> tuple[float, dict[str, Any]]:
        while True:
            at, event = await self._events.get()
            if event["type"] == type:
                return at, event["properties"]

    async def turn(self) -> tuple[float, float]:
        prompt = {"parts": [{"type": "text", "text": PROMPT}]}
        await self._http.post(f"/session/{self._session}/prompt_async", json=prompt)
        seen, asked = await self._next("question.asked")
        sent = time.monotonic()
        await self._http.post(f"/question/{asked['id']}/reply", json={"answers": [["SQLite"]]})
        await self._next("session.idle")
        return seen, sent


class BareClaude:
    """The control protocol on stdin and stdout."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lines = process.lines()

    @classmethod
    @asynccontextmanager
    async def started(cls, command: Path, home: Home) -> AsyncIterator[Peer]:
        arguments = [str(command), "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        arguments += ["--permission-prompt-tool", "stdio", "--session-id", str(uuid.uuid4())]
        async with await Process.start(arguments, cwd=home.project, env=home.env) as process:
            peer = cls(process)
            await peer._send({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}})
            await peer._next("control_response")
            yield peer

    async def _send(self, message: dict[str, Any]) -> None:
        await self._process.write_line(json.dumps(message).encode())

    async def _next(self, type: str) -> tuple[float, dict[str, Any]]:
        async for line in self._lines:
            at = time.monotonic()
            message = json.loads(line)
            if message["type"] == type:
                return at, message
        raise RuntimeError(f"claude ended: {self._process.stderr_tail}")

    async def turn(self) -> tuple[float, float]:
        content = {"role": "user", "content": PROMPT}
        await self._send({"type": "user", "message": content, "parent_tool_use_id": None, "session_id": "default"})
        seen, asked = await self._next("control_request")
        answered = {**asked["request"]["input"], "answers": {QUESTION["question"]: "SQLite"}}
        response = {"behavior": "allow", "updatedInput": answered}
        reply = {"subtype": "success", "request_id": asked["request_id"], "response": response}
        sent = time.monotonic()
        await self._send({"type": "control_response", "response": reply})
        await self._next("result")
        return seen, sent


async def _until_healthy(http: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                # One that comes while it starts may be taken and never answered.
                if (await http.get("/global/health", timeout=2)).status_code == 200:
                    return
            except httpx2.TransportError:
                await asyncio.sleep(0.1)


# With us ------------------------------------------------------------------------------------------


class Ours:
    """A session at the desk, a listener on its stream, an answer over HTTP."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session
        self._asked: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def started(cls, agent: str, command: Path, home: Home) -> AsyncIterator[Peer]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            variables = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in home.env.items())
            settings = f"[agents.{agent}]\ncommand = [{json.dumps(str(command))}]\nenv = {{ {variables} }}\n"
            (folder / "handraise.toml").write_text(settings)
            trust_project(folder, home=folder / "home")
            with desk(folder, database=f"sqlite:///{folder}/desk.db") as server:
                async with AsyncExitStack() as stack:
                    yield await cls._opened(agent, server, home, folder=folder, stack=stack)

    @classmethod
    async def _opened(cls, agent: str, server: Server, home: Home, *, folder: Path, stack: AsyncExitStack) -> Peer:
        url = f"http://127.0.0.1:{server.port}"
        settings = Settings(home=folder, url=url, token=server.token)
        client = await stack.enter_async_context(Client(url, token=server.token, settings=settings))
        # The first prompt only starts the agent; the questions come with those after it.
        body = {"agent": agent, "prompt": "hello", "cwd": str(home.project)}
        session = (await client.call("POST", "/v1/sessions", body=body))["id"]
        peer = cls(client, session)
        await peer._until_idle()
        listening = asyncio.create_task(peer._listen(await client.cursor()))
        stack.callback(listening.cancel)
        return peer

    async def _listen(self, after: int) -> None:
        async for event in self._client.events(after=after):
            if isinstance(event, Asked):
                self._asked.put_nowait((time.monotonic(), event.ask.id))

    async def _until_idle(self) -> None:
        while True:
            told = await self._client.call("GET", f"/v1/sessions/{self._session}?wait=8")
            if told["state"] == "idle":
                return
            if told["state"] in ("failed", "done"):
                raise RuntimeError(f"the session is {told['state']}: {told['error']}")

    async def turn(self) -> tuple[float, float]:
        await self._client.call("POST", f"/v1/sessions/{self._session}/prompt", body={"prompt": PROMPT})
        seen, id = await self._asked.get()
        sent = time.monotonic()
        await self._client.call("POST", f"/v1/asks/{id}/answer", body={"answers": [["SQLite"]]})
        await self._until_idle()
        return seen, sent


# The run ------------------------------------------------------------------------------------------

HOMES = {"opencode": opencode_home, "claude": claude_home}
BARE = {"opencode": BareOpenCode, "claude": BareClaude}
Figures = dict[str, dict[str, list[float]]]  # own and ours -> which latency -> milliseconds
ASKED, ANSWERED = "call → question to be seen", "answer → next request to the model"


async def measure(agent: str, *, questions: int) -> Figures:
    timed = Timed()
    figures: Figures = {who: {ASKED: [], ANSWERED: []} for who in ("own", "ours")}
    async with timed.model, AsyncExitStack() as stack:
        with tempfile.TemporaryDirectory() as name:
            command = ensure(agent, PINNED[agent])
            peers: dict[str, Peer] = {}
            own = HOMES[agent](Path(name, "own"), model=timed.model.url)
            ours = HOMES[agent](Path(name, "ours"), model=timed.model.url)
            peers["own"] = await stack.enter_async_context(BARE[agent].started(command, own))
            peers["ours"] = await stack.enter_async_context(Ours.started(agent, command, ours))
            for number in range(questions + WARM_UP):
                for who, peer in peers.items():
                    asked, answered = await timed.measure(peer)
                    if number >= WARM_UP:
                        figures[who][ASKED].append(asked)
                        figures[who][ANSWERED].append(answered)
                sys.stderr.write(f"\r{agent}: question {number + 1} of {questions + WARM_UP}")
            sys.stderr.write("\n")
            await stack.aclose()
    return figures


def report(results: dict[str, Figures], *, questions: int) -> tuple[str, bool]:
    lines = [
        "# What the desk adds to an agent's question",
        "",
        f"Written by `make bench-agents`: {questions} questions of each real agent with the desk between, and as many",
        "with a bare client of the agent's own interface, in turns, on the same scripted model and the same machine.",
        "Medians, with the 90th percentile in parentheses, in milliseconds.",
        "",
        f"| agent | from → to | without us | through the desk | the desk adds | at most {MOST:g} ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    good = True
    for agent, figures in results.items():
        for what in (ASKED, ANSWERED):
            own, ours = figures["own"][what], figures["ours"][what]
            added = statistics.median(ours) - statistics.median(own)
            good = good and added < MOST
            verdict = "met" if added < MOST else "NOT MET"
            lines.append(f"| {agent} | {what} | {_shown(own)} | {_shown(ours)} | {added:+.1f} | {verdict} |")
    return "\n".join(lines) + "\n", good


def _shown(figures: list[float]) -> str:
    return f"{statistics.median(figures):.1f} ({statistics.quantiles(figures, n=10)[-1]:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=40, help="of each agent, with and without us")
    parser.add_argument("--only", choices=list(HOMES), help="one agent")
    parser.add_argument("--no-write", action="store_true", help="leave docs/latency.md as it is")
    chosen = parser.parse_args()
    agents = [chosen.only] if chosen.only else list(HOMES)
    results = {agent: asyncio.run(measure(agent, questions=chosen.questions)) for agent in agents}
    text, good = report(results, questions=chosen.questions)
    print(text)
    if not chosen.no_write and not chosen.only:
        (DOCS / "latency.md").write_text(text)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
