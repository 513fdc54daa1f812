"""The browser that the tests of the web app use: Chromium, as the system has it; and axe, which looks for barriers.

Chromium comes whole, and as a shell without the parts that draw a window: pages are the same there, in about half the
time, but nothing shows notifications.

    PYTHONPATH=. python tests/browser/install.py     installs what is missing, where it may

Environment: HANDRAISE_BROWSER (another Chromium), HANDRAISE_CACHE (where axe is kept), HANDRAISE_WITHOUT_BROWSER=1
(tests go without).
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.live.programs import ProgramUnavailable, bring, by_npm

WITHOUT = "HANDRAISE_WITHOUT_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
SHELL = "chromium-headless-shell"
AXE = by_npm("axe-core", size="3 MB", file="axe.min.js", without=WITHOUT)
AXE_VERSION = "4.14.0"
PATIENCE = 900.0  # seconds for apt


def chromium() -> Path:
    """Raises ProgramUnavailable."""
    named = os.environ.get("HANDRAISE_BROWSER")
    found = next(filter(None, map(shutil.which, (named,) if named else NAMES)), None)
    if found is None:
        missing = f"there is no {named}" if named else "Chromium is not here"
        raise ProgramUnavailable(
            f"{missing}, which the tests of the web app need; install it (on Debian `apt install chromium`), name one "
            f"with HANDRAISE_BROWSER, or set {WITHOUT}=1."
        )
    return Path(found)


def shell() -> Path:
    """The whole of it where the shell is not here, or where another was named. Raises ProgramUnavailable."""
    found = None if os.environ.get("HANDRAISE_BROWSER") else shutil.which(SHELL)
    return Path(found) if found else chromium()


@functools.cache
def axe() -> str:
    """The script itself, downloaded if need be. Raises ProgramUnavailable."""
    return bring(AXE, AXE_VERSION).read_text()


def _install_chromium() -> None:
    """Only root may, and only apt has a Chromium of its own; elsewhere `chromium` says what to do."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    print("chromium: installing it, about 160 MB", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium", SHELL]):
        subprocess.run(
            ["apt-get", *step], env=quiet, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=PATIENCE
        )


def main(arguments: list[str]) -> int:
    if os.environ.get(WITHOUT) == "1":
        print(f"the tests in a browser are left out ({WITHOUT}=1)")
        return 0
    try:
        if os.environ.get("HANDRAISE_BROWSER") is None and not (any(map(shutil.which, NAMES)) and shutil.which(SHELL)):
            _install_chromium()
        found = chromium(), shell()
        axe()
    except ProgramUnavailable as error:
        print(f"browser: {error}", file=sys.stderr)
        return 1
    if "--quiet" not in arguments:
        print(f"browser: {found[0]}, {found[1]}, and axe {AXE_VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
