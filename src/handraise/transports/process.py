"""Agent processes: lines in, lines out, and a sure end. Knows nothing of what the lines say.

Every process runs under `launcher.py`, which holds its stdin open and ends its whole tree when we are gone.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from handraise.clock import Backoff
from handraise.errors import ProcessFailed
from handraise.text.inert import inert
from handraise.transports.launcher import descendants

__all__ = [
    "LONGEST_LINE",
    "Process",
    "Started",
    "end",
    "identify",
    "is_running",
    "seconds_after_boot",
    "until_ended_below",
]

LONGEST_LINE = 64 * 1024 * 1024  # bytes; the result of a tool comes as one line, and images are in it
TAIL = 8 * 1024  # bytes of stderr that are kept
HIGH_WATER = 64 * 1024  # bytes not yet taken by the agent above which a writer waits: what a pipe holds on Linux
START = 30.0  # seconds for the launcher to report, on a machine that is very busy
END = 10.0  # seconds for the launcher to end the tree, twice what it gives itself
LAST_WORDS = 0.5  # seconds; a pipe breaks a little before it is known how the agent ended, which makes the better error
CHUNK = 256 * 1024

_LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class Started:
    """One process, and not another one that was given the same number later."""

    pid: int
    started: float | None  # seconds after boot, on Linux; None where that cannot be known


class Process:
    """One agent that runs. `start` it, and `close` it or use it as a context."""

    def __init__(self, name: str, launcher: subprocess.Popen[bytes], *, pipes: _Pipes) -> None:
        self.pid = 0
        self._name = name
        self._launcher = launcher
        self._control = pipes.control
        self._stdin, self._stdout, self._stderr = pipes.stdin, pipes.stdout, pipes.stderr
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()  # what the launcher said first
        self._gone: asyncio.Future[None] = self._loop.create_future()  # the launcher, and so the whole tree
        self._code: int | None = None
        self._heard = b""
        self._unsent = bytearray()
        self._room = asyncio.Event()
        self._room.set()
        self._input = asyncio.Event()  # something to read on stdout, or its end
        self._lines: deque[bytes] = deque()  # read and not yet given away
        self._rest = bytearray()  # the line of stdout that has not ended yet
        self._tail = bytearray()
        self._is_closing = self._is_released = False
        self._loop.add_reader(self._control, self._on_control)
        self._loop.add_reader(self._stderr, self._on_stderr)

    @classmethod
    async def start(
        cls, command: Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start a program in a session of its own. `env` is its environment, to which HANDRAISE_AGENT is added; None
        gives it ours.

        Raises ProcessFailed with what to do where it cannot be started.
        """
        launcher, pipes = _launch(command, cwd=cwd, env=env)
        process = cls(Path(command[0]).name, launcher, pipes=pipes)
        try:
            async with asyncio.timeout(START):
                said = await process._ready
            process.pid = _pid_of(said, command, env=env, tail=process.stderr_tail)
        except TimeoutError as error:
            await process.close()
            raise ProcessFailed(f"{command[0]!r} did not start within {START:.0f} seconds; try again later") from error
        except BaseException:
            await process.close()
            raise
        return process

    @staticmethod
    async def start_detached(
        command: Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None, log: Path
    ) -> Started:
        """Start a server that outlives us, with what it prints at the end of `log`. Keep what this returns.

        It is nobody's child: ask `is_running`, and `end` it. Raises ProcessFailed.
        """
        starting = asyncio.ensure_future(asyncio.to_thread(_start_detached, command, cwd=cwd, env=env, log=log))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(ProcessFailed):
                _signal_group((await starting).pid, signal.SIGKILL)  # nobody would know of it
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._code if self._gone.done() else None

    @property
    def stderr_tail(self) -> str:
        """The last of what it wrote to stderr, as it wrote it: make it inert before it is shown."""
        return self._tail.decode("utf-8", errors="replace")

    async def write_line(self, line: bytes) -> None:
        """Send one line, without its newline. Waits while the agent takes too little.

        Raises ProcessFailed if the agent is gone, or goes before it took what was sent. Lines of several callers never
        mix, and a line is sent whole even if the wait is cancelled.
        """
        if b"\n" in line:
            raise ValueError("a line has no newline in it")
        await self._check_stdin()
        self._unsent += line + b"\n"
        self._flush()
        await self._room.wait()  # ends with the process at the latest
        await self._check_stdin()

    async def lines(self) -> AsyncIterator[bytes]:
        """What it writes to stdout, line by line without the newline, to the end. For one reader at a time.

        What is not read here stays in the pipe, so an agent that writes much waits for its reader. Raises ProcessFailed
        at a line longer than LONGEST_LINE.
        """
        while True:
            while self._lines:
                yield self._lines.popleft()
            chunk = await self._read()
            if chunk is None:
                if self._rest:
                    rest, self._rest = bytes(self._rest), bytearray()
                    yield rest
                return
            first, *others = chunk.split(b"\n")
            self._rest += first
            if len(self._rest) > LONGEST_LINE:
                raise ProcessFailed(f"{self._name} wrote a line of more than {LONGEST_LINE >> 20} MiB; start it again")
            if others:
                self._lines += [bytes(self._rest), *others[:-1]]
                self._rest = bytearray(others[-1])

    async def chunks(self) -> AsyncIterator[bytes]:
        """What it writes to stdout as it comes, to the end. In place of `lines`."""
        while (chunk := await self._read()) is not None:
            yield chunk

    async def wait(self) -> int:
        """Its exit code, negative for a signal, once nothing of its tree is left.

        An agent that waits for somebody to read its `lines` does not exit.
        """
        await asyncio.shield(self._gone)
        assert self._code is not None
        return self._code

    def terminate(self) -> None:
        """Ask the agent and its group to end (SIGTERM). Does nothing once it is gone."""
        self._say(b"term\n")

    def kill(self) -> None:
        """End the whole tree (SIGKILL), stdin held open until it is dead. Does nothing once it is gone."""
        self._say(b"kill\n")

    async def close(self) -> None:
        """Kill it if it runs, wait until nothing of it is left, release everything. As often as you like.

        If cancelled, it is killed and released all the same, only nobody waits for it.
        """
        self._is_closing = True
        if not self._gone.done():
            self.kill()
            late = self._loop.call_later(END, self._launcher.kill)  # a launcher that was stopped hears nothing
            try:
                await asyncio.shield(self._gone)
            finally:
                if self._gone.done():
                    late.cancel()
        self._release()

    # stdin --------------------------------------------------------------------------------------------------

    async def _check_stdin(self) -> None:
        if self._stdin >= 0 and not self._gone.done():
            return
        await asyncio.wait([self._gone], timeout=LAST_WORDS)
        how = "takes no more input" if self._code is None else f"has ended with exit code {self._code}"
        last = self.stderr_tail.strip().rpartition("\n")[2][-500:]
        said = f"; it said last: {inert(last)}" if last else ""
        raise ProcessFailed(f"{self._name} {how}, start it again{said}", exit_code=self._code)

    def _flush(self) -> None:
        """Hand over what fits into the pipe; called again when there is room."""
        try:
            with memoryview(self._unsent) as unsent:
                sent = os.write(self._stdin, unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # the agent closed its end
            self._close_stdin()
            return
        del self._unsent[:sent]
        if len(self._unsent) > HIGH_WATER:
            self._room.clear()
        else:
            self._room.set()
        if self._unsent:
            self._loop.add_writer(self._stdin, self._flush)
        else:
            self._loop.remove_writer(self._stdin)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
        self._unsent.clear()
        self._room.set()

    # stdout and stderr --------------------------------------------------------------------------------------

    async def _read(self) -> bytes | None:
        """The next bytes of stdout, None at its end. Lets the loop turn before each, so that a flood starves nobody."""
        if self._stdout < 0:
            return None
        self._input.clear()
        self._loop.add_reader(self._stdout, self._input.set)
        try:
            await self._input.wait()
        finally:
            if self._stdout >= 0:
                self._loop.remove_reader(self._stdout)
        if self._stdout < 0:  # closed while we waited
            return None
        try:
            return os.read(self._stdout, CHUNK) or None
        except BlockingIOError:
            return b""

    def _on_stderr(self) -> bool:
        """Take what is there; whether there was something."""
        if self._stderr < 0:
            return False
        try:
            chunk = os.read(self._stderr, CHUNK)
        except BlockingIOError:
            return False
        self._tail += chunk
        del self._tail[:-TAIL]
        if not chunk:
            self._close_stderr()
        return bool(chunk)

    def _close_stderr(self) -> None:
        if self._stderr >= 0:
            self._loop.remove_reader(self._stderr)
            os.close(self._stderr)
            self._stderr = -1

    # the launcher -------------------------------------------------------------------------------------------

    def _say(self, word: bytes) -> None:
        if not self._gone.done():
            with suppress(OSError):  # it is gone, which `_on_control` notices
                self._control.send(word)

    def _on_control(self) -> None:
        try:
            chunk = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:  # reset: it was killed with a word of ours unread
            chunk = b""
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if not self._ready.done():
                self._ready.set_result(said)
            self._code = said.get("exit", self._code)
        if not chunk:
            self._loop.remove_reader(self._control)
            self._reap(Backoff(0.001, longest=0.1))

    def _reap(self, backoff: Backoff) -> None:
        """The launcher closed its socket by exiting, so that it is a matter of moments until it can be reaped."""
        if self._launcher.poll() is None:
            self._loop.call_later(backoff.next(), self._reap, backoff)
            return
        if self._launcher.returncode != 0 and self.pid:
            # It was killed itself. On Linux the kernel has killed the agent with it, though not the rest of its group.
            _signal_group(self.pid, signal.SIGKILL)
        if self._code is None:
            self._code = -signal.SIGKILL
        if not self._ready.done():
            self._ready.set_result({})
        for _ in range(64):  # what it said last is still in the pipe; one that escaped could write for ever
            if not self._on_stderr():
                break
        self._close_stdin()
        self._gone.set_result(None)
        if self._is_closing:
            self._release()

    def _release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        self._control.close()
        self._close_stdin()
        self._close_stderr()
        if self._stdout >= 0:
            self._loop.remove_reader(self._stdout)
            os.close(self._stdout)
            self._stdout = -1
            self._input.set()


# Detached processes -----------------------------------------------------------------------------------------


def identify(pid: int) -> Started:
    """The process that has this number now."""
    return Started(pid, _stat(pid)[1])


def is_running(process: Started) -> bool:
    """Whether that very process runs; one that ended and was not reaped does not, nor another with its number."""
    if process.pid <= 1:
        return False
    if process.started is not None:
        state, started = _stat(process.pid)
        return started == process.started and state not in ("Z", "X")
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def end(process: Started, *, patience: float) -> None:
    """Ask a detached process and its group to end, and kill what is left after `patience` seconds.

    Does nothing if it is no longer running. Raises ProcessFailed if it is not ours to end.
    """
    if not is_running(process):
        return
    try:
        os.killpg(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise ProcessFailed(f"process {process.pid} belongs to another user; end it as that user") from error
    await _until_gone(process, patience=patience)
    _signal_group(process.pid, signal.SIGKILL)
    await _until_gone(process, patience=END)


async def _until_gone(process: Started, *, patience: float) -> None:
    # It is not our child, so nothing tells us of its end.
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while is_running(process):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


# What an agent started ------------------------------------------------------------------------------------------


def seconds_after_boot() -> float | None:
    """The time in which processes say when they were started. None where that cannot be known."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else None


async def until_ended_below(pid: int, *, since: float | None, patience: float) -> bool:
    """Wait until nothing runs any more below a process that was started at that time or later.

    False where something does after `patience` seconds. True at once where it cannot be known.
    """
    below = [] if since is None else map(identify, descendants(pid))
    begun = [each for each in below if (each.started or 0) >= (since or 0)]
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while any(map(is_running, begun)):  # noqa: ASYNC110 - they are not our children, so nothing tells us
                await asyncio.sleep(0.02)
            return True
    return False


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _stat(pid: int) -> tuple[str | None, float | None]:
    """The state of a process and when it was started, in seconds after boot. None where /proc does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None, None
    fields = stat.rpartition(")")[2].split()  # from the third of proc(5) on; the second may hold spaces
    return fields[0], int(fields[19]) / os.sysconf("SC_CLK_TCK")


# Starting ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pipes:
    """Our ends."""

    control: socket.socket
    stdin: int
    stdout: int
    stderr: int


def _launch(
    command: Sequence[str], *, cwd: str | Path | None, env: Mapping[str, str] | None
) -> tuple[subprocess.Popen[bytes], _Pipes]:
    with ExitStack() as theirs, ExitStack() as ours:
        control, its_control = socket.socketpair()
        ours.callback(control.close)
        theirs.callback(its_control.close)
        fds: list[tuple[int, int]] = []
        for is_input in (True, False, False):
            reading, writing = os.pipe()
            its, mine = (reading, writing) if is_input else (writing, reading)
            theirs.callback(os.close, its)
            ours.callback(os.close, mine)
            os.set_blocking(mine, False)
            fds.append((its, mine))
        control.setblocking(False)
        (its_stdin, stdin), (its_stdout, stdout), (its_stderr, stderr) = fds
        launcher = _spawn(
            command,
            its_control,
            cwd=cwd,
            env=env,
            keeps=(stdin,),
            stdin=its_stdin,
            stdout=its_stdout,
            stderr=its_stderr,
        )
        ours.pop_all()
        return launcher, _Pipes(control=control, stdin=stdin, stdout=stdout, stderr=stderr)


def _start_detached(
    command: Sequence[str], *, cwd: str | Path | None, env: Mapping[str, str] | None, log: Path
) -> Started:
    try:
        file = log.open("ab")
    except OSError as error:
        raise ProcessFailed(f"cannot write {str(log)!r}: {error.strerror}; choose another place for the log") from error
    control, its_control = socket.socketpair()
    with file, control:
        control.settimeout(START)
        with its_control:
            launcher = _spawn(
                command,
                its_control,
                "detached",
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file.fileno(),
                stderr=file.fileno(),
            )
        with launcher:  # which waits for it, after `control` was closed below
            try:
                with control.makefile("rb") as messages:
                    said = json.loads(messages.readline() or b"{}")
                pid = _pid_of(said, command, env=env, tail="")
                return identify(pid)
            except TimeoutError as error:
                launcher.kill()
                raise ProcessFailed(f"{command[0]!r} did not start within {START:.0f} seconds; try again") from error
            finally:
                control.close()


def _spawn(
    command: Sequence[str],
    control: socket.socket,
    *words: str,
    cwd: str | Path | None,
    env: Mapping[str, str] | None,
    keeps: tuple[int, ...] = (),
    stdin: int,
    stdout: int,
    stderr: int,
) -> subprocess.Popen[bytes]:
    """The launcher with the agent's environment, folder and files. Raises ProcessFailed."""
    if cwd is not None and not Path(cwd).is_dir():
        raise ProcessFailed(f"there is no folder {str(cwd)!r} to start {command[0]!r} in; create it or choose another")
    if "LC_CTYPE" not in (os.environ if env is None else env):
        words += ("without-lc-ctype",)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _LAUNCHER, str(control.fileno()), *words, "--", *command],
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(control.fileno(), *keeps),
            start_new_session=True,  # a Ctrl+C in our terminal is not for the agent
        )
    except (OSError, ValueError) as error:  # ValueError: a zero byte, which no argument can hold
        raise ProcessFailed(f"cannot start {command[0]!r}: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return "an argument or a variable has a zero byte in it; leave it out"
    if error.errno == errno.E2BIG:
        return "its arguments are too long; give it less on the command line"
    return f"{error.strerror}; try again when the machine has room"


def _pid_of(said: dict[str, Any], command: Sequence[str], *, env: Mapping[str, str] | None, tail: str) -> int:
    """The pid in the launcher's first message. Raises ProcessFailed with what to do if there is none."""
    program = command[0]
    if "pid" in said:
        return int(said["pid"])
    match said.get("errno"):
        case None:
            last = tail.strip().rpartition("\n")[2]
            why = "its launcher was ended" + (f" ({inert(last[-500:])})" if last else "") + "; try again"
        case errno.ENOENT | errno.ENOTDIR if shutil.which(program, path=(env or os.environ).get("PATH")):
            why = "the interpreter in its first line does not exist; install that, or the program again"
        case errno.ENOENT | errno.ENOTDIR:
            why = "there is no such program; install it, or give its full path"
        case errno.EACCES:
            why = "it may not be executed; check its permissions with `ls -l`"
        case errno.ENOEXEC:
            why = "it is not a program for this machine; install the right one"
        case int(number):
            why = f"{os.strerror(number)}; check the program"
        case _:
            why = "its launcher said something else; try again"
    raise ProcessFailed(f"cannot start {program!r}: {why}", program=program)
