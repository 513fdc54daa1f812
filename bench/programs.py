"""The programs of the benchmark that lie beside this file: processes of their own that speak JSON, a line a message."""

import asyncio
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
PATIENCE = 600.0  # seconds that any message may take, on a slow machine too


class MeasurementFailed(Exception):
    """A program of the benchmark ended with an error; the message is what it said."""


class Program:
    """One that runs. Use `talking_to()` to get one."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], *, errors: IO[bytes]) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process
        self._errors = errors
        self._unread = b""

    def hear(self) -> dict[str, Any]:
        """The next message. Raises MeasurementFailed where the program ends, or says nothing for too long."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise MeasurementFailed(f"{self._name} said nothing for {PATIENCE:.0f} s")
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    raise MeasurementFailed(f"{self._name}: {self._last_words()}")
                self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def tell(self, **message: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise MeasurementFailed(f"{self._name}: {self._last_words()}") from None

    def _last_words(self) -> str:
        self._process.wait(PATIENCE)
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-3000:] or "it ended without a word"


@contextmanager
def talking_to(name: str, *arguments: str, **options: object) -> Iterator[Program]:
    """A program from its start until the block ends; then it is gone, whatever it was doing."""
    command = [sys.executable, str(HERE / name), *arguments]
    for option, value in options.items():
        if value is not None:
            command += [f"--{option.replace('_', '-')}", str(value)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield Program(name, process, errors=errors)
        finally:
            process.kill()
            process.communicate()


def output_of(name: str, *arguments: str, **options: object) -> dict[str, Any]:
    """The one message of a program that asks for nothing. Raises MeasurementFailed."""
    with talking_to(name, *arguments, **options) as program:
        return program.hear()


async def told() -> dict[str, Any]:
    """Inside such a program: the message it waits for. Whoever started it says only one."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = await reader.readline()
    if not line:
        sys.exit("whoever started this is gone")
    message: dict[str, Any] = json.loads(line)
    return message
