"""Runs the benches, and stores their output."""

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from places import PEERS, PEERS_TARGET, PRINTED, ROOT, TARGET

# The figures of all tables and plots except those of networks and groups.
PUBLISHED = ["P7", "P10", "C", "O", "H", "Q", "R", "M", "W"]


def all_benches():
    PRINTED.mkdir(parents=True, exist_ok=True)
    for target in (TARGET, PEERS_TARGET):
        # Results of an older version must not be mixed with the new ones.
        shutil.rmtree(target / "criterion", ignore_errors=True)
    ours, peers = [], ["--manifest-path", str(PEERS / "Cargo.toml")]
    for place in (ours, peers):
        cargo(place, ["--no-run"])
    (PRINTED / "about.json").write_text(json.dumps(about()))
    cargo(ours, ["--bench", "semaphore"])
    figures(ours, PUBLISHED, PRINTED / "figures.json")
    cargo(peers, ["--bench", "peers"])
    cargo(peers, ["--bench", "waits", "--", "--json"], PRINTED / "peers-waits.json")
    network()
    groups()


def network():
    part("network", ["D"])


def groups():
    part("groups", ["G", "F"])


def part(name, ids):
    """Measures a part that may run alone, so it records its own machine and versions."""
    PRINTED.mkdir(parents=True, exist_ok=True)
    cargo([], ["--bench", "figures", "--no-run"])
    (PRINTED / f"about-{name}.json").write_text(json.dumps(about()))
    figures([], ids, PRINTED / f"{name}.json")


def figures(place, ids, output):
    cargo(place, ["--bench", "figures", "--", *ids, "--json"], output)


def cargo(place, arguments, output=None):
    command = [str(ROOT / "scripts/with-redis"), "cargo", "bench", *place, *arguments]
    print("$", *command, flush=True)
    # Criterion also uses this variable to choose the folder of its results.
    env = {**os.environ, "CARGO_TARGET_DIR": str(PEERS_TARGET if place else TARGET)}
    printed = subprocess.run(
        command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE if output else None
    ).stdout
    if output:
        output.write_bytes(printed)


def about():
    """Returns the machine and the versions."""
    manifest = (ROOT / "Cargo.toml").read_text()
    return {
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "server": server(),
        "rust": output_of(["rustc", "--version"]),
        "crate": re.search(r'^version = "(.*)"', manifest, re.MULTILINE)[1],
        "commit": output_of(["git", "describe", "--always", "--dirty"]),
    }


def processor():
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*:\s*(.*)", text, re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def server():
    version = output_of(["scripts/with-redis", "sh", "-c", '"$REDIS_SERVER_BIN" --version'])
    name, number = re.search(r"(\w+) server v=(\S+)", version).groups()
    return f"{name} {number}"


def output_of(command):
    return subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
