"""Processes of authors' code: what may be loaded, what it may take and how long, and what it costs when it breaks.

A process has one file loaded and does one thing at a time, so that what ends it is known and costs one run. It is not
bound to a run: one that is free takes the next call for the same content of the same files, and one that is free for
long is ended. Runs that sleep have none.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import TypeAdapter, ValidationError

from handraise.errors import HandraiseError, ProcessFailed, SettingsError, WorkflowBroken, WorkflowNotFound
from handraise.policies import policy_for
from handraise.tasks import running
from handraise.text.inert import inert
from handraise.transports.launcher import descendants
from handraise.transports.process import Process
from handraise.wire import MOST_VALUES, BadBody, check_values
from handraise.workflow import templates
from handraise.workflow.child import LONGEST_LINE, MEMORY
from handraise.workflow.flow import AgentStep, CheckpointStep, DoesNotFit, Flow, StepFailed
from handraise.workflow.schemas import check_schema
from handraise.workflow.sources import root_of, sources_of

__all__ = ["AuthorProcesses", "MayLoad", "allow_all"]

log = logging.getLogger(__name__)

LOAD = 10.0  # seconds that a file may take to be loaded and described
CHECK = 10.0  # seconds that a type may take to check a value, or a text to be filled
START = 30.0  # seconds for an interpreter to be there, on a machine that is very busy
GROW = 0.05  # seconds that a call waits for a process that is busy, before another one is started
IDLE = 20.0  # seconds after which a process that nobody needs is ended
WATCH = 0.2  # seconds between two looks at what a process has started and uses
MOST_PROCESSES = 200  # that the code of one call may have at the same time
MOST_CALLS = 32  # functions that run at the same time
MOST_LOADS = 4  # files that are loaded at the same time
MOST_CHECKS = 8
MOST_FREE = 8  # processes that are kept for the next call
MOST_KNOWN = 16 * 1024 * 1024  # bytes of descriptions that are kept
BROKEN_FOR = 30.0  # seconds in which a file that ended its process is not tried again
SHORTEST = 8  # characters of a secret that is looked for in variables; a shorter one is in many a word
LAST_WORDS = 0.5  # seconds; a pipe closes a little before it is known how its process ended

_CHILD = Path(__file__).with_name("child.py")
_TOKEN = re.compile(r"\bhr_[\w-]{20,}")  # one of ours


class MayLoad(Protocol):
    """Whether a file of a project may be loaded at all; asked before anything of it is run."""

    def __call__(self, file: Path, sources: Mapping[Path, bytes]) -> None:
        """`sources` are the file and all it imports of its project. Raises WorkflowNotTrusted."""


def allow_all(file: Path, sources: Mapping[Path, bytes]) -> None:
    """Whatever lies there."""


class _Ended(Exception):
    """The process is of no use any more; why, for people."""


@dataclass(eq=False)
class _Code:
    """One content of a file and of all that it imports of its project, with the processes that have it loaded."""

    file: Path
    root: Path
    manifest: Mapping[str, str]
    fingerprint: bytes
    free: list[_Child] = field(default_factory=list)
    count: int = 0  # processes that are there or about to be
    waiting: deque[asyncio.Future[_Child]] = field(default_factory=deque)
    growing: asyncio.Task[None] | None = None


class AuthorProcesses:
    """`flow.Authors` for files of anybody. Use as a context: leaving it ends every process.

    `config` is the folder in which the user's own `workflows` lie, which nobody has to trust. `secrets` are names of
    variables that no author's code gets, `values` are texts that no variable of theirs may hold.
    """

    def __init__(
        self,
        *,
        may_load: MayLoad,
        config: Path | None = None,
        secrets: Collection[str] = (),
        values: Collection[str] = (),
    ) -> None:
        self._config = config
        self._may_load = may_load
        self._secrets = frozenset(secrets)
        self._values = [value for value in values if len(value) >= SHORTEST]
        self._codes: dict[bytes, _Code] = {}
        self._known: OrderedDict[bytes, tuple[Sequence[Flow], int]] = OrderedDict()  # what was described, and its size
        self._broken: dict[bytes, tuple[float, str]] = {}
        self._free: OrderedDict[_Child, _Code] = OrderedDict()
        self._loads = asyncio.Semaphore(MOST_LOADS)
        self._checks = asyncio.Semaphore(MOST_CHECKS)
        self._calls = asyncio.Semaphore(MOST_CALLS)
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        growing = [code.growing for code in self._codes.values() if code.growing is not None]
        for task in growing:
            task.cancel()
        for child in list(self._free):
            self._end(child)
        if pending := {*growing, *self._closing}:
            await asyncio.wait(pending)

    # The door -------------------------------------------------------------------------------------------------

    async def open(self, file: Path, name: str) -> _Author:
        """Raises WorkflowBroken, WorkflowNotFound, WorkflowNotTrusted."""
        code, flows = await self._described(file)
        for flow in flows:
            if flow.name == name:
                return _Author(self, code, flow)
        raise WorkflowNotFound(name, known=[flow.name for flow in flows])

    async def flows(self, file: Path) -> Sequence[Flow]:
        """What lies in a file. Raises WorkflowBroken, WorkflowNotTrusted."""
        return (await self._described(file))[1]

    async def _described(self, file: Path) -> tuple[_Code, Sequence[Flow]]:
        code = await self._checked(file)
        known = self._known.get(code.fingerprint)
        if known is not None:
            self._known.move_to_end(code.fingerprint)
            return code, known[0]
        loop = asyncio.get_running_loop()
        async with self._loads:
            until, why = self._broken.get(code.fingerprint, (0.0, ""))
            if loop.time() < until:
                raise WorkflowBroken(why)
            child = await self._take(code)
            self._give_back(child, code)
        self._known[code.fingerprint] = child.flows, child.size
        while sum(size for _, size in self._known.values()) > MOST_KNOWN:
            self._known.popitem(last=False)
        return code, child.flows

    async def _checked(self, file: Path) -> _Code:
        """What a file is made of now. The one place that says whether it may be loaded."""
        is_own = self._config is not None and file.parent == self._config / "workflows"
        root = root_of(file)
        sources = await asyncio.to_thread(sources_of, file, root=root)
        if not is_own:
            self._may_load(file, sources)
        manifest = {str(path): sha256(content).hexdigest() for path, content in sources.items()}
        fingerprint = sha256(json.dumps([str(file), manifest]).encode()).digest()
        code = self._codes.get(fingerprint)
        if code is None:
            for old in [key for key, each in self._codes.items() if not each.count and not each.waiting]:
                del self._codes[old]
            code = _Code(file=file, root=root, manifest=manifest, fingerprint=fingerprint)
            self._codes[fingerprint] = code
        return code

    async def check(self, code: _Code, request: Mapping[str, Any]) -> Any:
        """Something quick of the author's code. Raises DoesNotFit, SettingsError, StepFailed, WorkflowBroken."""
        async with self._checks:
            try:
                return await self._ask(code, request, within=CHECK)
            except _Ended as ended:
                raise WorkflowBroken(f"{code.file.name}:1: its code {ended}") from None

    async def call(self, code: _Code, request: Mapping[str, Any]) -> Any:
        """A function of the author's, for as long as it takes. Raises StepFailed, WorkflowBroken."""
        async with self._calls:
            try:
                return await self._ask(code, request, within=None)
            except _Ended as ended:
                raise StepFailed(f"its process {ended}") from None

    async def _ask(self, code: _Code, request: Mapping[str, Any], *, within: float | None) -> Any:
        child = await self._take(code)
        try:
            return await child.ask(request, within=within)
        finally:
            self._give_back(child, code)

    # Processes ------------------------------------------------------------------------------------------------

    async def _take(self, code: _Code) -> _Child:
        """A process that has it loaded, for us alone. Raises WorkflowBroken."""
        self._codes[code.fingerprint] = code
        while code.free:
            child = code.free.pop()
            self._free.pop(child, None)
            if child.is_fit:
                return child
            self._end(child)
        waiting: asyncio.Future[_Child] = asyncio.get_running_loop().create_future()
        code.waiting.append(waiting)
        if code.growing is None or code.growing.done():
            code.growing = asyncio.create_task(self._grow(code))
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._give_back(waiting.result(), code)
            raise
        finally:
            with suppress(ValueError):
                code.waiting.remove(waiting)

    async def _grow(self, code: _Code) -> None:
        """Start processes one after the other, while somebody waits for longer than a short call takes."""
        while code.waiting:
            if code.count:
                await asyncio.sleep(GROW)
                if not code.waiting:
                    return
            code.count += 1
            try:
                child = await self._start(code)
            except WorkflowBroken as broken:
                code.count -= 1
                for waiting in list(code.waiting):  # it is the same for all of them
                    if not waiting.done():
                        waiting.set_exception(WorkflowBroken(broken.message))
                return
            except asyncio.CancelledError:
                code.count -= 1
                for waiting in list(code.waiting):
                    waiting.cancel()
                raise
            code.count -= 1
            child.on_end = self._count(code)
            self._give_back(child, code)

    def _count(self, code: _Code) -> Callable[[], None]:
        code.count += 1

        def over() -> None:
            code.count -= 1

        return over

    def _give_back(self, child: _Child, code: _Code) -> None:
        """To whoever waits, or until it is needed again. One that broke, or left something running, ends."""
        if self._is_closed or not child.is_fit or not child.is_alone():
            self._end(child)
            return
        for waiting in code.waiting:
            if not waiting.done():
                waiting.set_result(child)
                return
        code.free.append(child)
        self._free[child] = code
        self._free.move_to_end(child)
        child.free_since = asyncio.get_running_loop().time()
        asyncio.get_running_loop().call_later(IDLE, self._end_if_idle, child)
        if len(self._free) > MOST_FREE:
            oldest = next(iter(self._free))
            self._end(oldest)

    def _end_if_idle(self, child: _Child) -> None:
        if child in self._free and asyncio.get_running_loop().time() - child.free_since >= IDLE * 0.99:
            self._end(child)

    def _end(self, child: _Child) -> None:
        code = self._free.pop(child, None)
        if code is not None and child in code.free:
            code.free.remove(child)
        task = asyncio.create_task(child.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _start(self, code: _Code) -> _Child:
        try:
            child = await _Child.start(env=self._environment())
        except (ProcessFailed, _Ended) as failed:
            raise WorkflowBroken(f"{code.file.name}:1: no process can be started for it: {failed}") from None
        request = {
            "do": "load",
            "file": str(code.file),
            "root": str(code.root),
            "manifest": code.manifest,
            "paths": _other_paths(code.root),
        }
        try:
            told = await child.ask(request, within=LOAD)
            child.flows, child.size = _parsed(told), child.last_size
        except BaseException as trouble:
            await child.close()
            match trouble:
                case _Ended():
                    why = f"{code.file.name}:1: the process that loaded it {trouble}"
                    self._remember_broken(code, why)
                case StepFailed():
                    why = f"{code.file.name}:1: {trouble}"
                case ValidationError() | ValueError() | SettingsError() if not isinstance(trouble, WorkflowBroken):
                    why = f"{code.file.name}:1: what it says of its workflows made no sense"
                case _:
                    raise
            raise WorkflowBroken(why) from None
        return child

    def _remember_broken(self, code: _Code, why: str) -> None:
        now = asyncio.get_running_loop().time()
        self._broken = {key: each for key, each in self._broken.items() if each[0] > now}
        self._broken[code.fingerprint] = now + BROKEN_FOR, why

    def _environment(self) -> dict[str, str]:
        """Ours, without anything that opens the desk, its database or the places where people answer."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HANDRAISE_", "PYTHON"))
            and name not in self._secrets
            and not _TOKEN.search(value)
            and not any(secret in value for secret in self._values)
        }


class _Author:
    """The door to one workflow; `flow.Author`."""

    def __init__(self, processes: AuthorProcesses, code: _Code, flow: Flow) -> None:
        self._processes = processes
        self._code = code
        self._flow = flow

    @property
    def flow(self) -> Flow:
        return self._flow

    async def fit(self, id: str, value: Any) -> Any:
        return await self._processes.check(self._code, self._request("fit", id, value=value))

    async def read(self, step: str, reply: str) -> Any:
        return await self._processes.check(self._code, self._request("read", step, value=reply))

    async def fill(self, step: str, text: str, values: Mapping[str, Any]) -> str:
        template = getattr(self._flow.steps[step], text)
        names = templates.names(template)
        if not names and "{" not in template and "}" not in template:
            return str(template)
        given = {name: values[name] for name in names if name in values}
        filled = await self._processes.check(self._code, self._request("fill", step, text=text, values=given))
        return str(filled)

    async def call(self, step: str, values: Mapping[str, Any]) -> Any:
        plain = self._flow.steps[step]
        assert plain.kind == "function"
        given = {name: values[name] for name in plain.takes}
        return await self._processes.call(self._code, self._request("call", step, values=given))

    def _request(self, do: str, step: str, **more: Any) -> dict[str, Any]:
        return {"do": do, "flow": self._flow.name, "step": step, **more}


class _Child:
    """One process. It is asked one thing at a time."""

    flows: Sequence[Flow]

    def __init__(self, process: Process) -> None:
        self._process = process
        self._number = 0
        self._reply: asyncio.Future[bytes] | None = None
        self._why: str | None = None  # it is of no use any more
        self._reading = asyncio.create_task(self._read())
        self.flows = []
        self.size = self.last_size = 0
        self.free_since = 0.0
        self.on_end: Callable[[], None] = _nothing

    @classmethod
    async def start(cls, *, env: Mapping[str, str]) -> Self:
        """Raises ProcessFailed, _Ended."""
        process = await Process.start((sys.executable, "-I", str(_CHILD)), env=env)
        child = cls(process)
        try:
            child._reply = asyncio.get_running_loop().create_future()
            await child._answer(within=START, number=0)
        except BaseException:
            await child.close()
            raise
        return child

    @property
    def is_fit(self) -> bool:
        return self._why is None and self._reply is None

    def is_alone(self) -> bool:
        """Whether its code has left no thread and no program behind that could disturb the next call."""
        pid = self._process.pid
        try:
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - this is after every call
        except OSError:
            return sys.platform != "linux"
        with suppress(OSError):
            # Whoever lost its parent is a child of the launcher.
            return len(threads) == 1 and not _children(pid) and _children(_launcher_of(pid)) == [pid]
        return len(threads) == 1

    async def ask(self, request: Mapping[str, Any], *, within: float | None) -> Any:
        """What it gave; cancelled, it ends. Raises _Ended, DoesNotFit, SettingsError, StepFailed, WorkflowBroken."""
        if self._why is not None:
            raise _Ended(self._why)
        self._number += 1
        line = json.dumps({"id": self._number, **request}).encode()
        if len(line) > LONGEST_LINE:
            raise StepFailed(f"what it takes is more than {LONGEST_LINE >> 20} MiB as JSON")
        self._reply = asyncio.get_running_loop().create_future()
        try:
            async with running(self._send(line)):
                reply = await self._answer(within=within, number=self._number)
        except BaseException:
            self._broke("was ended")
            raise
        return _outcome(reply)

    async def _send(self, line: bytes) -> None:
        with suppress(ProcessFailed):  # which its reader notices
            await self._process.write_line(line)

    async def _answer(self, *, within: float | None, number: int) -> Mapping[str, Any]:
        assert self._reply is not None
        try:
            async with running(self._watch()), asyncio.timeout(within):
                line = await self._reply
        except TimeoutError:
            raise _Ended(f"took longer than {within:g} s and was ended") from None
        finally:
            self._reply = None
        self.last_size = len(line)
        try:
            check_values(line)
        except BadBody:
            raise _Ended(f"gave more than {MOST_VALUES:,} values at once, and was ended") from None
        with suppress(ValueError, RecursionError):
            told = json.loads(line)
            if isinstance(told, dict) and told.get("id") == number:
                return told
        raise _Ended("wrote something into its pipe that made no sense, and was ended")

    async def _read(self) -> None:
        """Lines to whoever waits for one; anything else is its end."""
        rest = bytearray()
        async for chunk in self._process.chunks():
            first, *lines = chunk.split(b"\n")
            rest += first
            if len(rest) > LONGEST_LINE + 1024:
                self._broke(f"wrote a line of more than {LONGEST_LINE >> 20} MiB into its pipe, and was ended")
                return
            for line in lines:
                if self._reply is None or self._reply.done():
                    self._broke("wrote something into its pipe that made no sense, and was ended")
                    return
                self._reply.set_result(bytes(rest))
                rest[:] = line
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._process.wait()
        code = self._process.exit_code
        if code is None:
            self._broke("closed its pipe, and was ended")
            return
        last = self._process.stderr_tail.strip().rpartition("\n")[2][-300:]
        said = f"; it said last: {inert(last)}" if last else ""
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        self._broke(f"{how}{said}")

    def _broke(self, why: str) -> None:
        self._why = self._why or why
        self._process.kill()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(_Ended(self._why))

    async def _watch(self) -> None:
        """End it where it has too many processes, or they use too much memory together."""
        while True:
            await asyncio.sleep(WATCH)
            count, used = await asyncio.to_thread(_usage, self._process.pid)
            if count > MOST_PROCESSES:
                self._broke(f"had more than {MOST_PROCESSES} processes at once, and was ended")
            elif used > MEMORY:
                self._broke(f"used more than {MEMORY >> 30} GiB of memory, and was ended")

    async def close(self) -> None:
        """End all of it. As often as you like."""
        self._why = self._why or "was ended"
        await self._process.close()
        self._reading.cancel()
        with suppress(asyncio.CancelledError, HandraiseError):
            await self._reading
        over, self.on_end = self.on_end, _nothing
        over()


def _nothing() -> None:
    """Nobody counts it yet."""


def _outcome(told: Mapping[str, Any]) -> Any:
    match told:
        case {"gave": gave}:
            return gave
        case {"unfit": [*problems]} if problems and all(_is_problem(each) for each in problems):
            raise DoesNotFit(problems)
        case {"unfilled": str(why)}:
            raise SettingsError(why)
        case {"broken": str(why)}:
            raise WorkflowBroken(why)
        case {"failed": str(why)}:
            raise StepFailed(why)
    raise _Ended("wrote something into its pipe that made no sense, and was ended")


def _is_problem(told: Any) -> bool:
    return (
        isinstance(told, dict) and {"at", "problem"} == told.keys() and all(isinstance(v, str) for v in told.values())
    )


@cache
def _adapter() -> TypeAdapter[list[Flow]]:
    return TypeAdapter(list[Flow])


def _parsed(told: Any) -> list[Flow]:
    """What a process says of its workflows, checked as if nobody had. Raises ValueError, SettingsError."""
    flows = [flow.check() for flow in _adapter().validate_python(told)]
    for flow in flows:
        for step in flow.steps.values():
            if isinstance(step, AgentStep):
                policy_for(step.handling)
            elif isinstance(step, CheckpointStep) and step.schema is not None:
                _check(step, step.schema)
    return flows


def _check(step: CheckpointStep, schema: Mapping[str, Any]) -> None:
    try:
        check_schema(schema)
    except ValueError as unusable:
        raise WorkflowBroken(f"{step.where}: nothing can be checked against its schema: {unusable}") from None


def _other_paths(root: Path) -> list[str]:
    """Where this interpreter imports from, beside what a fresh one knows; nothing of the project."""
    return [path for path in sys.path if Path(path).is_absolute() and not Path(path).is_relative_to(root)]


def _launcher_of(pid: int) -> int:
    """The process that started this one and ends it. Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return int(file.read().rpartition(b")")[2].split()[1])


def _children(pid: int) -> list[int]:
    """Raises OSError, also on a system that does not tell."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
            found += map(int, file.read().split())
    return found


def _usage(pid: int) -> tuple[int, int]:
    """How many processes are below the launcher of this one, and the bytes of memory they have."""
    try:
        found = descendants(_launcher_of(pid))
    except OSError:
        return 0, 0
    used = sum(map(_resident, found))
    if used > MEMORY and len(found) <= MOST_PROCESSES:  # what processes share was counted for each of them
        used = sum(map(_share, found))
    return len(found), used


def _resident(pid: int) -> int:
    """The bytes of memory of a process, with all of what it shares with others."""
    with suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - many times a second
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _share(pid: int) -> int:
    """The bytes of memory of a process, with its part of what it shares with others."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), 0)
