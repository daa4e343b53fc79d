"""Writes what a release is built from as CycloneDX 1.6 JSON, and checks it: the file is valid, and names every crate that is
linked into the binary, each with the version and the hash of Cargo.lock.

    sbom.py FILE
"""

import json
import pathlib
import subprocess
import re
import sys

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

VERSION = SchemaVersion.V1_6


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def host():
    lines = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("host: "))


def linked(target):
    """Every crate that is linked in, as cargo resolves the features of a release: name and version."""
    tree = cargo("tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "none")
    return {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}


def locked():
    """The hash of each crate of a registry, by name and version."""
    entries = pathlib.Path("Cargo.lock").read_text().split("[[package]]")[1:]
    packages = [dict(re.findall(r'^(name|version|checksum) = "([^"]+)"$', entry, re.MULTILINE)) for entry in entries]
    return {(package["name"], "v" + package["version"]): package.get("checksum") for package in packages}


def bom(target):
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    packages = {package["id"]: package for package in metadata["packages"]}
    root = metadata["resolve"]["root"]
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    wanted, hashes, licences = linked(target), locked(), LicenseFactory()
    components = {}
    for identity, package in packages.items():
        key = (package["name"], "v" + package["version"])
        if key not in wanted:
            continue
        checksum, licence = hashes[key], package["license"]
        components[identity] = Component(
            type=ComponentType.APPLICATION if identity == root else ComponentType.LIBRARY,
            name=package["name"],
            version=package["version"],
            bom_ref="pkg:cargo/{name}@{version}".format(**package),
            purl=PackageURL("cargo", name=package["name"], version=package["version"]),
            scope=ComponentScope.REQUIRED,
            # Older crates write a slash for a choice.
            licenses=[licences.make_from_string(licence.replace("/", " OR "))] if licence else [],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
        )
    made = Bom(components=[component for identity, component in components.items() if identity != root])
    made.metadata.component = components[root]
    for identity, component in components.items():
        used = [
            components[dependency["pkg"]]
            for dependency in nodes[identity]["deps"]
            if dependency["pkg"] in components and any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        made.register_dependency(component, used)
    return made


def check(text, target):
    problems = list(JsonStrictValidator(VERSION).validate_str(text, all_errors=True) or [])
    if problems:
        sys.exit("the list is no CycloneDX: " + "; ".join(str(problem) for problem in problems))
    written = json.loads(text)
    named = {}
    for component in [written["metadata"]["component"], *written["components"]]:
        named[(component["name"], "v" + component["version"])] = [known["content"] for known in component.get("hashes", [])]
    missing = linked(target) - named.keys()
    hashes = locked()
    wrong = [key for key, known in named.items() if key not in hashes or known != [hash for hash in [hashes[key]] if hash]]
    if missing or wrong:
        sys.exit(f"crates that are linked in are not named: {sorted(missing)}; not as locked: {sorted(wrong)}")
    return len(named)


def main():
    target, file = host(), pathlib.Path(sys.argv[1])
    text = make_outputter(bom(target), OutputFormat.JSON, VERSION).output_as_string(indent=2)
    file.write_text(text)
    print(f"{check(file.read_text(), target)} crates in {file}")


main()
