"""Starts one server under test on a free loopback port and ends it: our desk on a database, or what the caller says."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

TOKEN = "bench-token"
START_SECONDS = 20
LOOK_EVERY = 0.01  # seconds; the time until a server is ready is one of the figures
STOP_SECONDS = 5


class ServerDidNotStart(Exception):
    """The process ended or stayed silent; the message holds the end of its log."""


@dataclass(frozen=True)
class Server:
    port: int
    token: str
    pid: int
    ready_after: float  # seconds from the start of its process

    def kill(self) -> None:
        """SIGKILL: it gets no chance to tidy up."""
        os.killpg(self.pid, signal.SIGKILL)


def desk(folder: Path, *, database: str, port: int | None = None) -> AbstractContextManager[Server]:
    """`handraise serve` with its home in the folder; with a `port` where an earlier one was."""
    port = port or free_port()
    folder.mkdir(exist_ok=True)
    return running(
        [sys.executable, "-m", "handraise", "serve", "--port", str(port)],
        port=port,
        token=TOKEN,
        env={"HANDRAISE_HOME": str(folder / "home"), "HANDRAISE_TOKEN": TOKEN, "HANDRAISE_DATABASE": database},
        folder=folder,
        ready_path="/healthz",
    )


@contextmanager
def running(
    command: list[str], *, port: int, token: str, env: dict[str, str], folder: Path, ready_path: str
) -> Iterator[Server]:
    """The server from its first good response until the block ends; then its whole process group is gone."""
    log = folder / "server.log"
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, port=port, token=token, path=ready_path, log=log)
        yield Server(port=port, token=token, pid=process.pid, ready_after=time.monotonic() - begin)
    finally:
        _stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], *, port: int, token: str, path: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _status(port, token=token, path=path) == http.client.OK:
            return
        time.sleep(LOOK_EVERY)
    ended = "did not get ready" if process.poll() is None else f"ended with code {process.returncode}"
    end_of_log = log.read_text(errors="replace")[-2000:]
    raise ServerDidNotStart(f"the server {ended}:\n{end_of_log}")


def _status(port: int, *, token: str, path: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The group was started here and holds the server and the agents it started."""
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        os.killpg(process.pid, wanted)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
