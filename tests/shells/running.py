"""Lets real shells run command lines with recorders in place of programs, and holds what ran against what was said.

Each line is run in a subshell of its own, in an empty folder. No program is in reach but the recorders. As root, the
shells run as nobody.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.shells.install import SHELLS

PROGRAMS = (
    *(
        "cat",
        "ls",
        "git",
        "npm",
        "grep",
        "rm",
        "evil",
        "sudo",
        "env",
        "x",
        "y",
        "z",
        "f",
        "1",
        "2",
        "a",
        "b",
        "rg",
        "find",
    ),
    *("pytest", "wc", "head", "tail", "make", "cargo", "go", "jq", "sed", "nohup", "nice", "timeout", "xargs", "time"),
    *("bash", "sh", "python3", "node", "perl", "ruby", "php", "busybox", "su", "ssh", "watch", "src", "HEAD", "p", "m"),
)
NOBODY = 65534
PATIENCE = 120.0  # seconds for one shell and its lines


@dataclass(frozen=True)
class Ran:
    """What one shell did with one line."""

    shell: str
    commands: tuple[tuple[str, ...], ...]  # the programs that ran, with their words
    files: tuple[str, ...]  # what lies in the folder afterwards


class Shells:
    """A place in which they run. Use it as a context."""

    def __enter__(self) -> Shells:
        self._place = Path(tempfile.mkdtemp(prefix="handraise-shells-"))
        self._place.chmod(0o755)
        self._programs = self._place / "programs"
        self._programs.mkdir()
        recorder = self._place / "recorder"
        recorder.write_text(
            f'#!{shutil.which("dash")}\nprintf \'%s\\0\' $# "${{0##*/}}" "$@" >> "$HANDRAISE_RECORD"\n'
            # What `cat` is given to hand on comes out again, so that texts by it are really compared.
            '[ "$#${0##*/}" = 0cat ] && while IFS= read -r line; do printf \'%s\\n\' "$line"; done\nexit 0\n'
        )
        recorder.chmod(0o755)
        for name in PROGRAMS:
            (self._programs / name).symlink_to(recorder)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def run(self, lines: Sequence[str]) -> list[list[Ran]]:
        """For each line what each shell did."""
        found: list[list[Ran]] = [[] for _ in lines]
        for shell, command in SHELLS.items():
            place = self._place / shell
            self._prepare(place, lines)
            self._start(place, command)
            for number in range(len(lines)):
                home = place / "home" / str(number)
                folders = (place / "in" / str(number), home)
                files = tuple(sorted(path.name for folder in folders for path in folder.iterdir()))
                record = place / "ran" / str(number)
                commands = _parsed(record.read_bytes(), home=str(home)) if record.exists() else ()
                found[number].append(Ran(shell, commands, files))
            beside = sorted({path.name for path in place.iterdir()} - {"in", "ran", "home", "lines.sh"})
            assert not beside, f"{shell} wrote {beside}"
            shutil.rmtree(place)
        return found

    def _prepare(self, place: Path, lines: Sequence[str]) -> None:
        script = []
        for folder in (place, place / "in", place / "ran", place / "home"):
            folder.mkdir()
        for number, line in enumerate(lines):
            (place / "in" / str(number)).mkdir()
            (place / "home" / str(number)).mkdir()
            quoted = "'" + line.replace("'", "'\\''") + "'"
            script.append(
                f"( ulimit -t 2; HANDRAISE_RECORD={place}/ran/{number}; export HANDRAISE_RECORD; "
                f"HOME={place}/home/{number}; export HOME; "
                f"cd {place}/in/{number}; eval {quoted}\nwait ) </dev/null >/dev/null 2>&1"
            )
        (place / "lines.sh").write_bytes("\n".join(script).encode(errors="surrogatepass"))
        if os.geteuid() == 0:
            for folder, _, _ in os.walk(place):
                os.chown(folder, NOBODY, NOBODY)

    def _start(self, place: Path, command: Sequence[str]) -> None:
        program = shutil.which(command[0])
        assert program is not None
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        running = subprocess.Popen(
            [program, *command[1:], str(place / "lines.sh")],
            cwd=place,
            env={"PATH": str(self._programs), "HOME": str(place / "home"), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_limit,
            **as_nobody,
        )
        try:
            running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{command[0]} did not get through its lines") from None
        finally:
            if running.poll() is None:
                os.killpg(running.pid, 9)
                running.wait()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (300, 300))


def _parsed(record: bytes, *, home: str) -> tuple[tuple[str, ...], ...]:
    """What the recorders wrote: how many words, the program, the words. The home folder is `~` again."""
    texts = record.decode(errors="surrogateescape").split("\0")
    commands = []
    at = 0
    while at + 1 < len(texts):
        count = int(texts[at])
        words = texts[at + 1 : at + 2 + count]
        commands.append(tuple("~" + word.removeprefix(home) if word.startswith(home) else word for word in words))
        at += 2 + count
    return tuple(commands)
