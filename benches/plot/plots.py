"""Draws the plots. The same results produce the same files, byte for byte."""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "redis-semaphore",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "grid.color": "#e2e2e2",
        "legend.frameon": False,
    }
)

import matplotlib.pyplot as pyplot
from designs import DESIGNS, color, name, style
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter
from places import PLOTS

THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def draw_all(results):
    PLOTS.mkdir(exist_ok=True)
    throughput(results)
    waits(results)
    turns(results)
    crowd(results.figures, "H", "holders", "permits held by other clients")
    crowd(results.figures, "Q", "waiters", "requests in the queue")
    network(results.network)
    flood(results.tenants.floods)


def throughput(results):
    figure, axes = pyplot.subplots(figsize=(8, 4.6))
    for design in DESIGNS:
        groups = results.peers if design == "distributed_lock_redis" else results.ours
        points = groups.line("throughput", design)
        rates = [tasks * 1e9 / nanoseconds for tasks, nanoseconds in points]
        if points:
            axes.plot([tasks for tasks, _ in points], rates, **style(design))
    axes.set(xscale="log", yscale="log", ylim=(1000, None))
    axes.set_xlabel("tasks in one process")
    axes.set_ylabel("cycles (acquire and release) per second")
    ticks(axes.xaxis, [1, 16, 256, 2048])
    axes.yaxis.set_major_formatter(THOUSANDS)
    finish(figure, [axes], "throughput")


def all_runs(results):
    peer = [run for run in results.peers_waits if run["design"] == "distributed_lock_redis"]
    return results.waits + peer


def turns(results):
    """Plots the grants of each task, for the smallest number of tasks."""
    runs = all_runs(results)
    tasks = min(run["tasks"] for run in runs)
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    for design in DESIGNS:
        for run in runs:
            if (run["design"], run["tasks"]) == (design, tasks):
                marks = slice(4 + 3 * list(DESIGNS).index(design), None, 25)
                axes.plot(range(1, tasks + 1), run["turns"], **style(design), markevery=marks)
                seconds = run["seconds"]
    fair = max(sum(run["turns"]) for run in runs if run["tasks"] == tasks) / tasks
    axes.set(xlim=(1, tasks), ylim=(0, 2.5 * fair))  # tasks with more grants are off the plot
    axes.set_xlabel(f"{tasks} tasks, in the order of their number of grants")
    axes.set_ylabel(f"grants in {seconds:.0f} s")
    finish(figure, [axes], "turns")


def waits(results):
    """Plots the longest wait and the most concurrent holders of each design. If a design
    exceeds the limit, its wait is not meaningful, and the label of the wait is red."""
    runs = all_runs(results)
    crowds = sorted({run["tasks"] for run in runs})
    figure, all_axes = pyplot.subplots(1, len(crowds), figsize=(11, 3.8), sharey=True)
    for axes, tasks in zip(all_axes, crowds):
        of_design = {run["design"]: run for run in runs if run["tasks"] == tasks}
        bars = [of_design[design] for design in DESIGNS if design in of_design]
        names = [name(run["design"]) for run in bars]
        longest = [run["waits_ms"][-1] / 1000 for run in bars]
        drawn = axes.barh(names, longest, color=[color(run["design"]) for run in bars])
        labels = axes.bar_label(drawn, [label_of(run) for run in bars], padding=4, fontsize=9)
        for label, run in zip(labels, bars):
            label.set_color("#c00000" if run["most_inside"] > run["limit"] else "black")
        limit, work = bars[0]["limit"], bars[0]["work_ms"]
        axes.set_title(f"{tasks:,} tasks, limit {limit}, {work:g} ms of work")
        axes.set(xlim=(0, 1.9 * max(longest)))  # space for the labels beside the bars
        axes.set_xlabel("longest wait, s")
        axes.grid(visible=False, axis="y")
        axes.set_axisbelow(True)
    all_axes[0].invert_yaxis()
    figure.tight_layout(w_pad=2.5)
    save(figure, "waits")


def label_of(run):
    """Returns the label of a bar. If a task got no permit, the end of the run has cut off its wait."""
    longest = run["waits_ms"][-1]
    longest = f"more than {longest / 1000:.0f} s" if run["turns"][0] == 0 else f"{longest:,.0f} ms"
    return f"{longest}, {run['most_inside']} holders"


def crowd(figures, id, plot, what):
    """Plots the time of a cycle among many holders or waiters: for its caller, and on the server."""
    figure, all_axes = pyplot.subplots(1, 2, figsize=(11, 4.6), sharey=True)
    titles = {"caller": "time for the caller", "scripts": "time in scripts on the server"}
    for axes, (place, title) in zip(all_axes, titles.items()):
        for design in DESIGNS:
            points = figures.crowd(id, design, place)
            if points:
                axes.plot(*zip(*points), **style(design))
        axes.set_title(title)
        axes.set(xscale="log", yscale="log", ylim=(1, None))
        axes.set_xlabel(what)
        axes.xaxis.set_major_formatter(THOUSANDS)
        axes.yaxis.set_major_formatter(THOUSANDS)
    all_axes[0].set_ylabel("cycle (acquire and release), µs")
    finish(figure, all_axes, plot)


def network(results):
    PLOTS.mkdir(exist_ok=True)
    jitters = results.jitters()
    figure, all_axes = pyplot.subplots(1, len(jitters), figsize=(11, 4.6), sharey=True)
    for axes, jitter in zip(all_axes, jitters):
        for design in DESIGNS:
            points = results.line(design, jitter)
            if points:
                axes.plot(*zip(*points), **style(design))
        axes.set_title(f"each direction varies by ±{jitter:.0%}" if jitter else "each direction is steady")
        axes.set(xscale="log", ylim=(0, 1.05))
        axes.set_xlabel("round trip, ms")
        ticks(axes.xaxis, [0.1, 0.5, 1, 2, 5, 10, 20])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    all_axes[0].set_ylabel("grants, share of the possible grants")
    all_axes[0].yaxis.set_major_formatter(PercentFormatter(1))
    finish(figure, all_axes, "network")


def flood(variants):
    """Plots the range of the small tenant's waits in each variant of the flood."""
    PLOTS.mkdir(exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(8, 3.4))
    rows = range(len(variants))
    shortest, median, most, longest = (
        [run["waits_ms"][percent - 1] for run in variants] for percent in (1, 50, 99, 100)
    )
    axes.hlines(rows, shortest, longest, color=color("ours"), linewidth=2, alpha=0.4)
    marks = {"color": color("ours"), "linestyle": "none", "zorder": 3}
    axes.plot(median, rows, marker="o", markersize=8, label="median", **marks)
    axes.plot(most, rows, marker="D", fillstyle="none", label="99% wait no longer", **marks)
    axes.plot(longest, rows, marker="|", markersize=13, label="longest", **marks)
    axes.set_yticks(rows, [run["variant"] for run in variants])
    axes.set_ylabel("the flood")
    axes.invert_yaxis()
    axes.margins(y=0.15)
    axes.set(xscale="log")
    axes.set_xlabel("waits of the small tenant, ms (logarithmic scale)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    finish(figure, [axes], "flood")


def ticks(axis, values):
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(THOUSANDS)


def finish(figure, all_axes, plot):
    """Adds one legend below all axes, in the order of the designs, and writes the file."""
    labels = {}
    for axes in all_axes:
        handles, names = axes.get_legend_handles_labels()
        labels.update(zip(names, handles))
    figure.tight_layout(w_pad=2.5)
    figure.legend(
        labels.values(),
        labels.keys(),
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=min(len(labels), 4),
    )
    save(figure, plot)


def save(figure, plot):
    path = PLOTS / f"{plot}.svg"
    figure.savefig(path, bbox_inches="tight", facecolor="white", metadata={"Date": None})
    pyplot.close(figure)
