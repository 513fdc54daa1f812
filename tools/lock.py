"""Write constraints.txt: the version of every package in the environment that runs this. `make lock` calls it."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

FILE = Path(__file__).parents[1] / "constraints.txt"
HEAD = (
    "# Versions for development and CI. Written by `make lock`; newer ones are tried by `make test VERSIONS=newest`.\n"
)
OURS = {"handraise", "pip", "setuptools"}


def main() -> None:
    names = {each.metadata["Name"].lower().replace("_", "-"): each.version for each in distributions()}
    lines = sorted(f"{name}=={version}\n" for name, version in names.items() if name not in OURS)
    FILE.write_text(HEAD + "".join(lines))
    print(f"wrote {len(lines)} versions to {FILE.name}")


if __name__ == "__main__":
    main()
