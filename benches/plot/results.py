"""Reads the results of criterion and of the figures."""

import json
from collections import defaultdict

from places import PEERS_TARGET, PRINTED, TARGET


class Missing(Exception):
    """A result is missing, because its bench has not run yet."""


class Results:
    def __init__(self):
        self.about = printed("about.json")
        self.figures = Figures("figures.json")
        self.waits = self.figures.details("W")
        self.ours = Groups(TARGET / "criterion")
        self.peers = Groups(PEERS_TARGET / "criterion")
        self.peers_waits = Figures("peers-waits.json").details("W")
        self.network = Network()
        self.tenants = Tenants()


class Figures:
    """The output of the bench `figures`."""

    def __init__(self, name):
        self.all = printed(name)

    def of(self, id):
        """Returns all figures with this ID."""
        found = [figure for figure in self.all if figure["id"] == id]
        if not found:
            raise Missing(f"the figure {id} was not measured")
        return found

    def details(self, id):
        return [figure["details"] for figure in self.of(id)]

    def by(self, id, detail):
        """Returns the figures with this ID by the value of this detail."""
        return {figure["details"][detail]: figure for figure in self.of(id)}

    def crowd(self, id, design, place):
        """Returns pairs of size and time of a cycle in µs, in order. The baseline of each size was
        measured beside this crate."""
        value = "baseline" if design == "baseline" else "value"
        key = ("ours" if design == "baseline" else design, place)
        return sorted(
            (figure["details"]["size"], figure[value])
            for figure in self.of(id)
            if (figure["details"]["design"], figure["details"]["place"]) == key
        )


class Network:
    def __init__(self):
        self.about = printed("about-network.json")
        self.figures = Figures("network.json").of("D")

    def jitters(self):
        return sorted({figure["details"]["jitter"] for figure in self.figures})

    def line(self, design, jitter):
        """Returns pairs of round trip in ms and share of the possible grants, in order."""
        return sorted(
            (figure["details"]["round_trip_ms"], figure["ratio"])
            for figure in self.figures
            if (figure["details"]["design"], figure["details"]["jitter"]) == (design, jitter)
        )


class Tenants:
    """The figures of groups of requests."""

    def __init__(self):
        self.about = printed("about-groups.json")
        self.figures = Figures("groups.json")
        self.floods = self.figures.details("F")


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
