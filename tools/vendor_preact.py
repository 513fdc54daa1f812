"""Makes src/handraise/web/vendor/preact.js anew: Preact, its hooks, signals and htm in one ES module.

    python tools/vendor_preact.py            needs npm; change VERSIONS first to have newer ones

Whoever installs handraise never runs this: the module is part of the repository.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "src" / "handraise" / "web" / "vendor"
VERSIONS = {"preact": "11.2.0", "@preact/signals": "2.11.4", "@preact/signals-core": "1.14.5", "htm": "3.1.1"}
ESBUILD = "0.28.2"
PATIENCE = 300.0  # seconds for npm

# The names that `preact.d.ts` describes, and no others.
ENTRY = """
import { h } from "preact";
import htm from "htm";
export { Component, Fragment, cloneElement, createContext, createPortal, createRef, h, options, render, toChildArray }
  from "preact";
export { useCallback, useContext, useDebugValue, useEffect, useErrorBoundary, useId, useImperativeHandle,
  useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export { Signal, batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect }
  from "@preact/signals";
export const html = htm.bind(h);
"""

README = """\
# The vendored module

`preact.js` is one ES module of these packages, minified, and nothing of ours but the line that binds htm to `h`:

| package | version | licence |
|---|---|---|
{rows}

Their licences are in `LICENSES`. `preact.d.ts` is ours: it types the names that the module exports.

Made by `python tools/vendor_preact.py` with esbuild {esbuild}; a newer version is a change of the table in that file.
The module uses no `eval`, so it runs under the desk's content security policy.

sha256 of `preact.js`: `{digest}`
"""


def main() -> None:
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("the packages come by npm, which is not here; install Node.js.")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "package.json").write_text("{}")
        wanted = [f"{package}@{version}" for package, version in {**VERSIONS, "esbuild": ESBUILD}.items()]
        options = ["--ignore-scripts", "--no-fund", "--no-audit", "--loglevel=error"]
        subprocess.run([npm, "install", *options, *wanted], cwd=folder, check=True, timeout=PATIENCE)
        write(folder)


def write(folder: Path) -> None:
    """Bundle what npm put into this folder, and write what is told about it."""
    modules = folder / "node_modules"
    told = {package: json.loads((modules / package / "package.json").read_text()) for package in VERSIONS}
    nested = sorted(modules.glob("**/node_modules/*/package.json"))
    if nested:
        sys.exit(f"a second copy of a package would be bundled: {nested[0].parent.relative_to(folder)}; fit VERSIONS.")
    (folder / "entry.js").write_text(ENTRY)
    names = ", ".join(f"{package} {told[package]['version']}" for package in VERSIONS)
    subprocess.run(
        [
            *(modules / ".bin" / "esbuild", "entry.js", "--bundle", "--format=esm", "--minify", "--target=es2022"),
            *("--legal-comments=none", "--charset=utf8", "--log-level=warning", "--outfile=preact.js"),
            f"--banner:js=/* {names}; see LICENSES */",
        ],
        cwd=folder,
        check=True,
        timeout=PATIENCE,
    )
    VENDOR.mkdir(parents=True, exist_ok=True)
    module = (folder / "preact.js").read_bytes()
    (VENDOR / "preact.js").write_bytes(module)
    licences = (f"{package}\n\n{(modules / package / 'LICENSE').read_text().strip()}\n" for package in VERSIONS)
    (VENDOR / "LICENSES").write_text(f"\n{'=' * 80}\n\n".join(licences))
    rows = "\n".join(f"| {package} | {told[package]['version']} | {told[package]['license']} |" for package in VERSIONS)
    digest = hashlib.sha256(module).hexdigest()
    (VENDOR / "README.md").write_text(README.format(rows=rows, esbuild=ESBUILD, digest=digest))
    print(f"wrote {len(module)} bytes: {names}")


if __name__ == "__main__":
    main()
