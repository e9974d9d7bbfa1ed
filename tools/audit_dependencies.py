"""Ask the public lists of known holes about the pinned versions of all dependencies.

``python tools/audit_dependencies.py constraints.txt``, or ``make audit``, needs the network. It
ends with 0 if every package was looked up and none has a known hole, with 1 if one has, and with 2
if the lists could not be asked about all of them: what was not audited is not safe.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

OPTIONS = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off")
SAFE, HOLES, NOT_AUDITED = 0, 1, 2
NAMED = 5
"""Packages that a message names."""


def asked(constraints: str) -> tuple[str, str]:
    """Return what pip-audit writes to standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *OPTIONS, "-r", constraints],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


def verdict(output: str, errors: str) -> tuple[int, list[str]]:
    """Return the exit code and what to say, from what pip-audit wrote."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, LookupError, TypeError):
        # A traceback ends with what happened, as where there is no network.
        reason = errors.strip().splitlines()[-1:] or ["pip-audit said nothing"]
        return NOT_AUDITED, [f"the lists of known holes could not be asked: {reason[0]}"]
    lines = [
        f"{package['name']} {package['version']}: {hole['id']}, fixed in "
        f"{', '.join(hole['fix_versions']) or 'no version yet'}"
        for package in packages
        for hole in package.get("vulns", ())
    ]
    missing = [package["name"] for package in packages if "vulns" not in package]
    if missing or not packages:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        lines.append(
            f"{len(missing)} of {len(packages)} packages are not in the lists that can be reached "
            f"here ({', '.join(missing[:NAMED])}{more}): they were not audited"
        )
        return NOT_AUDITED, lines
    if lines:
        return HOLES, lines
    return SAFE, [f"none of {len(packages)} packages has a known hole"]


if __name__ == "__main__":
    code, said = verdict(*asked(sys.argv[1]))
    print("\n".join(said), file=sys.stderr if code else sys.stdout)
    sys.exit(code)
