//! `ls`: lists all semaphores, one line each.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use redis_semaphore::{Error, Names, SemaphoreClient};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::format::Format;
use crate::output::{note, report};
use crate::pattern::{self, Pattern};
use crate::server::looking;
use crate::server::options::Server;
use crate::survey::{Summary, survey};
use crate::table::{millis, or_none, rounded, table};

#[derive(Debug, Args)]
#[command(after_help = "\
The server scans all its keys, in steps of well below 1 ms. The user needs the right +scan.

Exit status: 0 if all were shown, 1 if some cannot be read.")]
pub struct Ls {
    #[arg(help = pattern::HELP)]
    pub pattern: Option<Pattern>,
    #[command(flatten)]
    pub format: Format,
}

type Row<'a> = (&'a String, &'a Summary);

pub fn run(server: &Server, asked: &Ls) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let (found, summaries) = looking(server, async |client: &SemaphoreClient| {
        let found = client.names().await.map_err(|error| needs_all(error, server.cluster))?;
        let pattern = asked.pattern.as_ref();
        let is_wanted = |name: &&String| pattern.is_none_or(|pattern| pattern.fits(name));
        let names = found.names.iter().filter(is_wanted).cloned();
        let summaries = survey(client, names).await?;
        Ok::<_, Failure>((found, summaries))
    })?;
    let of_shown = |(name, summary)| Some((name, Result::as_ref(summary).ok()?));
    let shown: Vec<Row> = summaries.iter().filter_map(of_shown).collect();
    let all_took = started.elapsed();
    asked.format.say(as_json(&found, &shown, all_took), as_text(&shown))?;
    report_durations(&found, shown.len(), all_took);
    if summaries.is_empty() {
        note(nothing(&found.names, &server.prefix, asked.pattern.as_ref()));
    }
    let mut status = ExitCode::SUCCESS;
    for error in summaries.values().filter_map(|found| found.as_ref().err()) {
        status = Failure::of_one(error).report();
    }
    Ok(status)
}

/// Adds advice if a part of a cluster is unreachable.
fn needs_all(error: Error, is_cluster: bool) -> Failure {
    let is_partial = is_cluster && error.is_transient();
    let Failure { status, reason } = error.into();
    let advice = match is_partial {
        true => ": a list needs all primaries; `redis-semaphore inspect NAME` needs only one",
        false => "",
    };
    Failure { status, reason: reason + advice }
}

fn as_json(found: &Names, rows: &[Row], all_took: Duration) -> Value {
    let row = |(name, summary): &Row| {
        json!({
            "name": name,
            "limit": summary.limit,
            "held": summary.held,
            "queued": summary.queued,
            "longest_wait_ms": summary.longest_wait.map(millis),
        })
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    json!({
        "semaphores": rows,
        "keys": found.keys,
        "scan_ms": millis(found.elapsed),
        "total_ms": millis(all_took),
    })
}

fn as_text(rows: &[Row]) -> String {
    let cells = |(name, summary): &Row| {
        vec![
            name.to_string(),
            format!("{}/{}", summary.held, or_none(summary.limit)),
            summary.queued.to_string(),
            summary.longest_wait.map(rounded).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table(&["NAME", "HELD/LIMIT", "QUEUED", "LONGEST WAIT"], &rows)
}

/// Returns the reason why nothing is shown.
fn nothing(names: &[String], prefix: &str, pattern: Option<&Pattern>) -> String {
    let Some(pattern) = pattern.filter(|_| !names.is_empty()) else {
        return format!(
            "no semaphore exists under the prefix {prefix:?}: check --prefix and the server"
        );
    };
    let advice = pattern.advice(prefix, names).map(|advice| format!(": {advice}"));
    format!("no name matches \"{pattern}\"{}", advice.unwrap_or_default())
}

fn report_durations(found: &Names, shown: usize, all_took: Duration) {
    let keys = match found.keys {
        Some(keys) => format!("{keys} keys"),
        None => "the keys (the user needs +dbsize to count them)".to_owned(),
    };
    let all = found.names.len();
    let [seconds, all_seconds] = [found.elapsed, all_took].map(|took| took.as_secs_f64());
    report(format_args!(
        "{shown} of {all} semaphores shown; scanned {keys} in {seconds:.3} s; total time \
         {all_seconds:.3} s"
    ));
}
