"""Checks the types of the web app: its files are plain JavaScript, and their comments say the types.

    PYTHONPATH=. python tools/check_web.py

TypeScript is fetched once per version into the cache that the tests keep their programs in. Environment:
HANDRAISE_CACHE (where that is), HANDRAISE_WITHOUT_TYPESCRIPT=1 (go without).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.live.programs import ProgramUnavailable, bring, by_npm

WEB = Path(__file__).parent.parent / "src" / "handraise" / "web"
VERSION = "7.0.2"
WITHOUT = "HANDRAISE_WITHOUT_TYPESCRIPT"
TYPESCRIPT = by_npm("typescript", size="30 MB", file="bin/tsc", without=WITHOUT)
PATIENCE = 300.0  # seconds
# A service worker lives among other names than a page does. `tsc` calls an empty set of files a mistake.
PROJECTS = {"tsconfig.json": "**/*.js", "tsconfig.worker.json": "sw.js"}


def main() -> int:
    if os.environ.get(WITHOUT) == "1":
        print(f"the types of the web app were not checked ({WITHOUT}=1)")
        return 0
    try:
        tsc = bring(TYPESCRIPT, VERSION)
    except ProgramUnavailable as error:
        print(f"the types of the web app were not checked: {error}", file=sys.stderr)
        return 1
    projects = [project for project, files in PROJECTS.items() if any(WEB.glob(files))]
    return max([_check(tsc, project) for project in projects], default=0)


def _check(tsc: Path, project: str) -> int:
    command = ["node", str(tsc), "--noEmit", "--pretty", "false", "-p", str(WEB / project)]
    return subprocess.run(command, timeout=PATIENCE, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
