"""`make bench-hostile`: what one hostile request costs a real desk, and everybody else who calls it.

Beside each request another process calls `/healthz` every five milliseconds on a connection that it holds open. Its
longest wait is the stall. Every request is sent several times and the smallest of the longest waits counts: what other
programs do to the machine only ever adds. Memory is the peak of the desk's resident pages over what they were before,
and the largest counts.
"""

import argparse
import http.client
import json
import multiprocessing
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from servers import TOKEN, Server, free_port, running

PING_EVERY = 0.005
LIMIT_MS, LIMIT_MB = 50.0, 10.0
MEBI = 1024 * 1024
FEW_DESCRIPTORS = 256
MANY_CONNECTIONS = 300
PATIENCE = 20.0  # seconds that a reply may take


@dataclass(frozen=True)
class Attack:
    name: str
    caller: str  # nobody, ask or admin
    send: Callable[..., str]  # what came of it, in a few words
    # What is there before it is measured, which begins with a new start of the desk; what it returns, `send` gets.
    before: Callable[["Desk"], Any] | None = None


@dataclass(frozen=True)
class Desk:
    server: Server
    ask_token: str

    def token(self, caller: str) -> str | None:
        return {"nobody": None, "ask": self.ask_token, "admin": TOKEN}[caller]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), PATIENCE)

    def raw(self, data: bytes) -> str:
        """The status of what comes back for these bytes."""
        with closing(self.connect()) as connection:
            try:
                connection.sendall(data)
                reply = connection.recv(1000)
            except OSError as problem:
                return type(problem).__name__
        return reply.split(b" ", 2)[1].decode() if reply.startswith(b"HTTP/") else "closed"

    def call(self, caller: str, path: str, *, body: bytes | None = None, **headers: str) -> str:
        try:
            return str(self._reply(caller, path, body=body, **headers)[0])
        except (OSError, http.client.HTTPException) as problem:
            return type(problem).__name__

    def read(self, caller: str, path: str, *, body: bytes | None = None) -> bytes:
        return self._reply(caller, path, body=body)[1]

    def _reply(self, caller: str, path: str, *, body: bytes | None, **headers: str) -> tuple[int, bytes]:
        token = self.token(caller)
        sent = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)) as connection:
            connection.request("GET" if body is None else "POST", path, body, sent)
            response = connection.getresponse()
            return response.status, response.read()


# Requests ---------------------------------------------------------------------------------------------------


def head(*lines: bytes) -> bytes:
    return b"\r\n".join((b"GET /v1/asks HTTP/1.1", b"Host: 127.0.0.1", *lines, b"", b""))


def body_of(body: bytes, *, caller: str = "ask", path: str = "/v1/asks") -> Callable[[Desk], str]:
    return lambda desk: desk.call(caller, path, body=body)


def ask_with(extra: str) -> bytes:
    return f'{{"questions":[{{"question":"q","options":[{{"label":"a"}}]}}],{extra}}}'.encode()


def permission(command: str) -> bytes:
    return json.dumps({"permission": {"tool": "Bash", "command": command, "replies": ["once", "reject"]}}).encode()


def at_the_limits() -> bytes:
    options = [{"label": f"option {number}", "description": "x" * 20} for number in range(500)]
    return json.dumps({"questions": [{"question": f"q{number}", "options": options} for number in range(50)]}).encode()


def many_rules() -> bytes:
    rules = [{"match": f"re:(a|b|{number}){{1,200}}" + "x?" * 500, "answers": ["a"]} for number in range(500)]
    return ask_with(f'"question_policy":{json.dumps({"auto": rules})}')


def filled(text: str) -> bytes:
    """As many of these as a body holds."""
    return (text * (4 * MEBI // len(text) - 40)).encode()


# Diffs as long as a body lets them be. Lines are what diffs are made of; with one character beyond the first 65,536 of
# Unicode a text takes four bytes for each of them.
DIFFS = {
    "one line": "x",
    "lines": "+    some(code, of, a) line {here}\n",
    "empty lines": "\n",
    "files": "--- a/b\n+++ b/b\n@@\n",
    "an emoji": "x",
}


def large(kind: str = "lines") -> bytes:
    unit = DIFFS[kind]
    diff = unit * ((4 * MEBI - 1000) // (len(json.dumps(unit)) - 2)) + ("\U0001f600" if kind == "an emoji" else "")
    return json.dumps({"permission": {"tool": "Edit", "diff": diff}}, ensure_ascii=False).encode()


def fill(desk: Desk) -> None:
    body = large()
    for _ in range(10):
        desk.call("ask", "/v1/asks", body=body)


def asked(desk: Desk) -> str:
    """A large ask that is there before anything is measured; its id, as it stands in a path."""
    reply = desk.read("ask", "/v1/asks", body=large())
    return quote(json.loads(reply)["id"], safe="")


def answered(desk: Desk, id: str) -> str:
    return desk.call("admin", f"/v1/asks/{id}/answer", body=b'{"reply":"once"}')


def withdrawn(desk: Desk, id: str) -> str:
    return desk.call("ask", f"/v1/asks/{id}/withdraw", body=b"{}")


def decided(desk: Desk) -> None:
    for _ in range(10):
        answered(desk, asked(desk))


def link_to(desk: Desk) -> str:
    made = json.loads(desk.read("admin", f"/v1/asks/{asked(desk)}/link", body=b"{}"))
    return urlsplit(made["url"]).path


@contextmanager
def listening(desk: Desk, path: str, *, count: int) -> Iterator[list[socket.socket]]:
    """Listeners that read the head of their stream and nothing more."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(closing(desk.connect())) for _ in range(count)]
        for listener in listeners:
            listener.sendall(head(f"Authorization: Bearer {TOKEN}".encode()).replace(b"/v1/asks", path.encode()))
            listener.recv(1000)
        yield listeners


def caught_up(desk: Desk, _: object) -> str:
    """A listener that wants all of that from the beginning, and does not read it."""
    with listening(desk, "/v1/events?after=0", count=1):
        time.sleep(1)
    return "200"


def told(*, reads: bool) -> Callable[[Desk], str]:
    """Twenty listeners that are told of a large ask as it comes."""

    def send(desk: Desk) -> str:
        with listening(desk, "/v1/events", count=20) as listeners:
            came = desk.call("ask", "/v1/asks", body=large())
            if reads:
                for listener in listeners:
                    size = 0
                    while size < 3 * MEBI and (piece := listener.recv(MEBI)):
                        size += len(piece)
            else:
                time.sleep(1)
        return came

    return send


def unfinished(desk: Desk) -> str:
    """Twenty bodies of four mebibytes that lack their last byte."""
    start = f"POST /v1/asks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {desk.ask_token}\r\n"
    start += f"Content-Length: {4 * MEBI}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(closing(desk.connect()))
            connection.settimeout(0.2)
            try:
                connection.sendall(start.encode() + b" " * (4 * MEBI - 1))
            except OSError:
                continue
    return "left"


def opened(first: bytes) -> Callable[[Desk], str]:
    """Many connections that say this and no more. What came of it is whether a person still gets through."""

    def send(desk: Desk) -> str:
        with ExitStack() as stack:
            for _ in range(MANY_CONNECTIONS):
                try:
                    connection = stack.enter_context(closing(desk.connect()))
                    connection.sendall(first.replace(b"ASK", desk.ask_token.encode()))
                except OSError:
                    continue
            return "a person: " + desk.call("admin", "/v1/cursor")

    return send


ATTACKS = [
    Attack("nothing", "nobody", lambda desk: desk.call("nobody", "/healthz")),
    Attack("a cookie of 60 kB", "nobody", lambda desk: desk.raw(head(b"Cookie: " + b"a=" * 30_000))),
    Attack("one header of 8 MB", "nobody", lambda desk: desk.raw(head(b"X: " + b"x" * 8_000_000))),
    Attack("1,000,000 headers", "nobody", lambda desk: desk.raw(head(*([b"a:"] * 1_000_000)))),
    Attack("10,000 headers", "nobody", lambda desk: desk.raw(head(*([b"a:"] * 10_000)))),
    Attack("a path of 1 MB", "nobody", lambda desk: desk.raw(head().replace(b"asks", b"x" * 1_000_000))),
    Attack("20,000 requests in one piece", "nobody", lambda desk: desk.raw(head() * 20_000)),
    Attack("a body of 4 MiB", "nobody", body_of(b"x" * 4 * MEBI, caller="nobody")),
    Attack(
        "a body of 10 MB, `Connection: close`",
        "nobody",
        lambda desk: desk.call("nobody", "/v1/asks", body=b"x" * 10_000_000, Connection="close"),
    ),
    Attack("an answer link's form of 4 MiB", "nobody", body_of(b"a=b&" * MEBI, caller="nobody", path="/a/x")),
    Attack("4 MiB of `[`", "ask", body_of(b"[" * 4 * MEBI)),
    Attack("4 MiB of `[],` in extra", "ask", body_of(ask_with(f'"x":[{filled("[],").decode()}1]'))),
    Attack("4 MiB of `{},` as questions", "ask", body_of(b'{"questions":[' + filled("{},") + b"{}]}")),
    Attack("4 MiB of `{},` as options", "ask", body_of(b'{"questions":[{"options":[' + filled("{},") + b"{}]}]}")),
    Attack("4 MiB of digits", "ask", body_of(ask_with('"x":' + "9" * (4 * MEBI - 100)))),
    Attack("4 MiB of equal keys", "ask", body_of(ask_with(filled('"x":1,').decode() + '"y":1'))),
    Attack("4 MiB of keys", "ask", body_of(ask_with(",".join(f'"{number}":1' for number in range(400_000))))),
    Attack("4 MiB of escapes", "ask", body_of(ask_with('"x":"' + filled(r"\u00e9").decode() + '"'))),
    *(Attack(f"a diff of 4 MiB: {kind}", "ask", body_of(large(kind))) for kind in DIFFS),
    Attack("the same, waited for", "ask", body_of(large(), path="/v1/asks?wait=1")),
    Attack("a large ask, read", "admin", lambda desk, id: desk.call("admin", f"/v1/asks/{id}"), before=asked),
    Attack("a large ask, answered", "admin", answered, before=asked),
    Attack("a large ask, withdrawn", "ask", withdrawn, before=asked),
    Attack("a large ask, its answer link", "nobody", lambda desk, path: desk.call("nobody", path), before=link_to),
    Attack("50 questions of 500 options", "ask", body_of(at_the_limits())),
    Attack("500 expressions as policy", "ask", body_of(many_rules())),
    Attack(
        "10,000 deliveries",
        "ask",
        body_of(json.dumps({"deliveries": [{"id": str(n)} for n in range(10_000)]}).encode(), path="/v1/deliveries"),
    ),
    Attack("`a|a|…` of 20 kB", "ask", body_of(permission("a|" * 9_990 + "a"))),
    Attack("`eval eval …` of 20 kB", "ask", body_of(permission("eval " * 3_990 + "a"))),
    Attack("`{a,{a,…` of 20 kB", "ask", body_of(permission("echo " + "{a," * 6_600))),
    Attack("20 bodies of 4 MiB, unfinished", "ask", unfinished),
    Attack("10 large asks, listed", "admin", lambda desk, _: desk.call("admin", "/v1/asks?limit=1000"), before=fill),
    Attack("10 large asks, searched", "admin", lambda desk, _: desk.call("admin", "/v1/asks?q=code"), before=fill),
    Attack("10 large asks, in the audit", "admin", lambda desk, _: desk.call("admin", "/v1/audit"), before=decided),
    Attack("10 large asks, followed by one that does not read", "admin", caught_up, before=fill),
    Attack("a large ask for 20 listeners", "ask", told(reads=True)),
    Attack("a large ask for 20 listeners that do not read", "ask", told(reads=False)),
]
CONNECTIONS = [
    Attack("300 connections that say nothing", "nobody", opened(b"")),
    Attack("300 heads without an end", "nobody", opened(b"GET /v1/asks HTTP/1.1\r\nX: ")),
    Attack(
        "300 streams",
        "ask",
        opened(b"GET /v1/events?worker=w HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ASK\r\n\r\n"),
    ),
]


# Measuring --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    came: str
    stall_ms: float
    peak_mb: float


def measure(folder: Path, attack: Attack, *, times: int, descriptors: int | None) -> Cost:
    costs = []
    if attack.before is None:
        with a_desk(folder, descriptors=descriptors) as desk:
            costs = [measure_once(desk, lambda: attack.send(desk)) for _ in range(times)]
    else:
        for number in range(times):
            with a_desk(folder / str(number), descriptors=descriptors) as desk:
                made, token = attack.before(desk), desk.ask_token
            # Started again, it has read nothing yet and has no memory left over.
            with a_desk(folder / str(number), descriptors=descriptors, ask_token=token) as desk:
                costs.append(measure_once(desk, lambda desk=desk, made=made: attack.send(desk, made)))
    return Cost(costs[0].came, min(cost.stall_ms for cost in costs), max(cost.peak_mb for cost in costs))


def measure_once(desk: Desk, send: Callable[[], str]) -> Cost:
    desk.call("admin", "/v1/cursor")
    before = _status(desk.server.pid, "VmRSS")
    # Writing 5 resets the peak of the resident pages (proc(5)).
    Path(f"/proc/{desk.server.pid}/clear_refs").write_text("5")
    with pinging(desk.server.port) as longest:
        came = send()
    return Cost(came, longest() * 1000, _status(desk.server.pid, "VmHWM") - before)


def _status(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / 1e6


@contextmanager
def pinging(port: int) -> Iterator[Callable[[], float]]:
    """Calls by another process for as long as the block lasts; afterwards the longest of them, in seconds."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_ping, args=(port, theirs), daemon=True)
    process.start()
    ours.recv()
    found: list[float] = []
    try:
        yield lambda: found[0]
    finally:
        ours.send(None)
        found.append(ours.recv())
        process.join()


def _ping(port: int, control: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    longest, started = 0.0, False
    while not control.poll():
        began = time.perf_counter()
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()
            time.sleep(0.05)
        if started:
            longest = max(longest, time.perf_counter() - began)
        else:
            started = True
            control.send(None)
        time.sleep(PING_EVERY)
    control.send(longest)


@contextmanager
def a_desk(folder: Path, *, descriptors: int | None = None, ask_token: str | None = None) -> Iterator[Desk]:
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "handraise", "serve", "--port", str(port)]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    env = {"HANDRAISE_HOME": str(folder / "home"), "HANDRAISE_TOKEN": TOKEN}
    with (
        running(command, port=port, token=TOKEN, env=env, folder=folder, ready_path="/healthz") as server,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection,
    ):
        if ask_token is None:
            made = json.dumps({"name": "agent", "scopes": ["ask"]})
            connection.request("POST", "/v1/tokens", made, {"Authorization": f"Bearer {TOKEN}"})
            ask_token = json.loads(connection.getresponse().read())["token"]
        yield Desk(server, ask_token)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="requests whose name has a match of this expression")
    parser.add_argument("--times", type=int, default=3, help="how often each is sent; the best counts")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for index, (attacks, descriptors) in enumerate(((ATTACKS, None), (CONNECTIONS, FEW_DESCRIPTORS))):
            for number, attack in enumerate(attacks):
                if given.only and not re.search(given.only, attack.name):
                    continue
                place = Path(folder) / f"{index}-{number}"
                cost = measure(place, attack, times=given.times, descriptors=descriptors)
                rows.append((attack, cost))
                print(f"{attack.name}: {cost}", file=sys.stderr)
    print(f"| request | by | came back | stall, ms (at most {LIMIT_MS:g}) | peak, MB (at most {LIMIT_MB:g}) |")
    print("|---|---|---|---:|---:|")
    for attack, cost in rows:
        print(f"| {attack.name} | {attack.caller} | {cost.came} | {cost.stall_ms:.0f} | {cost.peak_mb:.1f} |")


if __name__ == "__main__":
    main()
