//! The results as text.

use crate::load::groups::GroupResult;
use crate::load::summary::Summary;
use crate::paint::Paint;

/// Draws the results. Values that must not occur are red.
pub fn draw(summary: &Summary<'_>, paint: Paint) -> String {
    let warn = |is_wrong, text: String| if is_wrong { paint.red(&text) } else { text };
    let ideal = optional(summary.ideal_per_second, 0);
    let waits = summary.wait_us.as_ref().map_or("-".to_owned(), |waits| {
        let [p50, p99, max] = [waits.p50, waits.p99, waits.max].map(milliseconds);
        format!("{p50} ms median, {p99} ms 99th percentile, {max} ms maximum")
    });
    let rows = [
        ("acquires", format!("{} in {:.1} s", summary.acquires, summary.elapsed_seconds)),
        ("per second", format!("{:.0}; the limit allows {ideal}", summary.per_second)),
        ("utilization", format!("{:.1}% of the limit", summary.utilization * 100.0)),
        ("wait", waits),
        ("permits per task", format!("{} to {}", summary.turns.min, summary.turns.max)),
        ("script calls", format!("{} per acquire", optional(summary.calls_per_acquire, 2))),
        ("server time", format!("{} us per acquire", optional(summary.server_us_per_acquire, 1))),
        (
            "most held at once",
            warn(!summary.is_kept(), format!("{} of {}", summary.max_held, summary.limit)),
        ),
        ("lost permits", warn(summary.lost > 0, summary.lost.to_string())),
    ];
    let mut rows: Vec<String> = rows.map(|(name, value)| format!("{name:<19}{value}")).into();
    if !summary.groups.is_empty() {
        rows.extend([String::new(), GroupResult::table(&summary.groups)]);
    }
    rows.join("\n")
}

fn milliseconds(us: u64) -> String {
    format!("{:.1}", us as f64 / 1000.0)
}

fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}
