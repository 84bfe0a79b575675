//! A picture of a test run, as SVG. For each semaphore, the picture shows the weight held, the
//! limit and the number of waiters. The faults are below the semaphores.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::KINDS;
use super::beliefs::{Turn, turns};
use super::checker::Violation;
use super::history::{Event, Moment, What};

const LEFT: f64 = 150.0;
const WIDTH: f64 = 1200.0;
const PANEL: f64 = 110.0;
const GAP: f64 = 36.0;
const TOP: f64 = 70.0;
const ROW: f64 = 16.0;
const COLUMNS: usize = 1200;

const HELD: &str = "#7fb2e5";
const WAITING: &str = "#d9731a";
const LIMIT: &str = "#333333";
const FAULT: &str = "#c23b3b";
const RECOVERY: &str = "#f0bdbd";
const VIOLATION: &str = "#e000c0";

pub fn draw(seed: u64, events: &[Event], violations: &[Violation]) -> String {
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return String::new();
    };
    let axis = Axis { began: first.at, ended: last.at.max(first.at + 1) };
    let turns = turns(events).unwrap_or_default();
    let mut svg = String::new();
    let mut top = TOP;
    for (number, kind) in KINDS.iter().enumerate() {
        let turns: Vec<&Turn> = turns.iter().filter(|turn| turn.semaphore == number).collect();
        draw_semaphore(&mut svg, axis, top, kind.name, &turns, &limits(events, number));
        top += PANEL + GAP;
    }
    let bottom = draw_faults(&mut svg, axis, top, events);
    for violation in violations {
        let x = axis.x(violation.at);
        let title = escaped(&format!("{}: {}", violation.rule, violation.what));
        let line = format!(r#"x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom}""#);
        writeln!(svg, r#"<line {line} stroke="{VIOLATION}"><title>{title}</title></line>"#)
            .unwrap();
    }
    draw_time(&mut svg, axis, bottom);
    let (width, height) = (LEFT + WIDTH + 30.0, bottom + 50.0);
    let column = axis.seconds() * 1000.0 / COLUMNS as f64;
    let title = format!(
        "Campaign with seed {seed}: {:.0} s, {} violations. Each column shows the most within \
         {column:.0} ms.",
        axis.seconds(),
        violations.len(),
    );
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="20" font-size="14">{title}</text>
{}{svg}</svg>
"#,
        legend()
    )
}

#[derive(Clone, Copy)]
struct Axis {
    began: Moment,
    ended: Moment,
}

impl Axis {
    fn seconds(self) -> f64 {
        (self.ended - self.began) as f64 / 1e9
    }

    fn share(self, at: Moment) -> f64 {
        let since = at.clamp(self.began, self.ended) - self.began;
        since as f64 / (self.ended - self.began) as f64
    }

    fn x(self, at: Moment) -> f64 {
        LEFT + WIDTH * self.share(at)
    }

    fn column(self, at: Moment) -> usize {
        ((self.share(at) * COLUMNS as f64) as usize).min(COLUMNS - 1)
    }
}

fn legend() -> String {
    let entries = [
        (HELD, "weight held, as its holders believe"),
        (WAITING, "requests that wait"),
        (LIMIT, "limit"),
        (FAULT, "fault"),
        (RECOVERY, "until all work again"),
        (VIOLATION, "violation"),
    ];
    let mut svg = String::new();
    let mut x = LEFT;
    for (colour, text) in entries {
        writeln!(svg, r#"<rect x="{x}" y="34" width="14" height="10" fill="{colour}"/>"#).unwrap();
        writeln!(svg, r#"<text x="{}" y="43">{text}</text>"#, x + 20.0).unwrap();
        x += 50.0 + 6.5 * text.len() as f64;
    }
    svg
}

/// Returns the limits with the moments from which they were effective.
fn limits(events: &[Event], number: usize) -> Vec<(Moment, u64)> {
    let limit = |event: &Event| match event.what {
        What::LimitIs { semaphore, limit } if semaphore == number => Some((event.at, limit)),
        _ => None,
    };
    events.iter().filter_map(limit).collect()
}

fn draw_semaphore(
    svg: &mut String,
    axis: Axis,
    top: f64,
    name: &str,
    turns: &[&Turn],
    limits: &[(Moment, u64)],
) {
    let held = turns.iter().filter_map(|turn| {
        let (from, to) = turn.belief()?;
        Some((from, to, turn.weight))
    });
    let waiting = turns.iter().map(|turn| {
        let over = turn.grant.map(|grant| grant.at).or(turn.ended()).unwrap_or(axis.ended);
        (turn.asked, over, 1)
    });
    let (held, waiting) = (most(axis, held), most(axis, waiting));
    let highest_limit = limits.iter().map(|(_, limit)| *limit).max().unwrap_or(0);
    let highest = held.iter().chain(&waiting).copied().max().unwrap_or(0).max(highest_limit).max(1);
    let y = |value: u64| top + PANEL - PANEL * value as f64 / highest as f64;
    writeln!(svg, r#"<text x="{LEFT}" y="{}" font-weight="bold">{name}</text>"#, top - 6.0)
        .unwrap();
    for tick in (0..=highest).step_by((highest as usize).div_ceil(5)) {
        let y = y(tick);
        let line = format!(r#"x1="{LEFT}" x2="{}" y1="{y:.1}" y2="{y:.1}""#, LEFT + WIDTH);
        writeln!(svg, r##"<line {line} stroke="#e2e2e2"/>"##).unwrap();
        let at = format!(r#"x="{}" y="{:.1}""#, LEFT - 8.0, y + 4.0);
        writeln!(svg, r#"<text {at} text-anchor="end">{tick}</text>"#).unwrap();
    }
    let (x, middle) = (LEFT - 40.0, top + PANEL / 2.0);
    let place = format!(r#"transform="translate({x} {middle}) rotate(-90)" text-anchor="middle""#);
    writeln!(svg, r#"<text {place}>weight, requests</text>"#).unwrap();
    let area = format!("M{LEFT} {} {} V{} Z", y(0), steps(&held, y), y(0));
    writeln!(svg, r#"<path d="{area}" fill="{HELD}"/>"#).unwrap();
    let line = steps(&waiting, y).replacen('L', "M", 1);
    writeln!(svg, r#"<path d="{line}" fill="none" stroke="{WAITING}"/>"#).unwrap();
    let mut line = String::new();
    for (number, (at, limit)) in limits.iter().enumerate() {
        let command = if number == 0 { 'M' } else { 'H' };
        write!(line, "{command}{:.1} ", axis.x(*at)).unwrap();
        write!(line, "{}{:.1} ", if number == 0 { "" } else { "V" }, y(*limit)).unwrap();
    }
    write!(line, "H{:.1}", LEFT + WIDTH).unwrap();
    let stroke = format!(r#"stroke="{LIMIT}" stroke-dasharray="4 2""#);
    writeln!(svg, r#"<path d="{line}" fill="none" {stroke}/>"#).unwrap();
}

/// Returns the maximum in each column. Each span has a beginning, an end and a weight.
fn most(axis: Axis, spans: impl Iterator<Item = (Moment, Moment, u64)>) -> Vec<u64> {
    let mut changes: Vec<(Moment, i64)> = spans
        .filter(|(from, to, _)| from < to)
        .flat_map(|(from, to, weight)| [(from, weight as i64), (to, -(weight as i64))])
        .collect();
    changes.sort_unstable();
    let (mut columns, mut now, mut last) = (vec![0; COLUMNS], 0, 0);
    for (at, change) in changes {
        let column = axis.column(at);
        // The sum does not change before this column.
        columns[last..=column].iter_mut().for_each(|most: &mut i64| *most = now.max(*most));
        now += change;
        columns[column] = columns[column].max(now);
        last = column;
    }
    columns.into_iter().map(|most| most as u64).collect()
}

fn steps(columns: &[u64], y: impl Fn(u64) -> f64) -> String {
    let mut path = String::new();
    let mut last = None;
    for (number, value) in columns.iter().enumerate() {
        let x = LEFT + WIDTH * number as f64 / COLUMNS as f64;
        match last {
            None => write!(path, "L{x:.1} {:.1} ", y(*value)).unwrap(),
            Some(last) if last == value => {}
            Some(_) => write!(path, "H{x:.1} V{:.1} ", y(*value)).unwrap(),
        }
        last = Some(value);
    }
    write!(path, "H{:.1}", LEFT + WIDTH).unwrap();
    path
}

/// Draws a row for each kind of fault. Returns the bottom of the last row.
fn draw_faults(svg: &mut String, axis: Axis, top: f64, events: &[Event]) -> f64 {
    let mut kinds: BTreeMap<&str, Vec<(Moment, Moment, Moment)>> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Fault { kind, .. } => {
                kinds.entry(kind).or_default().push((event.at, axis.ended, axis.ended));
            }
            What::Undone { kind } => {
                if let Some(span) = kinds.get_mut(kind.as_str()).and_then(|spans| spans.last_mut())
                {
                    span.1 = event.at;
                }
            }
            What::Healed { kind } => {
                if let Some(span) = kinds.get_mut(kind.as_str()).and_then(|spans| spans.last_mut())
                {
                    span.2 = event.at;
                }
            }
            _ => {}
        }
    }
    writeln!(svg, r#"<text x="{LEFT}" y="{}" font-weight="bold">faults</text>"#, top - 6.0)
        .unwrap();
    let mut y = top;
    for (kind, spans) in kinds {
        let place = format!(r#"x="{}" y="{}" text-anchor="end""#, LEFT - 8.0, y + 12.0);
        writeln!(svg, r#"<text {place}>{kind}</text>"#).unwrap();
        for (from, undone, healed) in spans {
            // A fault without duration must be visible, too.
            let undone_x = axis.x(undone).max(axis.x(from) + 2.0);
            for (colour, from, to) in
                [(RECOVERY, undone_x, axis.x(healed)), (FAULT, axis.x(from), undone_x)]
            {
                let (width, height) = ((to - from).max(0.0), ROW - 4.0);
                let place = format!(r#"x="{from:.1}" y="{}" width="{width:.1}""#, y + 2.0);
                writeln!(svg, r#"<rect {place} height="{height}" fill="{colour}"/>"#).unwrap();
            }
        }
        y += ROW;
    }
    y
}

fn draw_time(svg: &mut String, axis: Axis, y: f64) {
    let wanted = axis.seconds() / 10.0;
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
    let step = steps.into_iter().find(|step| *step >= wanted).unwrap_or(7200.0);
    let mut time = 0.0;
    while time <= axis.seconds() {
        let x = LEFT + WIDTH * time / axis.seconds();
        let line = format!(r#"x1="{x:.1}" x2="{x:.1}" y1="{y}" y2="{}""#, y + 5.0);
        writeln!(svg, r#"<line {line} stroke="black"/>"#).unwrap();
        let place = format!(r#"x="{x:.1}" y="{}" text-anchor="middle""#, y + 19.0);
        writeln!(svg, r#"<text {place}>{time:.0}</text>"#).unwrap();
        time += step;
    }
    let place = format!(r#"x="{}" y="{}" text-anchor="middle""#, LEFT + WIDTH / 2.0, y + 38.0);
    writeln!(svg, r#"<text {place}>time since the beginning, s</text>"#).unwrap();
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
