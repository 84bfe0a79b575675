"""Reads the results of criterion and of the other benches."""

import json
from collections import defaultdict

from places import PEERS_TARGET, PRINTED, TARGET


class Missing(Exception):
    """A result is missing, because its bench has not run yet."""


class Results:
    def __init__(self):
        self.about = printed("about.json")
        self.waits = printed("waits.json")
        self.memory = printed("memory.json")
        self.ours = Groups(TARGET / "criterion")
        self.peers = Groups(PEERS_TARGET / "criterion")
        self.peers_waits = printed("peers-waits.json")
        self.network = Network()


class Network:
    def __init__(self):
        self.about = printed("about-network.json")
        self.points = printed("network.json")

    def jitters(self):
        return sorted({point["jitter"] for point in self.points})

    def line(self, design, jitter):
        """Returns pairs of round trip in ms and share of the possible grants, in order."""
        return sorted(
            (point["round_trip_ms"], point["share"])
            for point in self.points
            if (point["design"], point["jitter"]) == (design, jitter)
        )


class Groups:
    """Medians in ns, by group, design and parameter."""

    def __init__(self, folder):
        self.medians = defaultdict(dict)
        for path in sorted(folder.glob("**/new/benchmark.json")):
            bench = json.loads(path.read_text())
            estimates = json.loads(path.with_name("estimates.json").read_text())
            key = (bench["group_id"], bench["function_id"])
            parameter = number(bench["value_str"])
            self.medians[key][parameter] = estimates["median"]["point_estimate"]
        if not self.medians:
            raise Missing(f"{folder} contains no results")

    def median(self, group, design, parameter=None):
        try:
            return self.medians[group, design][parameter]
        except KeyError:
            raise Missing(f"{group}, {design}, {parameter} was not measured") from None

    def line(self, group, design):
        """Returns pairs of parameter and median, in order, or an empty list without results."""
        return sorted(self.medians.get((group, design), {}).items())


def number(parameter):
    return int(parameter) if (parameter or "").isdigit() else parameter


def printed(name):
    path = PRINTED / name
    if not path.exists():
        raise Missing(f"{path} does not exist")
    return json.loads(path.read_text())
