"""Agent processes and their launcher, with real processes, real signals and a worker that is really killed."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from handraise.errors import ProcessFailed
from handraise.transports.process import LONGEST_LINE, Process, Started, end, is_running
from tests.helpers.serving import PATIENCE, START, eventually

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")

ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"
# Says who it and its children are; one of them is in a session of its own, one has lost its parent as well. A signal
# shows that it still runs, and it leaves a note if its stdin ever ends.
TREE = """
import json, os, pathlib, signal, subprocess, sys
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: (folder / "runs").touch())
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
orphan = subprocess.run(["sh", "-c", "setsid sleep 60 >&- 2>&- & echo $!"], stdout=subprocess.PIPE).stdout
print(json.dumps([os.getppid(), os.getpid(), child.pid, int(orphan)]), flush=True)
sys.stdin.read()
(folder / "stdin ended").touch()
"""
WORKER = """
import asyncio, json, signal, sys
from handraise.transports.process import Process
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, print, "interrupted")
    async with await Process.start(json.loads(sys.argv[1])) as process:
        async for line in process.lines():
            print(line.decode(), flush=True)
            await process.write_line((await asyncio.to_thread(sys.stdin.buffer.readline)).strip())
asyncio.run(main())
"""
STARTER = """
import asyncio, json, pathlib, sys
from handraise.transports.process import Process
async def main():
    started = await Process.start_detached(json.loads(sys.argv[1]), log=pathlib.Path(sys.argv[2]))
    print(json.dumps([started.pid, started.started]), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on asyncio's own loop and on uvloop, and not for ever."""

    def run(loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(asyncio.wait_for(test(**fixtures), START))

    signature = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__name__ = test.__name__
    run.__signature__ = signature.replace(parameters=[loop, *signature.parameters.values()])  # type: ignore[attr-defined]
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("loop", loops, ids=["asyncio", "uvloop"])(run)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


async def first_line(process: Process) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await anext(aiter(process.lines()))


async def all_lines(process: Process) -> list[bytes]:
    async with asyncio.timeout(PATIENCE):
        return [line async for line in process.lines()]


def identity(pid: int) -> Started:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Started(pid, int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def worker(code: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of its own that uses ours; killed at the end if it still runs."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", code, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START):
        return (await process.stdout.readline()).decode().strip()


# Lines ------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_lines_go_both_ways() -> None:
    async with await Process.start(python(ECHO)) as process:
        for line in (b"hello", b"", b'{"caf\xc3\xa9": 1}', b"\xff\x00"):
            await process.write_line(line)
            assert await first_line(process) == line


@on_both_loops
async def test_a_last_line_without_newline_is_a_line() -> None:
    async with await Process.start(["printf", r"one\ntwo"]) as process:
        assert await all_lines(process) == [b"one", b"two"]


@on_both_loops
async def test_a_reader_that_stops_leaves_the_other_lines_to_the_next() -> None:
    async with await Process.start(["printf", r"one\ntwo\nthree\n"]) as process:
        assert [await first_line(process), *await all_lines(process)] == [b"one", b"two", b"three"]


@on_both_loops
async def test_a_line_holds_no_newline() -> None:
    async with await Process.start(python(ECHO)) as process:
        with pytest.raises(ValueError, match="newline"):
            await process.write_line(b"one\ntwo")


@on_both_loops
async def test_a_line_may_be_huge_in_both_directions() -> None:
    line = os.urandom(1 << 20).replace(b"\n", b" ") * 12
    async with await Process.start(python(ECHO)) as process, asyncio.TaskGroup() as both:
        both.create_task(process.write_line(line))
        assert await first_line(process) == line


@on_both_loops
async def test_a_line_without_end_is_an_error() -> None:
    code = f"import sys\nfor _ in range({LONGEST_LINE >> 20} + 1): sys.stdout.write('x' * (1 << 20))\ninput()"
    async with await Process.start(python(code)) as process:
        with pytest.raises(ProcessFailed, match="wrote a line of more than 64 MiB"):
            await first_line(process)


@on_both_loops
async def test_lines_of_many_writers_do_not_mix() -> None:
    lines = [bytes([65 + number]) * 150_000 for number in range(20)]
    async with await Process.start(python(ECHO)) as process, asyncio.TaskGroup() as writers:
        for line in lines:
            writers.create_task(process.write_line(line))
        echoed = [await first_line(process) for _ in lines]
    assert sorted(echoed) == lines


READS_WHEN_TOLD = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
for line in sys.stdin.buffer: print(len(line), flush=True)
"""


@on_both_loops
async def test_a_writer_waits_for_an_agent_that_does_not_read() -> None:
    async with await Process.start(python(READS_WHEN_TOLD)) as process:
        assert await first_line(process) == b"ready"
        writing = asyncio.ensure_future(process.write_line(b"x" * (1 << 20)))
        await asyncio.wait([writing], timeout=0)
        assert not writing.done()
        os.kill(process.pid, signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE):
            await writing
        assert await first_line(process) == b"%d" % ((1 << 20) + 1)


@on_both_loops
async def test_a_line_whose_writer_was_cancelled_is_still_whole() -> None:
    async with await Process.start(python(READS_WHEN_TOLD)) as process:
        assert await first_line(process) == b"ready"
        writing = asyncio.ensure_future(process.write_line(b"x" * (1 << 20)))
        await asyncio.wait([writing], timeout=0)
        writing.cancel()
        await asyncio.wait([writing])
        os.kill(process.pid, signal.SIGUSR1)
        await process.write_line(b"next")
        assert [await first_line(process), await first_line(process)] == [b"%d" % ((1 << 20) + 1), b"5"]


@on_both_loops
async def test_a_writer_hears_of_the_end_of_the_agent() -> None:
    async with await Process.start(python(READS_WHEN_TOLD)) as process:
        writing = asyncio.ensure_future(process.write_line(b"x" * (1 << 20)))
        assert await first_line(process) == b"ready"
        process.kill()
        with pytest.raises(ProcessFailed, match="has ended"):
            await asyncio.wait_for(writing, PATIENCE)
        await process.wait()
        with pytest.raises(ProcessFailed, match="has ended with exit code -9"):
            await process.write_line(b"anybody?")


@on_both_loops
async def test_a_writer_hears_that_the_agent_closed_its_stdin() -> None:
    code = "import os, sys\nprint('ready', flush=True)\nos.read(0, 1)\nos.close(0)\nimport time\ntime.sleep(60)"
    async with await Process.start(python(code)) as process:
        with pytest.raises(ProcessFailed, match="takes no more input"):
            await asyncio.wait_for(process.write_line(b"x" * (1 << 20)), PATIENCE)
        assert process.exit_code is None


@on_both_loops
async def test_what_floods_stderr_does_not_block_the_agent_and_its_end_is_kept() -> None:
    code = "import sys\nfor n in range(100_000): print('trouble number', n, file=sys.stderr)\nprint('done')"
    async with await Process.start(python(code)) as process:
        assert await all_lines(process) == [b"done"]
        assert await process.wait() == 0
        assert process.stderr_tail.endswith("trouble number 99999\n")
        assert len(process.stderr_tail) <= 8 * 1024


@on_both_loops
async def test_an_error_says_what_the_agent_said_last() -> None:
    async with await Process.start(["sh", "-c", "echo first >&2; printf 'no \\033[1mkey' >&2; exit 3"]) as process:
        await process.wait()
        with pytest.raises(ProcessFailed) as failed:
            await process.write_line(b"hello")
    assert "sh has ended with exit code 3" in failed.value.message
    assert "no " in failed.value.message and "\033" not in failed.value.message
    assert failed.value.fields["exit_code"] == 3


# How it is started ------------------------------------------------------------------------------------------


@on_both_loops
async def test_environment_and_folder_are_those_asked_for(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "COLOUR": "grün", "EMPTY": ""}
    async with await Process.start(["env"], env=environ) as process:
        marked = {**environ, "HANDRAISE_AGENT": "1"}  # by which a person's terminal is told from that of an agent
        assert {line.decode() for line in await all_lines(process)} == {f"{k}={v}" for k, v in marked.items()}
    async with await Process.start(["pwd", "-P"], cwd=tmp_path) as process:
        assert await all_lines(process) == [str(tmp_path.resolve()).encode()]


@on_both_loops
async def test_the_program_is_looked_for_on_the_path_it_was_given(tmp_path: Path) -> None:
    program = tmp_path / "an-agent"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    async with await Process.start(["an-agent"], env={"PATH": str(tmp_path)}) as process:
        assert await all_lines(process) == [b"found"]


@needs_proc
@on_both_loops
async def test_the_agent_inherits_no_files_and_no_ignored_signals() -> None:
    async with await Process.start(["ls", "/proc/self/fd"]) as process:
        assert await all_lines(process) == [b"0", b"1", b"2", b"3"]  # the last is the folder it lists
    async with await Process.start(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"]) as process:
        # Those that the C library keeps for itself can be reset by nobody; whoever started the tests may ignore them.
        reserved = sum(1 << number - 1 for number in (32, 33))
        assert [int(line.split()[1], 16) & ~reserved for line in await all_lines(process)] == [0, 0]


@pytest.mark.parametrize(
    ("program", "advice"),
    [
        ("no-such-program-anywhere", "there is no such program; install it, or give its full path"),
        ("./missing", "there is no such program; install it, or give its full path"),
        ("./plain", "it may not be executed; check its permissions"),
        ("./orphaned", "the interpreter in its first line does not exist"),
        ("./garbage", "it is not a program for this machine"),
        ("a\0b", "has a zero byte in it"),
    ],
)
@on_both_loops
async def test_a_program_that_cannot_start_says_what_to_do(
    program: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (("plain", "", 0o644), ("orphaned", "#!/no/such\n", 0o755), ("garbage", "\1\2", 0o755)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    with pytest.raises(ProcessFailed) as failed:
        await Process.start([program])
    assert advice in failed.value.message and failed.value.code == "process_failed"
    with pytest.raises(ProcessFailed) as failed:
        await Process.start_detached([program], log=tmp_path / "log")
    assert advice in failed.value.message


@on_both_loops
async def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match=r"there is no folder .* create it"):
        await Process.start(["true"], cwd=tmp_path / "missing")
    with pytest.raises(ProcessFailed, match="choose another place for the log"):
        await Process.start_detached(["true"], log=tmp_path / "missing" / "log")


# How it ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", -15)])
@on_both_loops
async def test_exit_codes_are_told(script: str, code: int) -> None:
    async with await Process.start(["sh", "-c", script]) as process:
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == code
        assert process.exit_code == code


@on_both_loops
async def test_terminate_asks_and_close_insists() -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os.write(1, b'no\\n'))\nos.write(1, b'ready\\n')"
    )
    async with await Process.start(python(f"{code}\nwhile True: signal.pause()")) as process:
        assert await first_line(process) == b"ready"
        process.terminate()
        assert await first_line(process) == b"no"
        assert process.exit_code is None
        async with asyncio.timeout(PATIENCE):
            await process.close()
            assert await process.wait() == -signal.SIGKILL
        await process.close()
        process.terminate()
        process.kill()


@on_both_loops
async def test_a_reader_is_let_go_by_close() -> None:
    process = await Process.start(python(ECHO))
    reading = asyncio.ensure_future(all_lines(process))
    await asyncio.wait([reading], timeout=0)
    await process.close()
    assert await reading == []


@needs_proc
@on_both_loops
async def test_what_an_agent_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    async with await Process.start(python(TREE.replace("sys.stdin.read()", "sys.exit(5)"), str(tmp_path))) as process:
        pids = json.loads(await first_line(process))
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 5
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@needs_proc
@on_both_loops
async def test_a_killed_worker_takes_the_tree_along_before_stdin_ends(tmp_path: Path) -> None:
    async with worker(WORKER, json.dumps(python(TREE, str(tmp_path)))) as killed:
        launcher, agent, *others = json.loads(await said(killed))
        tree = [identity(pid) for pid in (launcher, agent, *others)]
        assert all(map(is_running, tree))
        os.kill(launcher, signal.SIGSTOP)  # so that the agent has all the time to notice, if there is anything
        try:
            killed.kill()
            await killed.wait()
            os.kill(agent, signal.SIGUSR1)
            await eventually((tmp_path / "runs").exists)
            assert not (tmp_path / "stdin ended").exists()
        finally:
            os.kill(launcher, signal.SIGCONT)
        await eventually(lambda: not any(map(is_running, tree)))
        assert not (tmp_path / "stdin ended").exists()


@needs_proc
@on_both_loops
async def test_a_killed_launcher_takes_the_agent_along(tmp_path: Path) -> None:
    async with await Process.start(python(TREE, str(tmp_path))) as process:
        launcher, agent, *others = json.loads(await first_line(process))
        running = identity(agent)
        assert agent == process.pid
        os.kill(launcher, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == -signal.SIGKILL
        await eventually(lambda: not is_running(running))
        assert not (tmp_path / "stdin ended").exists()
        for pid in others:  # in sessions of their own, and nobody is left who knows whose they are
            os.kill(pid, signal.SIGKILL)


@needs_proc
@on_both_loops
async def test_a_killed_launcher_takes_the_agent_along_without_any_help_of_the_worker(tmp_path: Path) -> None:
    async with worker(WORKER, json.dumps(python(TREE, str(tmp_path)))) as stopped:
        launcher, agent, *others = json.loads(await said(stopped))
        running = identity(agent)
        stopped.send_signal(signal.SIGSTOP)
        os.kill(launcher, signal.SIGKILL)
        await eventually(lambda: not is_running(running))
        for pid in others:
            os.kill(pid, signal.SIGKILL)


@needs_proc
@on_both_loops
async def test_a_launcher_that_hangs_is_ended_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handraise.transports.process.END", 0.1)
    process = await Process.start(python("import os, sys\nprint(os.getppid(), flush=True)\nsys.stdin.read()"))
    running = identity(process.pid)
    os.kill(int(await first_line(process)), signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE):
        await process.close()
    await eventually(lambda: not is_running(running))


@on_both_loops
async def test_an_interrupt_in_the_terminal_of_the_worker_does_not_reach_the_agent() -> None:
    agent = "import os\nprint(os.getpid(), flush=True)\nwhile True: print('heard', input(), flush=True)"
    async with worker(WORKER, json.dumps(python(agent))) as interrupted:
        assert interrupted.stdin is not None
        await said(interrupted)
        os.killpg(interrupted.pid, signal.SIGINT)
        assert await said(interrupted) == "interrupted"
        interrupted.stdin.write(b"hello\n")
        assert await said(interrupted) == "heard hello"


@on_both_loops
async def test_signals_to_the_launcher_do_not_end_it() -> None:
    async with await Process.start(python(f"import os\nprint(os.getppid(), flush=True)\n{ECHO}")) as process:
        launcher = int(await first_line(process))
        assert [os.getsid(pid) for pid in (launcher, process.pid)] == [launcher, process.pid]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(launcher, number)
        await process.write_line(b"still there?")
        assert await first_line(process) == b"still there?"


@needs_proc
@on_both_loops
async def test_nothing_stays_open(tmp_path: Path) -> None:
    before = open_files()
    for number in range(50):
        match number % 5:
            case 0:
                with pytest.raises(ProcessFailed):
                    await Process.start(["no-such-program-anywhere"])
            case 1:
                starting = asyncio.ensure_future(Process.start(["sleep", "60"]))
                await asyncio.wait([starting], timeout=0)
                starting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await starting
            case 2:
                process = await Process.start(["true"])
                await process.wait()
                await process.close()
            case 3:
                with pytest.raises(ProcessFailed):
                    await Process.start(["true"], cwd=tmp_path / "missing")
            case _:
                process = await Process.start(["sleep", "60"])
                closing = asyncio.ensure_future(process.close())
                await asyncio.wait([closing], timeout=0)
                closing.cancel()
                await process.wait()
        assert open_files() == before, f"start {number} left something open"


# Detached ---------------------------------------------------------------------------------------------------

SERVER = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "stubborn" else lambda *_: sys.exit(print("bye")))
print("serving", repr(sys.stdin.read()), flush=True)
while True: signal.pause()
"""


@pytest.mark.parametrize("manner", ["polite", "stubborn"])
@needs_proc
@on_both_loops
async def test_a_detached_server_outlives_its_starter_and_is_recognised(manner: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with worker(STARTER, json.dumps(python(SERVER, manner)), str(log)) as starter:
        server = Started(*json.loads(await said(starter)))
        os.killpg(starter.pid, signal.SIGKILL)
        await starter.wait()
    try:
        await eventually(lambda: "serving" in log.read_text())
        assert log.read_text() == "serving ''\n"
        assert is_running(server) and os.getpgid(server.pid) == server.pid

        assert server.started is not None
        another = Started(server.pid, server.started - 1)  # the number was given to a process that started later
        assert not is_running(another)
        async with asyncio.timeout(PATIENCE):
            await end(another, patience=0)
            assert is_running(server)
            await end(server, patience=PATIENCE if manner == "polite" else 0.05)
        assert not is_running(server)
        assert ("bye" in log.read_text()) == (manner == "polite")
        await end(server, patience=0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


@pytest.mark.parametrize("pid", [0, 1, -1])
@on_both_loops
async def test_no_record_makes_us_end_ourselves_or_everything(pid: int) -> None:
    assert not is_running(Started(pid, None))
    await end(Started(pid, None), patience=0)


@needs_proc
@on_both_loops
async def test_a_server_that_ended_at_once_is_known_by_its_start_time(tmp_path: Path) -> None:
    server = await Process.start_detached(["true"], log=tmp_path / "log")
    assert server.started is not None
    await eventually(lambda: not is_running(server))


@needs_proc
@on_both_loops
async def test_a_detached_start_that_was_cancelled_leaves_no_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    starting = asyncio.ensure_future(Process.start_detached(["sleep", "60"], log=log))
    await eventually(log.exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await eventually(lambda: not writers(log))


def writers(file: Path) -> list[str]:
    """The processes whose stdout it is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone in the meantime
            if (process / "fd" / "1").readlink() == file:
                found.append(process.name)
    return found
