"""The shells that the tests let run command lines: bash, dash, zsh and busybox sh, as the system has them.

    python tests/shells/install.py     installs what is missing, where it may

Environment: HANDRAISE_WITHOUT_SHELLS=1 (tests go without).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

WITHOUT = "HANDRAISE_WITHOUT_SHELLS"
SHELLS: dict[str, tuple[str, ...]] = {
    "bash": ("bash", "--norc", "--noprofile"),
    "dash": ("dash",),
    "zsh": ("zsh", "-f"),
    "busybox": ("busybox", "sh"),
}
PATIENCE = 300.0  # seconds for apt


def missing() -> list[str]:
    return [name for name in SHELLS if shutil.which(name) is None]


def main(arguments: list[str]) -> int:
    if os.environ.get(WITHOUT) == "1":
        print(f"the tests with real shells are left out ({WITHOUT}=1)")
        return 0
    if missing() and shutil.which("apt-get") is not None and os.geteuid() == 0:
        print(f"shells: installing {', '.join(missing())}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing()]):
            subprocess.run(
                ["apt-get", *step], env=quiet, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=PATIENCE
            )
    if missing():
        print(
            f"shells: {', '.join(missing())} not here; install them (on Debian `apt install {' '.join(missing())}`), "
            f"or set {WITHOUT}=1.",
            file=sys.stderr,
        )
        return 1
    if "--quiet" not in arguments:
        print(f"shells: {', '.join(str(shutil.which(name)) for name in SHELLS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
