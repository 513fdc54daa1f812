"""Makes docs/picture.svg, the picture of a terminal in docs/howto/answer.md, from a real run.

A desk in a temporary home, `handraise ask` in one terminal of tmux and `handraise watch` in another; the keys are typed
by tmux, and both screens are drawn as they were captured, colours and all. The temporary folder is shown as `~`. Needs
tmux; nothing else runs this.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).with_name("picture.svg")
COLUMNS = 86
PATIENCE = 20.0  # seconds anything may take

# No remote font: the picture looks the same without a network.
TEMPLATE = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img"
  aria-label="One terminal asks, another answers">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs>
{lines}
</defs>
<rect fill="#16181d" width="{width}" height="{height}" rx="12" />
<g transform="translate(9, 36)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
COLOURS = [
    (22, 24, 29),
    (255, 107, 107),
    (98, 209, 150),
    (240, 198, 116),
    (108, 158, 248),
    (201, 143, 239),
    (95, 205, 212),
    (222, 226, 235),
]
THEME = TerminalTheme(COLOURS[0], COLOURS[-1], COLOURS, [(92, 99, 112), *COLOURS[1:]])


def main() -> None:
    if shutil.which("tmux") is None:
        sys.exit("docs/picture.py needs tmux")
    with tempfile.TemporaryDirectory(prefix="hr") as folder, desk(Path(folder)) as environment:
        screens = act(Path(folder), environment)
    PICTURE.write_text(draw(*(screen.replace(folder, "~") for screen in screens)))
    print(f"wrote docs/{PICTURE.name}")


def act(folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """What the one who asks and the one who answers see at the end."""
    with (
        Pane(folder, "agent", environment, rows=12) as agent,
        Pane(folder, "person", environment, rows=40) as person,
    ):
        for pane in (agent, person):
            pane.sees("$ ")
        person.type("handraise watch")
        person.sees("Nothing is waiting for you")
        agent.type(
            'handraise ask "Which database should orders use?" SQLite PostgreSQL \\\n'
            '  --id orders-db --session nightly --describe "PostgreSQL=shared, needs a server"'
        )
        person.sees("Select [1-2")
        person.type("2")
        person.sees("answered: PostgreSQL")
        agent.sees("\nPostgreSQL\n$")
        agent.type('handraise ask --command "rm -rf build" --session nightly && rm -rf build')
        person.sees("[y] allow once")
        person.type("y")
        person.sees("allowed once")
        agent.sees("\nonce\n$")
        return agent.screen(), person.screen()


@contextmanager
def desk(folder: Path) -> Iterator[dict[str, str]]:
    """A desk that runs, and the environment of whoever uses it: nothing of this machine but the programs."""
    (folder / "shop" / "build").mkdir(parents=True)
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "HOME": str(folder),
        "LOGNAME": "ana",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "HANDRAISE_HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    command = [sys.executable, "-m", "handraise", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            assert serving.stdout.readline(), "the desk did not start"
            yield environment
        finally:
            serving.terminate()


class Pane:
    """A terminal of tmux with a shell in it. Use as a context."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str], *, rows: int) -> None:
        self._tmux = ["tmux", "-S", str(folder / name), "-f", os.devnull]
        self._environment = environment
        self._folder = folder / "shop"
        self._size = ["-x", str(COLUMNS), "-y", str(rows)]

    def __enter__(self) -> Pane:
        shell = "exec env 'PS1=$ ' 'PS2=> ' bash --norc --noprofile"  # on its way here a shell would drop them
        self._run("new-session", "-d", *self._size, "-c", str(self._folder), shell)
        self._run("set", "status", "off")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")

    def type(self, line: str) -> None:
        for each in line.split("\n"):
            self._run("send-keys", "-l", each)
            self._run("send-keys", "Enter")

    def sees(self, text: str) -> None:
        until = time.monotonic() + PATIENCE
        while text not in f"\n{self._run('capture-pane', '-p', '-J')}":
            if time.monotonic() > until:
                sys.exit(f"{text!r} did not come:\n{self.screen()}")
            time.sleep(0.05)

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-e").rstrip("\n")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environment, check=True, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout


def draw(agent: str, person: str) -> str:
    console = Console(record=True, width=COLUMNS + 4, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    panels = [
        Panel(Text.from_ansi(screen), title=f"[bold white]{title}", title_align="left", border_style="bright_black")
        for title, screen in (("a script asks", agent), ("you answer", person))
    ]
    console.print(Group(*panels))
    return console.export_svg(title="", theme=THEME, code_format=TEMPLATE, unique_id="handraise")


if __name__ == "__main__":
    main()
