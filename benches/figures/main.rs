//! The figures P1 to P10: each measured beside its floor in one run, under two minutes.
//!
//! ```text
//! scripts/with-redis cargo bench --bench figures
//! scripts/with-redis cargo bench --bench figures -- --json
//! ```
//!
//! A ratio comes from rounds in which floor and crate take turns, so that a machine that is slow
//! for a while is slow for both; the median of the rounds counts.

mod figure;
mod latency;
mod rounds;
#[path = "../support/mod.rs"]
mod support;
mod throughput;

use figure::Figure;
use support::Result;

#[tokio::main]
async fn main() -> Result<()> {
    let mut figures = Vec::new();
    figures.push(latency::p1().await?);
    figures.extend(throughput::p2().await?);
    if std::env::args().any(|argument| argument == "--json") {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        print!("{}", figure::table(&figures));
    }
    Ok(())
}
