"""Makes a lock of src/onechip/ladder/engines/locks: requirements in, every package that pip would take out.

    python tools/lock_engine.py OUT.txt REQUIREMENT... [--python PYTHON] [--drop NAME]... [--index URL]...
        [--pip OPTION]...

Run it with the Python that the lock is for (or give --python), on the platform that it is for, or say the
platform to pip (--pip=--platform --pip=manylinux_2_28_x86_64 ...). --index writes an `#index` line for
packages whose pins carry a local version like +cpu.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Resolves, drops what was asked to be dropped, and writes the pins in the order of their names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("requirements", nargs="+")
    parser.add_argument("--python", default=sys.executable)
    for option in ("--drop", "--index", "--pip"):
        parser.add_argument(option, action="append", default=[])
    given = parser.parse_args()
    pins = resolve(given.python, given.requirements, given.pip)
    kept = sorted(pin for name, pin in pins.items() if name not in given.drop)
    head = [f"# {' '.join(given.requirements)}", *(f"#index {index}" for index in given.index)]
    given.out.write_text("\n".join([*head, *kept]) + "\n")
    print(f"{given.out}: {len(kept)} packages")


def resolve(python: str, requirements: list[str], options: list[str]) -> dict[str, str]:
    """Name -> "name==version" of everything that pip would install into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [python, "-I", "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*pip, "--report", str(report), *options, *requirements], check=True)
        chosen = json.loads(report.read_bytes())["install"]
    found = (item["metadata"] for item in chosen)
    return {meta["name"].lower(): f"{meta['name']}=={meta['version']}" for meta in found}


if __name__ == "__main__":
    main()
