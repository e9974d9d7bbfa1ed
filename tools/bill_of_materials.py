"""Write the software bill of materials of a wheel, as CycloneDX JSON.

``python tools/bill_of_materials.py dist/everlearn-0.2.0-py3-none-any.whl``, or ``make bill``, which
builds the wheel first. The bill lists the wheel with its digest and, with the versions that are
installed here, every package that it needs, those of its optional parts included, and what each
of them needs. It is written beside the wheel.
"""

import hashlib
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOT_SHIPPED = ("dev", "docs")
"""Extras for whoever works on the package, not for whoever uses it."""


def needed(requires: list[str], extras: set[str]) -> Iterator[Requirement]:
    """Give the requirements that apply on this machine with some extras."""
    for requirement in map(Requirement, requires):
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""})
        ):
            yield requirement


def component(name: str, version: str, license_text: str | None, sort: ComponentType) -> Component:
    """Return a package as the bill lists it."""
    purl = PackageURL("pypi", name=canonicalize_name(name), version=version)
    made = Component(name=name, version=version, type=sort, purl=purl, bom_ref=purl.to_string())
    if license_text:
        made.licenses.add(_license(license_text))
    return made


def _license(text: str) -> LicenseExpression | DisjunctiveLicense:
    line = text.strip().splitlines()[0][:200]
    if " " in line and not any(word in line for word in (" AND ", " OR ", " WITH ")):
        return DisjunctiveLicense(name=line)  # words, not an expression
    return LicenseExpression(line)


def bill_of(wheel: Path) -> Bom:
    """Return the bill of a wheel, with the versions that are installed here."""
    with ZipFile(wheel) as archive:
        (file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = HeaderParser().parsestr(archive.read(file).decode())
    bom = Bom()
    license_text = about.get("License-Expression") or about.get("License")
    root = component(about["Name"], about["Version"], license_text, ComponentType.LIBRARY)
    root.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=_digest(wheel)))
    bom.metadata.component = root
    extras = set(about.get_all("Provides-Extra", [])) - set(NOT_SHIPPED)
    listed: dict[str, Component] = {canonicalize_name(about["Name"]): root}
    waiting = [(root, about.get_all("Requires-Dist", []), extras)]
    while waiting:
        user, requires, chosen = waiting.pop()
        used = []
        for requirement in needed(requires, chosen):
            name = canonicalize_name(requirement.name)
            if name not in listed:
                try:
                    found: Distribution = distribution(requirement.name)
                except PackageNotFoundError:
                    raise SystemExit(
                        f"{requirement.name} is needed by {user.name} and not installed; install "
                        "the package with all its extras first"
                    ) from None
                listed[name] = _listed(found)
                bom.components.add(listed[name])
                waiting.append((listed[name], found.requires or [], set(requirement.extras)))
            used.append(listed[name])
        bom.register_dependency(user, used)
    return bom


def _listed(found: Distribution) -> Component:
    about = found.metadata
    license_text = about.get("License-Expression") or about.get("License")
    return component(about["Name"], found.version, license_text, ComponentType.LIBRARY)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Write the bill beside the wheel that the command names."""
    wheel = Path(sys.argv[1])
    out = wheel.with_suffix(".cdx.json")
    JsonV1Dot6(bill_of(wheel)).output_to_file(str(out), allow_overwrite=True, indent=2)
    sys.stdout.write(f"-> {out}\n")


if __name__ == "__main__":
    main()
