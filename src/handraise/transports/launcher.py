"""Runs one agent and takes its whole process tree along when the worker vanishes. A script of its own.

    python -I -S launcher.py FD [detached] [without-lc-ctype] -- command…

FD is a socket to the worker. The launcher also inherits the write end of the agent's stdin and never touches it: an
agent whose stdin closes goes on unattended, so the pipe has to stay open until the agent is dead, however the worker
died. The worker writes to the same pipe itself; nothing is copied here.

To the worker, a line of JSON each: `{"pid": 1}`, then `{"exit": 0}` (negative for a signal), or only `{"errno": 2}`
where the program could not be started. From the worker: `term` asks the agent's group to end; `kill`, and likewise the
end of the socket, ends the tree.

`detached` is for a server that shall outlive the worker: it is started and left alone. The launcher then stays until
the socket ends, so that the process cannot be gone, and its number given away, before the worker took its start time.

It is started for every session, so it imports little: `json`, `socket` and `subprocess` would double the time it takes.
It can import nothing of ours, so what others need of it too, `descendants`, they import from here.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
ON_LINUX = sys.platform == "linux"
PATIENCE = 5.0  # seconds for what was killed to be gone; only a process stuck in the kernel takes longer


def main() -> None:
    split = sys.argv.index("--")
    fd, *words = sys.argv[1:split]
    command = sys.argv[split + 1 :]
    if "without-lc-ctype" in words:
        os.environ.pop("LC_CTYPE", None)  # this Python has set it for itself (PEP 538); the agent was given none
    os.environ["HANDRAISE_AGENT"] = (
        "1"  # what it runs is not a person, also where it is let go and has no launcher above
    )
    worker = int(fd)
    os.set_inheritable(worker, False)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a worker that ignores it would have us never see a child end

    if "detached" in words:
        if start(command, worker, detached=True) is not None:
            os.read(worker, 1)
        return

    if ON_LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever loses its parent below us becomes our child instead of init's
    bell, ring = os.pipe()
    os.set_blocking(bell, False)
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    agent = start(command, worker, detached=False)
    if agent is None:
        return
    let_go_of_stdin_and_stdout()
    code = watch(agent, worker, bell)
    if code is not None:
        tell(worker, f'{{"exit": {code}}}')
    end_tree(agent, bell)


def start(command: list[str], worker: int, *, detached: bool) -> int | None:
    """The agent's pid once its program runs; the worker has been told either way."""
    launcher = os.getpid()
    trouble, report = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            become(command, report, die_with=None if detached else launcher)
        except OSError as error:
            os.write(report, b"%d" % (error.errno or 0))
        finally:
            os._exit(127)
    os.close(report)
    said = os.read(trouble, 16)
    os.close(trouble)
    if said:
        os.waitpid(pid, 0)
        tell(worker, f'{{"errno": {int(said)}}}')
        return None
    tell(worker, f'{{"pid": {pid}}}')
    return pid


def become(command: list[str], report: int, *, die_with: int | None) -> None:
    """In the child: a clean process in a session of its own, which then is the agent. Returns never; raises OSError."""
    os.setsid()
    if die_with is not None and ON_LINUX:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # kept over exec
        if os.getppid() != die_with:
            os._exit(127)  # the launcher died before the line above
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # Python ignores some, and we do; an ignored signal would stay ignored over exec.
        if signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.closerange(3, report)
    limit = os.sysconf("SC_OPEN_MAX")
    os.closerange(report + 1, limit if limit > 0 else 65536)  # -1: there is none
    os.execvp(command[0], command)  # noqa: S606 - to run what it is told is its job


def let_go_of_stdin_and_stdout() -> None:
    """So that a write to an agent that is gone fails, and its stdout ends with it. stderr stays for our own trouble."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def watch(agent: int, worker: int, bell: int) -> int | None:
    """Wait for the agent to exit, which gives its code, or for the worker to want its end or to be gone."""
    waiting = select.poll()
    waiting.register(worker, select.POLLIN)
    waiting.register(bell, select.POLLIN)
    heard = b""
    while True:
        code = reap(agent)
        if code is not None:
            return code
        ready = [fd for fd, _ in waiting.poll()]
        if bell in ready:
            quiet(bell)
        if worker not in ready:
            continue
        try:
            chunk = os.read(worker, 1024)
        except OSError:
            chunk = b""
        *lines, heard = (heard + chunk).split(b"\n")
        if b"term" in lines:
            send(signal.SIGTERM, group=agent)
        if not chunk or b"kill" in lines:
            return None


def reap(agent: int) -> int | None:
    """Take note of every child that ended, adopted ones too. The agent's exit code if it was among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)


def end_tree(agent: int, bell: int) -> None:
    """Kill the group, then whatever the tree has in other sessions, until nothing is left that could run."""
    send(signal.SIGKILL, group=agent)
    deadline = time.monotonic() + PATIENCE
    waiting = select.poll()
    waiting.register(bell, select.POLLIN)
    while has_children():
        if ON_LINUX:
            for pid in descendants(os.getpid()):
                send(signal.SIGKILL, pid=pid)
        left = deadline - time.monotonic()
        if left <= 0:
            return
        # A death rings the bell. It is also looked at without one: a child forked since then has rung nothing.
        waiting.poll(min(left, 0.05) * 1000)
        quiet(bell)
        reap(agent)


def has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def descendants(root: int) -> list[int]:
    """Every process below this one, parents first. Raises OSError where there is no /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs more to import than the whole launcher
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    # The program's name is in parentheses and may hold anything, parentheses too.
                    parent = file.read().rpartition(b")")[2].split()[1]
            except OSError:
                continue
            children.setdefault(int(parent), []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def send(number: int, *, pid: int = 0, group: int = 0) -> None:
    with suppress(OSError):  # gone, or not ours to kill
        if group:
            os.killpg(group, number)
        else:
            os.kill(pid, number)


def quiet(bell: int) -> None:
    with suppress(BlockingIOError):
        os.read(bell, 4096)


def tell(worker: int, line: str) -> None:
    with suppress(OSError):  # the worker is gone, which the next read notices
        os.write(worker, line.encode() + b"\n")


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    main()
