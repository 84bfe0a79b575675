//! The figures P1 to P10: each measured beside its floor in one run, under two minutes.
//!
//! ```text
//! scripts/with-redis cargo bench --bench figures
//! scripts/with-redis cargo bench --bench figures -- --json
//! ```
//!
//! A ratio comes from rounds in which floor and crate take turns, so that a machine that is slow
//! for a while is slow for both; the median of the rounds counts.

mod contention;
mod figure;
mod latency;
mod rounds;
#[path = "../support/mod.rs"]
mod support;
mod throughput;

use support::Result;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let wants = |figure: &str| {
        let filters: Vec<_> = arguments[1..].iter().filter(|a| !a.starts_with("--")).collect();
        filters.is_empty() || filters.iter().any(|filter| figure.contains(*filter))
    };
    let mut figures = Vec::new();
    if wants("P1") {
        figures.push(latency::p1().await?);
    }
    if wants("P2") {
        figures.extend(throughput::p2().await?);
    }
    if wants("P3 P4 P5 P6") {
        figures.extend(contention::p3_to_p6().await?);
    }
    if std::env::args().any(|argument| argument == "--json") {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        print!("{}", figure::table(&figures));
    }
    Ok(())
}
