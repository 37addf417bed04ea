"""Carries out a Containerfile's steps without a container engine, as far as ours goes.

Each stage is an overlay over this machine's root, in a mount namespace that only the steps see; what a stage writes
goes to its own upper folder.  The machine's Python takes the place of the base image's.  A program that is run in the
image is the first process of a namespace, as in a container.  Needs root, and a kernel that allows overlays.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """One instruction: ``words`` is the text behind its name."""

    name: str
    words: str


def steps(text: str) -> list[Step]:
    """All instructions, continued lines joined, arguments filled in with their defaults."""
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    lines = [line.strip() for line in kept.replace("\\\n", " ").splitlines() if line.strip()]
    found, arguments = [], {}
    for line in lines:
        name, _, words = line.partition(" ")
        if name == "ARG":
            key, _, value = words.partition("=")
            arguments[key] = value
        for key, value in arguments.items():
            words = words.replace("${" + key + "}", value)
        found.append(Step(name, words.strip()))
    return found


def last(found: list[Step], name: str) -> str:
    """The words of the last instruction of this name."""
    return [step.words for step in found if step.name == name][-1]


def command(found: list[Step], name: str) -> list[str]:
    """Of an instruction in its JSON form; options stand before."""
    words = last(found, name)
    made: list[str] = json.loads(words[words.index("[") :])
    return made


def missing() -> str | None:
    """Why steps cannot be carried out here; None if they can."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("unshare", "nsenter", "setpriv", "chroot", "mount"):
        if shutil.which(tool) is None:
            return f"no {tool} on PATH"
    tried = "set -e; b=$(mktemp -d); mount -t tmpfs none $b; mkdir $b/u $b/w $b/n; mount -t overlay -o "
    tried += "lowerdir=/,upperdir=$b/u,workdir=$b/w overlay $b/n"
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", tried], capture_output=True, text=True, check=False)
    return None if ran.returncode == 0 else f"no overlay can be mounted: {ran.stderr.strip()}"


def build(found: list[Step], context: Path, box: Path) -> str:
    """Shell text that carries the steps out below ``box``, and then waits for the end of its input."""
    python = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    lines = ["set -eu", f"mount -t tmpfs none {box}", f"export PATH={python.parent}:/usr/sbin:/usr/bin:/sbin:/bin"]
    root = box
    for step in found:
        words = shlex.split(step.words) if step.name in ("FROM", "COPY") else []
        if step.name == "FROM":
            root = box / (words[2] if len(words) > 2 else "image")
            upper, work = box / f"{root.name}-upper", box / f"{root.name}-work"
            lines += [
                f"mkdir {root} {upper} {work}",
                f"mount -t overlay -o lowerdir=/,upperdir={upper},workdir={work} overlay {root}",
                f"mount --rbind /proc {root}/proc",
                f"mount --rbind /dev {root}/dev",
                *(f"chmod a+x {root}{parent}" for parent in python.parents),  # a base image's can be reached by all
            ]
        elif step.name == "COPY" and words[0].startswith("--from="):
            lines += [
                f"mkdir -p {root}{Path(words[2]).parent}",
                f"cp -a {box}/{words[0][7:]}{words[1]} {root}{words[2]}",
            ]
        elif step.name == "COPY":
            *sources, target = words
            lines += [f"cp -r {shlex.quote(str(context / source))} {root}{target}" for source in sources]
        elif step.name == "RUN":
            lines.append(f"chroot {root} sh -c {shlex.quote(step.words)}")
    return "\n".join([*lines, f"mount -o remount,ro overlay {root}", "echo built", "exec cat"])


def run(found: list[Step], box: Path, data: Path, then: list[str], environment: Mapping[str, str]) -> str:
    """Shell text that runs ``then`` in what was built, on a root that can only be read, but for ``data``.

    It runs as the image's user, and as a child of this process, with no environment but the image's and this one.
    """
    root = box / "image"
    known = {"PATH": "/usr/bin:/bin"}
    for step in found:
        if step.name == "ENV":
            key, _, value = step.words.partition("=")
            known[key] = value.replace("$PATH", known["PATH"])
    user, _, group = last(found, "USER").partition(":")
    lines = [
        "set -eu",
        f"chown {user}:{group} {shlex.quote(str(data))}",
        f"mount --bind {shlex.quote(str(data))} {root}{last(found, 'VOLUME')}",
        f"exec unshare --pid --fork chroot {root} "
        f"setpriv --reuid {user} --regid {group} --clear-groups --no-new-privs --bounding-set=-all "
        f"env -i {shlex.join(f'{key}={value}' for key, value in {**known, **environment}.items())} {shlex.join(then)}",
    ]
    return "\n".join(lines)
