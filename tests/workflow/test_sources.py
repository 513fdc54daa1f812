"""What a workflow file imports of its project is found by reading, with bounds, and nothing of it is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handraise.errors import WorkflowBroken
from handraise.workflow import sources
from handraise.workflow.sources import sources_of


def project(root: Path, **files: str) -> Path:
    """Files by their names, `a__b` for a/b.py; the workflow file is `flow`."""
    folder = root / ".handraise" / "workflows"
    for name, text in files.items():
        path = (
            folder / f"{name.replace('__', '/')}.py"
            if not name.endswith("_init")
            else folder / name[:-5] / "__init__.py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "flow.py"


def names(file: Path, root: Path) -> list[str]:
    return sorted(str(path.relative_to(file.parent)) for path in sources_of(file, root=root))


def test_every_way_to_import_a_file_of_the_project_is_followed(tmp_path: Path) -> None:
    file = project(
        tmp_path,
        flow="import one as o, two.deep\nfrom three import (\n  four,\n  five as f,\n)\n"
        "def f():\n    import late; from six import *\n",
        one="try: import seven\nexcept ImportError: pass\n",
        two_init="",
        two__deep="from . import near\nfrom .close import x\nfrom .. import outside\n",
        two__near="",
        two__close="",
        three__four="import os, json, handraise.workflow\n",
        three__five="raise SystemExit",
        late="",
        six="yield_from = 1\n",
        seven="import one\n",
        unused="",
        outside="",
    )
    assert names(file, tmp_path) == [
        "flow.py",
        "late.py",
        "one.py",
        "outside.py",
        "seven.py",
        "six.py",
        "three/five.py",
        "three/four.py",
        "two/__init__.py",
        "two/close.py",
        "two/deep.py",
        "two/near.py",
    ]
    assert next(iter(sources_of(file, root=tmp_path))) == file


def test_text_that_only_looks_like_an_import_names_nothing(tmp_path: Path) -> None:
    file = project(
        tmp_path, flow='"""\nimport one\n"""\n# import one\nx = "import one"\ny = b"from one import z"\n', one=""
    )
    assert names(file, tmp_path) == ["flow.py"]


def test_a_file_that_is_no_python_is_itself(tmp_path: Path) -> None:
    for text in (
        "import one\n  ((((",
        "'''",
        "# coding: nothing\nimport one",
        "(" * 100_000,
        "\0",
        "-" * 500_000 + "1",
    ):
        file = project(tmp_path, flow=text, one="")
        assert file in sources_of(file, root=tmp_path)


def test_what_the_interpreter_imports_from_below_the_project_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project(tmp_path, flow="from shop.models import Order\n")
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "__init__.py").write_text("")
    (tmp_path / "src" / "shop" / "models.py").write_text("")
    assert list(sources_of(file, root=tmp_path)) == [file]
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    assert [path.name for path in sources_of(file, root=tmp_path)] == ["flow.py", "__init__.py", "models.py"]


def test_a_link_out_of_the_project_is_part_of_it(tmp_path: Path) -> None:
    file = project(tmp_path / "shop", flow="import one\n")
    (tmp_path / "elsewhere.py").write_text("x = 1\n")
    (file.parent / "one.py").symlink_to(tmp_path / "elsewhere.py")
    assert sources_of(file, root=tmp_path / "shop")[file.parent / "one.py"] == b"x = 1\n"


def test_there_is_a_bound_for_files_bytes_levels_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project(
        tmp_path / "many", flow="\n".join(f"import m{n}" for n in range(300)), **{f"m{n}": "" for n in range(300)}
    )
    with pytest.raises(WorkflowBroken, match=r"flow.py:1: it imports more than 200 files"):
        sources_of(file, root=tmp_path / "many")
    file = project(tmp_path / "deep", flow="import m0", **{f"m{n}": f"import m{n + 1}" for n in range(100)})
    with pytest.raises(WorkflowBroken, match="more than 30 levels"):
        sources_of(file, root=tmp_path / "deep")
    file = project(tmp_path / "large", flow="import one", one="#" * sources.MOST_BYTES)
    with pytest.raises(WorkflowBroken, match="more than 2048 KiB"):
        sources_of(file, root=tmp_path / "large")
    for text in ("import a\n" * 2_000, f"import {'.'.join('a' * 1_000)}", "import " + ", ".join("a" * 2_000)):
        file = project(tmp_path / "names", flow=text)
        with pytest.raises(WorkflowBroken, match="more names than can be followed"):
            sources_of(file, root=tmp_path / "names")


def test_what_is_no_ordinary_file_is_refused_and_waits_for_nobody(tmp_path: Path) -> None:
    file = project(tmp_path, flow="import one\n")
    os.mkfifo(file.parent / "one.py")
    assert names(file, tmp_path) == ["flow.py"]
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(WorkflowBroken, match="no ordinary file"):
        sources_of(file, root=tmp_path)
    with pytest.raises(WorkflowBroken, match="cannot be read: No such file"):
        sources_of(tmp_path / "none.py", root=tmp_path)
