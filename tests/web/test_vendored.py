"""The module of other people's code that the web app uses is the one that was looked at."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

VENDOR = files("handraise") / "web" / "vendor"


def test_the_vendored_module_is_the_one_that_was_recorded() -> None:
    told = re.search(r"sha256 of `preact.js`: `([0-9a-f]{64})`", (VENDOR / "README.md").read_text())
    assert told is not None
    digest = hashlib.sha256((VENDOR / "preact.js").read_bytes()).hexdigest()
    assert digest == told[1], "made otherwise than by tools/vendor_preact.py"


def test_the_vendored_module_makes_no_code_of_text() -> None:
    module = (VENDOR / "preact.js").read_text()
    assert re.search(r"\beval\b|\bFunction\(|\bimport\b", module) is None


def test_the_types_describe_every_name_of_the_vendored_module_and_no_other() -> None:
    exported = re.search(r"export\{([^}]*)\}", (VENDOR / "preact.js").read_text())
    assert exported is not None
    names = {entry.rpartition(" as ")[2] for entry in exported[1].split(",")}
    declaration = r"^export (?:abstract class|class|function|const) (\w+)"
    described = set(re.findall(declaration, (VENDOR / "preact.d.ts").read_text(), flags=re.MULTILINE))
    assert described == names


def test_every_package_in_the_vendored_module_has_its_licence_beside_it() -> None:
    packages = re.findall(r"^\| (\S+) \| [\d.]+ \| \S+ \|$", (VENDOR / "README.md").read_text(), flags=re.MULTILINE)
    assert len(packages) == 4
    licences = (VENDOR / "LICENSES").read_text().splitlines()
    assert set(packages) <= set(licences)
