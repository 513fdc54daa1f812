"""What Amp runs for a call that needs a permission: asks the desk, and says what was decided by how it ends.

Never imported: the adapter writes a copy of it, with the desk's address in it, and that is started for each call. So it
imports little. Amp 0.0.1790142911 gives it the arguments of the tool on stdin and reads its end: 0 allows, 1 has Amp
ask at its own terminal, 2 refuses with what stands on stderr.
"""

# ruff: noqa: PTH109, PTH112, PTH115, PTH123 (pathlib takes as long as all the rest)
import http.client
import json
import os
import select
import socket
import sys
import time
from urllib.parse import urlsplit

DESK = {"url": "", "token": "", "attended": None}

ALLOW, ASK_HERE, REFUSE = 0, 1, 2
CONNECT = 5.0  # seconds for a desk to take the call
WORDS = 10.0  # seconds for its answer to arrive once it begins
LOOK = 1.0  # seconds between two looks whether Amp is still there
AGAIN, PATIENCE = 1.0, 60.0  # seconds between attempts to find a desk again that went away, and for all of them
EXECUTE = ("-x", "-ox", "--execute", "--orb-execute", "--stream-json", "--no-tui")


class Undecided(Exception):
    """The desk has not said what to do, and will not."""


class Broken(Exception):
    """The connection ended while the desk was thinking about it."""


def main() -> int:
    amp = os.getppid()
    try:
        given = json.loads(sys.stdin.buffer.read())
        decision, reason = decided(given, amp=amp)
    except Undecided as problem:
        return undecided(str(problem), amp=amp)
    except KeyboardInterrupt:
        return REFUSE
    except Exception as problem:
        return undecided(f"asking the desk of handraise went wrong ({type(problem).__name__})", amp=amp)
    if decision == "allow":
        return ALLOW
    if decision == "reject":
        tell(reason or "Nobody allowed this; go on without it.")
        return REFUSE
    return undecided(reason or "the desk of handraise left it to the terminal", amp=amp)


def undecided(problem: str, *, amp: int) -> int:
    """A person at the terminal decides; where there is none, nothing runs."""
    if is_attended(amp):
        return ASK_HERE
    tell(f"Nobody could be asked for this permission: {problem}. Nothing was run; go on without it.")
    return REFUSE


def tell(text: str) -> None:
    sys.stderr.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stderr.buffer.flush()


def decided(given: object, *, amp: int) -> tuple[str, str]:
    """What the desk says, however long that takes. Raises Undecided."""
    call = os.urandom(12).hex()  # Amp tells none, and two calls may be the same to the letter
    wanted = {
        "call": call,
        "tool": os.environ.get("AGENT_TOOL_NAME", ""),
        "input": given,
        "thread": os.environ.get("AMP_THREAD_ID"),
        "cwd": os.getcwd(),
        "machine": os.uname().nodename,
        "pid": amp,
    }
    body = json.dumps(wanted).encode()
    until = 0.0
    while True:
        try:
            return understood(said(body, amp=amp), call=call)
        except (Broken, ConnectionError, OSError) as problem:
            is_lost = isinstance(problem, Broken)
            if not until and not is_lost:
                raise Undecided("the desk of handraise cannot be reached") from None
            # At a terminal Amp asks by itself at once. Elsewhere the desk may only be restarting.
            if not until and is_attended(amp):
                raise Undecided("the desk of handraise went away") from None
            until = until or time.monotonic() + PATIENCE
            if time.monotonic() > until:
                raise Undecided("the desk of handraise went away and did not come back") from None
            time.sleep(AGAIN)
            stay_with(amp)


def understood(content: bytes, *, call: str) -> tuple[str, str]:
    """Whatever else may listen there by now does not know this call. Raises Undecided."""
    try:
        told = json.loads(content)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("call") != call:
        raise Undecided("the desk of handraise said something else")
    return str(told.get("decision")), str(told.get("reason") or "")


def said(body: bytes, *, amp: int) -> bytes:
    """Raises Broken where the desk left after it had heard us, OSError where it did not hear us, Undecided."""
    url = str(DESK["url"])
    if url.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(CONNECT)
            door.connect(url[len("unix:") :])
            door.sendall(body + b"\n")
            wait(door, amp)
            try:
                with door.makefile("rb") as answer:
                    return answer.readline() or lost()
            except OSError:
                return lost()
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(parts.netloc, timeout=CONNECT)
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    headers = {"Authorization": f"Bearer {DESK['token']}", "Content-Type": "application/json"}
    connection.request("POST", f"{parts.path.rstrip('/')}/attach/amp/call", body, headers)
    wait(connection.sock, amp)
    try:
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException):
        return lost()
    if response.status in (502, 503, 504):
        return lost()
    if response.status in (401, 403):
        raise Undecided("the desk of handraise refused the token; run `handraise install amp` again")
    if response.status != 200:
        raise Undecided(f"the desk of handraise did not take the call (status {response.status})")
    return content


def wait(door: socket.socket, amp: int) -> None:
    """Until the desk says something. Amp may end first: nobody needs an answer then, and the closed door tells that."""
    while not select.select([door], [], [], LOOK)[0]:
        stay_with(amp)
    door.settimeout(WORDS)


def stay_with(amp: int) -> None:
    if os.getppid() != amp:
        sys.exit(REFUSE)


def lost() -> bytes:
    raise Broken


def is_attended(amp: int) -> bool:
    """Whether a person sits at Amp's terminal. Amp starts us in a session of our own, so ours says nothing."""
    if DESK["attended"] is not None:
        return bool(DESK["attended"])
    try:
        with open(f"/proc/{amp}/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
        screen = os.readlink(f"/proc/{amp}/fd/1")
        return screen.startswith(("/dev/pts/", "/dev/tty", "/dev/console")) and not is_execution(words)
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return False
    with os.popen(f"ps -o tty= -o args= -p {amp}") as listing:  # noqa: S605 - a number
        terminal, *words = listing.read().split() or ["?"]
    return not terminal.startswith("?") and not is_execution(words)


def is_execution(words: list[str]) -> bool:
    return any(word.partition("=")[0] in EXECUTE for word in words)


if __name__ == "__main__":
    sys.exit(main())
