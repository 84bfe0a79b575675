"""Fills in the tables of the page, each between two marks."""

import re

from designs import name
from places import PAGE
from results import Missing

BENCHED = ["baseline", "ours", "blocking_list", "fair", "locked"]
PEER = "distributed_lock_redis"


def fill_in(results):
    fill_in_network(results.network)
    fill_in_groups(results.tenants)
    write(
        {
            "about": about(results.about),
            "latency": latency(results),
            "throughput": throughput(results),
            "clients": clients(results.figures),
            "contention": contention(results),
            "waits": waits(results),
            "crowds": crowds(results.figures),
            "refreshes": refreshes(results.figures),
            "memory": memory(results.figures),
            "peers": peers(results.peers),
        }
    )


def fill_in_network(results):
    write({"about-network": about(results.about), "network": network(results)})


def fill_in_groups(results):
    write(
        {
            "about-groups": about(results.about),
            "flood": flood(results.floods),
            "groups": groups(results.figures),
        }
    )


def write(tables):
    page = PAGE.read_text()
    for key, rows in tables.items():
        begin, end = f"<!-- table: {key} -->\n", "<!-- end -->"
        if begin not in page:
            raise Missing(f"{PAGE} has no mark for the table {key}")
        before, rest = page.split(begin, 1)
        after = rest[rest.index(end) :]
        page = before + begin + markdown(rows) + after
    PAGE.write_text(page)


def markdown(rows):
    head, *body = [[str(cell) for cell in row] for row in rows]
    ruler = ["---"] + ["---:"] * (len(head) - 1)
    lines = ["| " + " | ".join(row) + " |\n" for row in (head, ruler, *body)]
    return "".join(lines)


def about(facts):
    what = {
        "processor": "Processor",
        "system": "System",
        "server": "Server",
        "rust": "Compiler",
        "crate": "redis-semaphore",
        "commit": "Commit",
    }
    return [("", "this run")] + [(label, facts[key]) for key, label in what.items()]


def latency(results):
    others = results.figures.by("O", "design")
    (ours,) = results.figures.of("P7")
    hand_offs = {"baseline": ours["baseline"], "ours": ours["value"]}
    hand_offs |= {design: figure["value"] for design, figure in others.items()}
    rows = [("", "acquire + release", "× baseline", "handoff", "× baseline")]
    for design in BENCHED:
        cycle = results.ours.median("uncontended", design)
        row = [name(design), f"{cycle / 1000:,.0f} µs"]
        row.append(ratio(cycle, results.ours.median("uncontended", "baseline")))
        row.append(f"{hand_offs[design]:,.0f} µs")
        row.append(ratio(hand_offs[design], hand_offs["baseline"]))
        rows.append(row)
    return rows


def throughput(results):
    crowds = [tasks for tasks, _ in results.ours.line("throughput", "ours")]
    rows = [["cycles per second"] + [tasks_of(tasks) for tasks in crowds]]
    for design in BENCHED:
        rates = {tasks: rate(time / tasks) for tasks, time in results.ours.line("throughput", design)}
        rows.append([name(design)] + [rates.get(tasks, "–") for tasks in crowds])
    return rows


def clients(figures):
    rows = [("cycles per second", "baseline", "this crate")]
    for number, figure in figures.by("C", "clients").items():
        rows.append((f"{number} clients", rounded(figure["baseline"]), rounded(figure["value"])))
    return rows


def contention(results):
    rows = [["grants per second"] + [name(design) for design in BENCHED]]
    for point, _ in sorted(results.ours.line("contention", "ours"), key=by_numbers):
        rates = []
        for design in BENCHED:
            time = dict(results.ours.line("contention", design)).get(point)
            rates.append(rate(time) if time else "–")
        rows.append([point] + rates)
    return rows


def by_numbers(item):
    """Returns the sort key of a point such as "limit 10, 100 tasks"."""
    return [int(digits) for digits in re.findall(r"\d+", item[0])]


def waits(results):
    heads = ("", "grants/s", "busy", "most holders", "median", "99%", "longest", "grants of each task")
    rows = [heads]
    peer = [run for run in results.peers_waits if run["design"] == PEER]
    for run in sorted(results.waits + peer, key=lambda run: run["tasks"]):
        waits, turns = run["waits_ms"], run["turns"]
        rows.append(
            (
                f"{run['tasks']:,} tasks: {name(run['design'])}",
                f"{sum(turns) / run['seconds']:,.0f}",
                f"{run['busy']:.0%}",
                f"{run['most_inside']} of {run['limit']}",
                *(f"{waits[percent - 1]:,.0f} ms" for percent in (50, 99, 100)),
                f"{turns[0]} to {turns[-1]}",
            )
        )
    return rows


def crowds(figures):
    rows = [("", "among holders", "in scripts", "among waiters", "in scripts")]
    for size, _ in figures.crowd("H", "ours", "caller"):
        row = [f"{size:,}"]
        for id in ("H", "Q"):
            for place in ("caller", "scripts"):
                time = dict(figures.crowd(id, "ours", place)).get(size)
                row.append(f"{time:,.0f} µs" if time else "–")
        rows.append(row)
    return rows


def refreshes(figures):
    rows = [("permits", "baseline", "this crate", "per permit")]
    for permits, figure in figures.by("R", "permits").items():
        times = (f"{figure[key] / 1000:.2f} ms" for key in ("baseline", "value"))
        rows.append((f"{permits:,}", *times, f"{figure['value'] / permits:.1f} µs"))
    return rows


def memory(figures):
    permit, waiter, fair, list_permit, list_waiter = (
        figures.of(id)[0] for id in ("P10", "P10w", "M1", "M2", "M3")
    )
    member = f"{permit['baseline']:.0f}"
    return [
        ("bytes per", "permit", "waiter"),
        ("member of a sorted set", member, member),
        (name("ours"), f"{permit['value']:.0f}", f"{waiter['value']:.0f}"),
        (name("fair"), f"{fair['value']:.0f}", "–"),
        (name("blocking_list"), f"{list_permit['value']:.0f}", f"{list_waiter['value']:,.0f}"),
    ]


def network(results):
    """Returns the rows grouped by jitter, because the round trips differ between jitters."""
    rows = [("round trip", "each direction", "baseline", "this crate")]
    for jitter in results.jitters():
        steadiness = f"± {jitter:.0%}" if jitter else "steady"
        lines = (results.line(design, jitter) for design in ("baseline", "ours"))
        for (trip, baseline), (_, ours) in zip(*lines):
            rows.append((f"{trip:.1f} ms", steadiness, f"{baseline:.0%}", f"{ours:.0%}"))
    return rows


def flood(variants):
    rows = [("the flood", "median", "99%", "longest", "the tenant's requests", "the flood lasts")]
    for run in variants:
        times = [milliseconds(run["waits_ms"][percent - 1]) for percent in (50, 99, 100)]
        rows.append((run["variant"], *times, run["requests"], f"{run['seconds']:.0f} s"))
    return rows


def milliseconds(time):
    return f"{time:,.0f} ms" if time >= 10 else f"{time:.1f} ms"


def groups(figures):
    what = {
        "G1": ("a grant", "no group", "a group"),
        "G2": ("a release without waiters", "no group", "a group"),
        "G3": ("a handoff, 1,000 waiters", "no group", "1 group"),
        "G4": ("a handoff, 10,000 waiters", "100 groups", "10,000 groups"),
        "G5": ("500 handoffs in one call", "1 group", "500 groups"),
        "G6": ("memory of a waiter", "no group", "100 groups"),
    }
    rows = [("", "compared", "first", "second", "ratio")]
    for id, (label, first, second) in what.items():
        (figure,) = figures.of(id)
        unit = {"us": "µs", "B": "bytes"}[figure["unit"]]
        values = (f"{figure[key]:,.0f} {unit}" for key in ("baseline", "value"))
        rows.append((label, f"{first}, {second}", *values, f"{figure['ratio']:.2f}"))
    return rows


def peers(groups):
    designs = ["baseline", "ours", PEER]
    rows = [[""] + [name(design) for design in designs]]
    times = [groups.median("uncontended", design) for design in designs]
    rows.append(["1 task: one cycle"] + [f"{time / 1000:,.0f} µs" for time in times])
    for tasks, _ in groups.line("throughput", "ours"):
        times = [groups.median("throughput", design, tasks) for design in designs]
        rows.append([f"{tasks_of(tasks)}: cycles/s"] + [rate(time / tasks) for time in times])
    for point, _ in sorted(groups.line("contention", "ours"), key=by_numbers):
        times = [groups.median("contention", design, point) for design in designs]
        rows.append([f"{point}: grants/s"] + [rate(time) for time in times])
    return rows


def tasks_of(tasks):
    return f"{tasks:,} tasks" if tasks > 1 else "1 task"


def rate(nanoseconds):
    return rounded(1e9 / nanoseconds)


def rounded(per_second):
    """Returns a rate with two digits, because more would suggest too much precision."""
    digits = 2 - len(str(int(per_second)))
    return f"{round(per_second, digits):,.0f}"


def ratio(time, baseline):
    return f"{time / baseline:.1f}"
