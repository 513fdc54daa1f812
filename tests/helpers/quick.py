"""A `handraise` that is there at once, for tests that run it many dozens of times.

One process loads handraise and forks for each call, so that a command costs what it does and not what its imports cost.
Otherwise it is the real one: its own process, the caller's folder, environment, standard streams and exit code.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

# What stands on the PATH. It loads as little as it can: hand over the words, the folder, the environment and the
# standard streams, and leave with the code that comes back.
_SHIM = """\
#!/bin/sh
exec '{python}' -SEs -c '
import array, os, sys, _socket
words, given = sys.argv[1:], [f"{{name}}={{value}}" for name, value in os.environ.items()]
door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
door.connect("{door}")
streams = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
told = "\\0".join([os.getcwd(), str(len(words)), *words, *given])
door.sendmsg([told.encode(errors="surrogateescape")], [streams])
sys.exit(int(door.recv(9) or 1))
' "$@"
"""


@contextmanager
def quick_handraise() -> Iterator[Path]:
    """A folder for the PATH, with `handraise` in it."""
    with TemporaryDirectory(prefix="hr") as folder:  # a short name: sockets take no long ones
        door, command = Path(folder, "door"), Path(folder, "handraise")
        command.write_text(_SHIM.format(python=sys.executable, door=door))
        command.chmod(0o755)
        serving = subprocess.Popen([sys.executable, __file__, str(door)], stdout=subprocess.PIPE)
        try:
            assert serving.stdout is not None
            assert serving.stdout.readline(), "it did not start"
            yield command.parent
        finally:
            serving.kill()
            serving.communicate()


def serve(door: str) -> None:
    import handraise.app
    import handraise.channels.terminal
    import handraise.cli.run_following
    import handraise.cli.running
    import handraise.client  # noqa: F401 - loaded here, once

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(door)
    listener.listen()
    gc.freeze()
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os._exit(_be_handraise(caller))
        caller.close()


def _be_handraise(caller: socket.socket) -> int:
    from handraise.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    folder, count, *rest = told.decode(errors="surrogateescape").split("\0")
    words, given = rest[: int(count)], rest[int(count) :]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({name: value for name, _, value in (each.partition("=") for each in given)})
    sys.argv = ["handraise", *words]
    code = 1
    try:
        main()
    except SystemExit as left:
        code = int(left.code or 0)
    sys.stderr.flush()
    caller.sendall(b"%d\n" % code)
    return code


if __name__ == "__main__":
    serve(sys.argv[1])
