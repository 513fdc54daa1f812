"""How much CPU a command takes to start and end, beside an empty Python: user and system time, the median of several.

Run it with `make bench-start`. `asks`, `ask` and `answer` talk to a desk that this starts on a free port, in a home of
its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from handraise.agents.amp.settings import delegate

RUNS = 15
PATIENCE = 30.0  # seconds for a desk to start
COMMAND = str(Path(sys.executable).with_name("handraise"))


class Measured(NamedTuple):
    name: str
    words: Sequence[str]
    most: float | None = None  # milliseconds that it is meant to stay under
    given: bytes = b""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="handraise-bench-") as folder, a_desk(Path(folder)) as environ:
        rows = [(each, cpu(each, environ=environ, runs=runs)) for each in measured(Path(folder))]
    empty = rows[0][1]
    print(f"{'command':<32} {'CPU':>8} {'over Python':>12} {'limit':>8}")
    for each, took in rows:
        limit = "" if each.most is None else f"{each.most:.0f} ms"
        print(f"{each.name:<32} {took:>5.0f} ms {took - empty:>9.0f} ms {limit:>8}")
    return int(any(each.most is not None and took > each.most for each, took in rows))


def measured(folder: Path) -> Iterator[Measured]:
    yield Measured("python -c pass", [sys.executable, "-c", "pass"])
    yield Measured("handraise --version", [COMMAND, "--version"], most=80)
    program = folder / "amp-delegate"
    # Nobody listens there, so it ends at once: what is measured is all that it does before and after the desk decides.
    program.write_text(delegate(url="http://127.0.0.1:9", token="hr_none", attended=False))
    program.chmod(0o700)
    yield Measured("amp-delegate", [str(program)], most=80, given=b'{"cmd": "ls"}')
    yield Measured("handraise asks", [COMMAND, "asks"], most=150)
    yield Measured("handraise ask", [COMMAND, "ask", "Deploy?", "yes", "no", "--timeout", "0"], most=150)
    yield Measured("handraise answer", [COMMAND, "answer", "first", "yes"], most=150)
    yield Measured("handraise --help", [COMMAND, "--help"])


def cpu(what: Measured, *, environ: dict[str, str], runs: int) -> float:
    """Milliseconds, the median of so many runs after one that fills the caches."""
    took = []
    for _ in range(runs + 1):
        before = _children()
        subprocess.run(what.words, input=what.given, env=environ, capture_output=True, check=False)
        took.append(_children() - before)
    return statistics.median(took[1:]) * 1000


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def a_desk(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which commands find it; one ask, `first`, is open there."""
    environ = {**os.environ, "HANDRAISE_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "config")}
    environ = {name: value for name, value in environ.items() if name not in ("HANDRAISE_URL", "HANDRAISE_TOKEN")}
    serving = subprocess.Popen(
        [COMMAND, "serve", "--port", "0"], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + PATIENCE
        asking = [COMMAND, "ask", "--id", "first", "Deploy?", "yes", "no", "--timeout", "0"]
        while subprocess.run(asking, env=environ, capture_output=True, check=False).returncode != 3:
            if time.monotonic() > until:
                raise SystemExit("the desk did not start")
            time.sleep(0.2)
        yield environ
    finally:
        serving.terminate()
        serving.wait()


if __name__ == "__main__":
    sys.exit(main())
