"""The names of the designs, and how they are drawn."""

# Name in the benches: name in tables and plots, color, line, marker.
DESIGNS = {
    "ours": ("this crate", "#1356a0", "-", "o"),
    "baseline": ("baseline", "#808080", "--", "s"),
    "distributed_lock_redis": ("distributed-lock-redis", "#7d5a3c", "-", "X"),
    "blocking_list": ("blocking list", "#d9771c", "-", "^"),
    "fair": ("fair", "#2a8c55", "-", "D"),
    "patient_fair": ("fair, slower polls", "#93c47d", "-", "D"),
    "locked": ("fair, locked", "#a63a7a", "-", "v"),
}


def name(design):
    return DESIGNS[design][0]


def color(design):
    return DESIGNS[design][1]


def style(design):
    label, _, line, marker = DESIGNS[design]
    is_ours = design == "ours"
    return {
        "label": label,
        "color": color(design),
        "linestyle": line,
        "marker": marker,
        "linewidth": 2.4 if is_ours else 1.5,
        "markersize": 6 if is_ours else 5,
        "zorder": 3 if is_ours else 2,
    }
