"""Installs and starts `sandbox-agent`, the peer handraise is measured against, with an agent of ours in its proxy.

The npm package brings one binary per platform in `@sandbox-agent/cli-<platform>`; it is run directly, without the
Node wrapper.

Its proxy `/v1/acp/{id}` passes messages between HTTP and an agent process. The agent that comes with it only
echoes, so it has to be given one that asks. For `agent=mock` it runs whatever it finds at
`$XDG_DATA_HOME/sandbox-agent/bin/agent_processes/mock-acp`: with a folder of our own as `XDG_DATA_HOME`, that is a
launcher of `asking_agent.py`.

Its log is set to errors only, since ours has no access log either.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import TOKEN, Server, free_port, running

PACKAGE = "sandbox-agent"
VERSION = "0.4.2"
PLATFORMS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "x86_64"): "darwin-x64",
    ("Darwin", "arm64"): "darwin-arm64",
}


class PeerUnavailable(Exception):
    """The peer cannot be had on this machine; the message says why."""


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "handraise"


def install() -> Path:
    """The peer's binary, fetched from npm once per version. Raises PeerUnavailable."""
    kind = PLATFORMS.get((platform.system(), platform.machine()))
    if kind is None:
        raise PeerUnavailable(f"{PACKAGE} has no binary for {platform.system()} on {platform.machine()}")
    home = cache_folder() / "npm" / f"{PACKAGE}-{VERSION}"
    binary = home / "node_modules" / "@sandbox-agent" / f"cli-{kind}" / "bin" / PACKAGE
    if not binary.exists():
        _npm_install(home)
    if not binary.exists():
        raise PeerUnavailable(f"npm installed {PACKAGE} {VERSION} without its binary for {kind}")
    binary.chmod(0o755)
    return binary


def _npm_install(home: Path) -> None:
    """Into a folder beside it first, so that an interrupted download is not taken for an install."""
    npm = shutil.which("npm")
    if npm is None:
        raise PeerUnavailable("npm is not installed")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        unfinished = Path(folder) / home.name
        unfinished.mkdir()
        done = subprocess.run(
            [npm, "install", f"{PACKAGE}@{VERSION}", "--prefix", str(unfinished), "--no-fund", "--no-audit"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise PeerUnavailable(f"npm could not install {PACKAGE} {VERSION}: {done.stderr.strip()[-500:]}")
        shutil.rmtree(home, ignore_errors=True)
        unfinished.rename(home)


@contextmanager
def peer(binary: Path, *, folder: Path) -> Iterator[Server]:
    """A fresh peer that keeps everything it stores under `folder`."""
    _place_asking_agent(folder)
    port = free_port()
    command = [str(binary), "server", "--host", "127.0.0.1", "--port", str(port), "--token", TOKEN]
    env = {
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
        "OPENCODE_COMPAT_DB_PATH": str(folder / "peer.sqlite"),
        "RUST_LOG": "error",
        "SANDBOX_AGENT_LOG_HTTP": "0",
    }
    with running(
        [*command, "--no-telemetry"],
        port=port,
        token=TOKEN,
        env=env,
        folder=folder,
        ready_path="/v1/health",
    ) as server:
        yield server


def _place_asking_agent(folder: Path) -> None:
    launcher = folder / "data" / "sandbox-agent" / "bin" / "agent_processes" / "mock-acp"
    launcher.parent.mkdir(parents=True)
    agent = Path(__file__).with_name("asking_agent.py")
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{agent}"\n')
    launcher.chmod(0o755)
