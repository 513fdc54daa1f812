"""Makes command lines: from the grammar that is certain, from what gets around rules, and from both, spoilt."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.helpers.hostile_commands import BY_READING, EVERYDAY, MUST_REJECT

__all__ = ["lines", "may_run"]

WORDS = [
    *(
        "x",
        "y",
        "-n",
        "-la",
        "--",
        "--stat",
        "src",
        "a.py",
        "src/a.py",
        "HEAD~1",
        "HEAD^",
        "a=b",
        "--k=v",
        "x:y",
        "@",
        "%h",
    ),
    *(
        "'a b'",
        '"a b"',
        "'it;s'",
        '"a|b"',
        "''",
        '""',
        "'$x'",
        "'`rm x`'",
        '"it\'s"',
        "'\"'",
        "a'b'c",
        'a"b"c',
        "\\x",
        "\\ ",
    ),
    *(
        "a\\ b",
        "\\;",
        "\\&",
        "\\'",
        '\\"',
        "\\\\",
        "\\$x",
        "\\*",
        "'*'",
        "*.py",
        "?",
        "x*",
        "[ab]",
        "src/*",
        ".en?",
        "~",
        "~/x",
    ),
    *(
        "é",
        "日本",
        "stash@{0}",
        "{}",
        "!",
        "%",
        "a#b",
        "1",
        "2",
        "0",
        "-",
        "+x",
        "^",
        "a^b",
        "]",
        "x]",
        ",",
        "a,b",
    ),
    *(
        "'a\nb'",
        '"a\nb"',
        "'a\tb'",
        "\\\t",
        "rm",
        "'rm x'",
        "=",
        "a=",
        "x=~",
        "..",
        "a..b",
        "(",
        "{",
        "}",
        "$",
        "é*",
        "\\\n",
        ":",
    ),
]
WORDS += [
    *(
        '"$x"',
        '"${x}"',
        '"a$x"',
        "$?",
        '"$?"',
        '"$x y"',
        '"$x[1]"',
        '"$x:h"',
        "$x",
        "{a,b}",
        "s{a,b}.py",
        "{x,rm}",
        "{a,-n}",
    ),
    *(
        "\"$(cat <<'E'\na (b) it's $x\nE\n)\"",
        "\"$(cat <<'E'\nE\n)\"",
        "\"$(cat <<'E'\nrm x\n\nE\n)\"",
        "{a,b}{c,d}",
        "{a,b}*",
    ),
]
COMMENTS = [" # x", "# x", " #", "#x", " # it's; rm x", ' # "', " # `rm x`", " # $(rm x)", " # \\", " # <<E", " # )"]
SETTINGS = ["CI=1", "NODE_ENV=test", "TZ=", "CI=$x", "x=1", "CI='1'", "LANG=C.UTF-8"]
IDLE = ["true", ":", "false", "true x", ": x"]
PROGRAMS = ["cat", "ls", "git diff", "git status", "npm test", "grep", "echo", "'cat'", "c\\at", '"ls"', "c''at"]
OTHERS = [
    "rm",
    "rm -rf",
    "evil",
    "sudo rm",
    "git push",
    "r''m",
    "command rm",
    "exec rm",
    "time rm",
    "\\rm",
    "env rm",
    "noglob rm",
]
BETWEEN = [" ; ", ";", " && ", "&&", " || ", " | ", "|", "\n", " & ", "&", "\n\n", " ;\n", " |\n", " &&\n", "& \n"]
HARMLESS = [
    "2>&1",
    ">/dev/null",
    "2>/dev/null",
    "> /dev/null",
    "1>&2",
    ">&2",
    "</dev/null",
    "<&0",
    ">>/dev/null",
    "0</dev/null",
]
HARMFUL = [
    *(
        "&>1",
        "&>>2",
        ">f",
        "> f",
        ">>f",
        ">|f",
        "<>f",
        ">&f",
        ">& f",
        "3>&1",
        "2>&1x",
        ">&-",
        "{a}>&1",
        "&>/dev/null",
        ">!f",
    ),
    *(
        ">/dev/null\\\tf",
        "2>&1\\\tf",
        "2>&1\\ f",
        "2>&1\\\nf",
        ">/dev/null'x'",
        ">'f'",
        "<<<x",
        "<f",
        ">&3",
        ">&$x",
        "2>f",
        ">\\\nf",
    ),
    *(
        "2\\\n>f",
        ">&1f",
        ">&12",
        "12>f",
        ">>|f",
        "&>|f",
        ">/dev/nul?",
        ">#f",
        "1>f",
        "<>/dev/null",
        ">/dev/null>f",
        "2>&1>f",
    ),
]
MARKS = [
    *(
        "'",
        '"',
        "\\",
        "`",
        "$(",
        ")",
        "(",
        "{",
        "}",
        ";",
        "&",
        "|",
        "\n",
        "<",
        ">",
        "#",
        " #",
        "!",
        "$",
        "$'",
        '$"',
        "=",
        " =",
    ),
    *(
        "~",
        "*",
        "?",
        "[",
        "]",
        " ",
        "\t",
        "\r",
        "${",
        "$((",
        "))",
        "[[ ",
        " ]]",
        ",",
        "..",
        "\\\n",
        "&&",
        "||",
        ";;",
        "|&",
        "&!",
    ),
    *(
        "rm x",
        "; rm x",
        "\nrm x",
        "& rm x",
        "| rm x",
        "$(rm x)",
        "`rm x`",
        "<(rm x)",
        "=(rm x)",
        "\\\nrm x",
        "# \\\nrm x\n",
        "é",
    ),
    *(
        "\\\\",
        "\\'",
        '\\"',
        "''",
        '""',
        "\x0b",
        "\x0c",
        "\x01",
        "\u00a0",
        "\u2028",
        "\x85",
        "a=b ",
        " -c ",
        "<<E\n",
        "\nE\n",
        "<<'E'\n",
    ),
    *(
        "eval ",
        "exec ",
        "command ",
        "! ",
        "time ",
        "if ",
        "then ",
        "fi",
        "do ",
        "done",
        "in ",
        "esac",
        "case ",
        "coproc ",
        "[ ",
        " ]",
    ),
    *(
        "\\\nE\n",
        "2",
        "1",
        "&>",
        ">&",
        ">>",
        "<<<",
        "|\n",
        "()",
        "(rm x)",
        "{ ",
        "; }",
        "{a,b}",
        "{1..2}",
        "^",
        "@(x)",
        "=rm",
        "~+",
    ),
]
TEMPLATES = [
    # Found by the long run.
    "g=(rm x)rep >>/dev/null >&2 a>'f'\"b\"c",
    ">&-sudo rma=b  ",
    "cat x &2&>>2",
    "cat x [[ && ls y",
    '2\\\n>f"ls" \\\nsrc \\\n>&2\\ ',
    "grep x .*.",
    "ls .?",
    "cat x >&'<(rm x)f'",
    "cat(){ rm x; }; cat y",
    "cat () ( rm x ); cat y",
    "function cat { rm x; }; cat y",
    "alias cat=rm\ncat y",
    "alias cat='rm x'\ncat y",
    "PATH=.:$PATH cat x",
    "x=rm; $x y",
    "trap 'rm x' EXIT; cat y",
    "cat <<E\n$(rm x)\nE",
    "cat <<'E'\nx\\\nE\nrm x\nE",
    "cat <<E\nx\\\nE\nrm x\nE",
    "cat <<-E\n\tx\n\tE\nrm x",
    "cat x # \\\nrm x",
    "cat x #\\\nrm x",
    "cat <<\\E\n`rm x`\nE",
    "cat <<E <<F\nE\nF\nrm x",
    'cat <<"E F"\nrm x\nE F\nrm y',
    "case x in x) rm x;; esac",
    "case x in (x) rm x;; esac",
    "for x in a; do rm $x; done",
    "for x do rm x; done",
    "for x in rm; do $x y; done",
    "if cat x; then rm x; fi",
    "{ rm x; }",
    "! rm x",
    "(rm x)",
    "((rm x))",
    "[[ x && rm x ]]",
    "[[ x ]] && rm x",
    "$'rm' x",
    "$'\\x72m' x",
    "$(rm x)",
    'cat "$(rm x)"',
    'cat "${x:-$(rm x)}"',
    "cat ${x:-`rm x`}",
    "cat $((1+$(rm x)))",
    "cat $[$(rm x)]",
    "cat $((1) ; rm x )",
    "eval rm x",
    "eval 'cat x; rm x'",
    "command rm x",
    "exec rm x",
    "{rm,x}",
    "rm{,} x",
    "repeat 1 rm x",
    "- rm x",
    "cat x &>1 rm y",
    "cat x |& rm y",
    "cat x &! rm y",
    "cat x &| rm y",
    "cat =(rm x)",
    "cat <(rm x)",
    "cat > >(rm x)",
    "x=(a $(rm x)); cat y",
    "x=a rm y",
    "2>/dev/null rm y",
    ">f rm y",
    "cat x;\\\nrm y",
    "cat x &\\\n& rm y",
    "r\\\nm x",
    "if rm x\nthen cat y\nelse rm z\nfi",
    "cat x \\\n  y \\\n| rm z",
    "test -v 'a[$(rm x)]'",
    "printf %d 'a[$(rm x)]'",
    "[ 'a[$(rm x)]' -eq 1 ]",
    "echo ${(e):-'$(rm x)'}",
    "() { rm x; }",
    "cat x(e:'rm x':)",
    "select x in a; do rm y; done",
    "coproc rm x",
    "cat x; rm\ty",
    "cat\\\n x; r'm' y",
    '"cat" x\\\n\\\nrm y',
    "cat 'x\\\n' y\nrm z",
    'cat "x\\\n" y\nrm z',
    "cat x \\# \nrm y",
    "cat x\\\n#\nrm y",
    "cat '#' x # '\nrm y",
    "# '\nrm y",
    "cat <<<'a\nb'\nrm x",
    "cat <<E;rm x\nE",
    "cat <<E|rm x\na\nE",
    "cat $(cat <<E\nE\nrm x)",
    'cat "`cat \\"x\\"`"; rm y',
    "cat `cat \\`rm x\\``",
    "foreach x (a b) rm y; end",
    "for x (a b) rm y",
    "if (cat x) rm y",
    "while rm x; do break; done",
    "until rm x; do break; done",
    "cat x && { cat y; } || rm z",
    'set -- rm; "$@" x',
    'cat ${x+"}"}; rm y',
    'cat "${x+\'}"; rm y',
    "cat $'a\\'b'; rm y #'",
    "cat $'a'\"$'\"; rm y",
]
_CORPUS = [
    *(command for _, command, _ in BY_READING),
    *(command for _, command in MUST_REJECT),
    *(command for _, command in EVERYDAY),
]
# A slash that could begin the path of a real program or of another's file. What holds one is judged, never run.
_FOREIGN = re.compile(
    r"(?<![A-Za-z0-9_.~*?])/(?!dev/null(?![A-Za-z0-9_./]))|\.\.\\?/|~[A-Za-z+-]|[*?~.]/+(bin|usr|dev|etc|root|home)"
)
# What may go on without an end, or start itself again and again.
_ENDLESS = re.compile(r"\(\s*\)|\b(function|while|until|repeat|for|foreach|select|alias|coproc|kill|read)\b")


def may_run(line: str) -> bool:
    """Whether a real shell may be given the line: only recorders can be reached by it, and it ends."""
    if "\0" in line or _FOREIGN.search(line) or len(line) > 500:
        return False
    if ("$" in line or "`" in line) and "/" in line.replace("/dev/null", ""):
        return False  # a value that is empty would leave a path from the root
    return line in TEMPLATES or not _ENDLESS.search(line)


def lines(seed: int, count: int) -> Iterator[str]:
    """The same ones for the same seed."""
    rng = random.Random(seed)
    fixed = [*TEMPLATES, *_CORPUS]
    for number in range(count):
        if number < len(fixed):
            yield fixed[number]
            continue
        chance = rng.random()
        if chance < 0.45:
            yield _plain(rng)
        elif chance < 0.75:
            yield _spoilt(rng, _plain(rng), rng.randint(1, 2))
        elif chance < 0.9:
            yield _spoilt(rng, rng.choice(fixed)[:300], rng.randint(1, 3))
        else:
            yield "".join(rng.choice(rng.choice((MARKS, MARKS, WORDS, PROGRAMS))) for _ in range(rng.randint(2, 8)))


def _plain(rng: random.Random) -> str:
    """Mostly what is certain; each kind of harm now and then."""
    line = _command(rng)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        comment = rng.choice(COMMENTS) + "\n" if rng.random() < 0.08 else ""
        line += rng.choice(BETWEEN) + comment + (rng.choice(IDLE) if rng.random() < 0.06 else _command(rng))
    if rng.random() < 0.08:
        line = rng.choice((line + rng.choice(COMMENTS), rng.choice(COMMENTS) + "\n" + line))
    if rng.random() < 0.08:
        line = f"({line})" + rng.choice(("", " 2>&1", " >/dev/null", ";cat x", " x"))
    if rng.random() < 0.05:
        line = f"! {line}"
    return line + rng.choice(("", "", "", "", "\n", ";", " ", " &"))


def _command(rng: random.Random) -> str:
    pieces = [rng.choice(OTHERS if rng.random() < 0.06 else PROGRAMS)]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        pieces.append(rng.choice(WORDS))
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        pieces.insert(rng.randint(0 if rng.random() < 0.1 else 1, len(pieces)), rng.choice(HARMLESS))
    if rng.random() < 0.06:
        pieces.insert(rng.randint(1, len(pieces)), rng.choice(HARMFUL))
    if rng.random() < 0.06:
        pieces.insert(0, rng.choice(SETTINGS))
    return rng.choice((" ", " ", " ", "  ", "\t", " \\\n")).join(pieces)


def _spoilt(rng: random.Random, line: str, times: int) -> str:
    for _ in range(times):
        at = rng.randint(0, len(line))
        match rng.randint(0, 5):
            case 0 if line:
                line = line[:at] + line[at + 1 :]
            case 1:
                line = line[:at] + rng.choice(HARMLESS + HARMFUL) + line[at:]
            case _:
                line = line[:at] + rng.choice(MARKS) + line[at:]
    return line
