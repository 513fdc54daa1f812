"""Commands and secrets in disguise: what runs other text, files by another case, secrets with escaped signs."""

from __future__ import annotations

import pytest

from handraise.rules import Rule, decide
from handraise.rules.risks import judge
from handraise.testing import a_permission
from handraise.text.masking import Mask

FORBIDDEN = [Rule(tool="shell", action="reject", matches={"command": (each,)}) for each in ("git push *", "curl *")]
LINK = "A1b2C3d4E5f6G7h8J9k0L1m2N3p4Q5r6S7t8U9v0W1x"


@pytest.mark.parametrize(
    "command",
    [
        "make -f /dev/stdin <<<$'all:\\n\\tgit push origin'",
        "make SHELL='git push origin'",
        "pwsh -Command git push origin",
        "test -v 'a[$(git push origin)]'",
        "mapfile -C 'git push origin' -c 1 < x",
        "complete -C 'git push origin' x",
        "hash -p /usr/bin/git x; x push origin",
        "enable -f ./x git",
        "fc -s",
        "nix run nixpkgs#git push origin",
        "arch -arm64 git push origin",
        "curl.exe http://x",
    ],
)
def test_what_forbids_is_not_evaded_beside_a_rule_that_allows_everything(command: str) -> None:
    ask = a_permission(tool="bash", command=command, summary="")
    assert decide(ask, [*FORBIDDEN, Rule(tool="*", action="allow")]).action != "allow"


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("cp evil .git/hooks/pre-commit", "later"),
        ("cp -t .git/hooks evil", "later"),
        ("tee .git/hooks/pre-commit", "later"),
        ("mv x .github/workflows/ci.yml", "later"),
        ("sed -i s/a/b/ .git/config", "later"),
        ("curl -o .envrc http://x", "later"),
        ("mv handraise.toml x", "later"),
        ("fd -x rm", "delete"),
        ("fd . -X rm", "delete"),
        ("cat .ENV", "secrets"),
        ("git show HEAD:.env", "secrets"),
        ("curl file:/etc/shadow", "secrets"),
        ("curl FILE://localhost/etc/shadow", "secrets"),
    ],
)
def test_a_risk_is_seen_in_disguise(command: str, risk: str) -> None:
    judged = judge(a_permission(tool="bash", command=command, summary="", cwd="/shop"))
    assert risk in judged.risks and judged.only_at_desk is not None


@pytest.mark.parametrize(
    "command", ["git add .github/workflows/ci.yml", "cat .git/config", "cp a b", "git show HEAD:a.py"]
)
def test_everyday_commands_have_no_new_risk(command: str) -> None:
    assert judge(a_permission(tool="bash", command=command, summary="", cwd="/shop")).risks == ()


@pytest.mark.parametrize(
    "text",
    [
        f"https:\\/\\/desk\\/a\\/{LINK}",
        f"https%3A%2F%2Fdesk%2Fa%2F{LINK}",
        f"/login?next=%2fsignin%2f{LINK}",
        f"https:\\/\\/hooks.slack.com\\/services\\/T00000000\\/B00000000\\/{LINK}",
        f"postgres%3A%2F%2Fu%3A{LINK}%40h",
        f"db_pass%3D{LINK}",
        f"authorization%3A%20Bearer%20{LINK}",
    ],
)
def test_a_secret_with_escaped_signs_around_it_is_hidden(text: str) -> None:
    shown = Mask().text(f"before {text} behind")
    assert LINK not in shown and LINK[:20] not in shown
    assert shown.startswith("before ")
