"""Starts one server under test on a free loopback port and ends it; which server, the caller says."""

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 20
STOP_SECONDS = 5


class ServerDidNotStart(Exception):
    """The process ended or stayed silent; the message holds the end of its log."""


@dataclass(frozen=True)
class Server:
    port: int
    token: str
    pid: int


@contextmanager
def running(
    command: list[str], *, port: int, token: str, env: dict[str, str], folder: Path, ready_path: str
) -> Iterator[Server]:
    """The server from its first good response until the block ends; then its whole process group is gone."""
    log = folder / "server.log"
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
        yield Server(port=port, token=token, pid=process.pid)
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
        time.sleep(0.05)
    ended = "did not get ready" if process.poll() is None else f"ended with code {process.returncode}"
    end_of_log = log.read_text(errors="replace")[-2000:]
    raise ServerDidNotStart(f"the server {ended}:\n{end_of_log}")


def _status(port: int, *, token: str, path: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    except OSError:
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
