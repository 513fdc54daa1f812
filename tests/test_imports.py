"""Imports point down the list in STYLE.md and never sideways inside a family."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import handraise

ROOT = Path(handraise.__file__).parent
ORDER = """
    errors plugins text asks events clock tasks transports rules people wire policies stores edits agents agents.members
    tables channels channels.members trust rules.book broker workflow chat config trust.project
    edits.installing client sync mcp worker switchboard server app cli __main__ testing
""".split()  # noqa: SIM905 - a list to read
FAMILIES = ("policies", "stores", "transports", "agents", "channels", "server.compat")
SHARED = {"transports.launcher"}  # no member: a script that can import nothing of ours and has to keep its name
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}


def imports(module: str) -> Iterator[str]:
    """The modules of ours that a module imports, anywhere but for its types."""
    tree = ast.parse(MODULES[module].read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "handraise":
            base = node.module.split(".")[1:]
            for alias in node.names:
                full = ".".join([*base, alias.name])
                yield full if {full, f"{full}.__init__"} & MODULES.keys() else ".".join(base)
        elif isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("handraise."))


def test_imports_point_down() -> None:
    wrong = [
        f"handraise.{module} imports handraise.{imported}"
        for module in MODULES
        for imported in imports(module)
        if module != "__init__" and imported and rank(imported) > rank(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_siblings_of_a_family_do_not_know_each_other() -> None:
    wrong = [
        f"handraise.{module} imports handraise.{imported}"
        for module in MODULES
        for imported in imports(module)
        for family in FAMILIES
        if (mine := member(module, family)) and (other := member(imported, family)) and mine != other
    ]
    assert not wrong, "\n".join(wrong)


def test_the_records_need_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; before = set(sys.modules); import handraise.asks; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["handraise"]


def test_only_tests_of_workflows_and_the_process_of_their_code_load_it() -> None:
    found = {module for module in MODULES if "workflow.authoring" in imports(module)}
    assert found == {"workflow.child", "testing.runs"}


def rank(module: str) -> int:
    """The place of the longest name in the order that begins like the module's."""
    parts = module.removesuffix(".__init__").split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    if f"{parts[0]}.members" in ORDER and member(module, parts[0]):  # they know what they share, and not the reverse
        names.insert(-1, f"{parts[0]}.members")
    known = next((name for name in names if name in ORDER), None)
    assert known, f"handraise.{module} has no place in the order of imports; give it one in {__file__}"
    return ORDER.index(known)


def member(module: str, family: str) -> str | None:
    """Which member of a family a module is; its front door and what the members share are none."""
    if module in SHARED:
        return None
    name = module.removeprefix(f"{family}.").partition(".")[0] if module.startswith(f"{family}.") else ""
    return name if name and not name.startswith("_") else None
