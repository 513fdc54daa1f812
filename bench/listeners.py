"""Many readers of one desk's stream, a process of their own, so that the load client does not pay for them.

They read as cheaply as they can: every few milliseconds whatever has come, and Linux throws it away without copying it
(MSG_TRUNC). Every hundredth is a witness that reads everything and counts the events.

One line of JSON is printed once all streams are open. A line on stdin ends the listening: then each listener must have
the desk's newest event, each witness must have counted every one since its start, and a second line says how many have.
"""

import argparse
import fcntl
import gc
import http.client
import json
import re
import select
import socket
import sys
import termios
import time
from array import array
from contextlib import suppress

from http1 import Target

EVENT = b"\nevent: "  # once in every event, right after the line of its id
ID_LENGTH = 32  # bytes before it that hold that line
ID = re.compile(rb"id: (\d+)$")
START = re.compile(rb"\nid: (\d+)\n\n")  # where the stream begins, told before any event
MOST_READ = 1 << 17  # bytes at once
TAIL = 4096  # bytes of the end of what has come that are kept, so that the newest event can be looked at
READ_EVERY = 0.01  # seconds; what comes meanwhile fits into the socket's buffer many times
PATIENCE = 10.0  # seconds that opening a stream, or catching up, may take
A_WITNESS_IN = 100

CLOSED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
NOWHERE = bytearray(1 << 20)  # what is thrown away is never written here


class ListenerFailed(Exception):
    """A stream that was refused or cut off."""


class Listener:
    """One stream."""

    def __init__(self, target: Target) -> None:
        self.socket = socket.create_connection(("127.0.0.1", target.port), timeout=PATIENCE)
        self.socket.sendall(target.get("/v1/events"))
        self.start = 0  # the cursor from which it reads
        self.bytes = 0
        self.tail = b""

    def open(self) -> None:
        """Read until the desk has said where the stream begins."""
        head = b""
        while (started := START.search(head)) is None:
            data = self.socket.recv(MOST_READ)
            head += data
            if not data or (b"\r\n\r\n" in head and head[9:12] != b"200"):
                raise ListenerFailed(f"unexpected response to a listener: {head[:600]!r}")
        self.start = int(started[1])
        self.socket.setblocking(False)

    def read(self) -> None:
        """Throw away what has come, but for the end of it.

        Nothing stays in the socket: the kernel would keep whole buffers for it and close the window.
        """
        waiting = array("i", [0])
        while True:
            fcntl.ioctl(self.socket, termios.FIONREAD, waiting)
            if waiting[0] <= TAIL:
                break
            most = min(waiting[0] - TAIL, len(NOWHERE))
            self.bytes += self.socket.recv_into(NOWHERE, most, socket.MSG_TRUNC)
        if waiting[0]:
            data = self.socket.recv(TAIL)
            self.bytes += len(data)
            self.tail = (self.tail + data)[-TAIL:]

    @property
    def cursor(self) -> int:
        """Of the newest event that has come."""
        self.read()
        return _last_id(self.tail) or self.start

    def is_complete(self, *, cursor: int) -> bool:
        return self.cursor >= cursor


class Witness(Listener):
    """One that reads everything."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.events = 0
        self.newest = 0

    def read(self) -> None:
        with suppress(BlockingIOError):
            while data := self.socket.recv(MOST_READ):
                self._count(data)

    def _count(self, data: bytes) -> None:
        self.bytes += len(data)
        # What was read before is there for an event that was cut in two; those that were whole are not counted again.
        begin = max(0, len(self.tail) - len(EVENT) + 1)
        data = self.tail + data
        self.events += data.count(EVENT, begin)
        self.newest = _last_id(data) or self.newest
        self.tail = data[-ID_LENGTH - len(EVENT) :]

    @property
    def cursor(self) -> int:
        self.read()
        return self.newest or self.start

    def is_complete(self, *, cursor: int) -> bool:
        return self.cursor >= cursor and self.events == self.newest - self.start


def _last_id(data: bytes) -> int | None:
    """Of the last event whose id is in there as a whole."""
    at = data.rfind(EVENT)
    if at < 0:
        return None
    id = ID.search(data[max(0, at - ID_LENGTH) : at])
    return int(id[1]) if id else None


class Crowd:
    """All of them."""

    def __init__(self, target: Target, *, count: int) -> None:
        self.listeners = [Listener(target) if number % A_WITNESS_IN else Witness(target) for number in range(count)]
        self.by_file = {listener.socket.fileno(): listener for listener in self.listeners}
        self.news = select.epoll()
        for listener in self.listeners:
            listener.open()
            self.news.register(listener.socket, select.EPOLLIN | select.EPOLLET | CLOSED)

    def read(self) -> None:
        time.sleep(READ_EVERY)
        for file, what in self.news.poll(0, len(self.listeners)):
            if what & CLOSED:
                raise ListenerFailed("a listener was cut off")
            self.by_file[file].read()

    def read_until_told(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            self.read()

    def read_up_to(self, cursor: int) -> int:
        """How many of them got there, having missed nothing."""
        deadline = time.monotonic() + PATIENCE
        while any(listener.cursor < cursor for listener in self.listeners) and time.monotonic() < deadline:
            self.read()
        return sum(listener.is_complete(cursor=cursor) for listener in self.listeners)


def cursor_of(target: Target) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE)
    connection.request("GET", "/v1/cursor", headers={"Authorization": f"Bearer {target.token}"})
    told = json.loads(connection.getresponse().read())
    connection.close()
    return int(told["cursor"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    target = Target(args.port, token=args.token)
    gc.disable()
    try:
        crowd = Crowd(target, count=args.count)
        print(json.dumps({"open": args.count}), flush=True)
        crowd.read_until_told()
        complete = crowd.read_up_to(cursor_of(target))
    except (ListenerFailed, OSError) as problem:
        sys.exit(f"listeners: {problem}")
    result = {
        "listeners": args.count,
        "incomplete": args.count - complete,
        "megabytes": round(sum(listener.bytes for listener in crowd.listeners) / 1e6, 1),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
