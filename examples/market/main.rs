//! A market whose traders are eight processes, once with a lock for the whole market, once with a
//! lock for each item.
//!
//! ```text
//! scripts/with-redis cargo run --release --example market
//! ```
//!
//! It replaces the market of "Redis in Action" (4.4 and 6.2): first a WATCH loop, where every sale
//! sent all other buyers back to the start, then fine-grained locks, which were polled for and
//! locked out everybody for good (or let in two) when a buyer crashed at the wrong moment.

#[path = "../shared/crew.rs"]
mod crew;
mod goods;
#[path = "../shared/start.rs"]
mod start;
mod trader;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use goods::Goods;
use start::Result;

const TRADERS: u32 = 8;

#[derive(Clone, Copy, ValueEnum)]
enum Locking {
    /// One lock for the whole market
    Whole,
    /// A lock for each item
    Items,
}

/// Eight processes trade, first with one lock for the whole market, then with one for each item
///
/// What the traders have in the end stays in Redis, under names that begin with NAME-whole and
/// NAME-items.
#[derive(Parser)]
struct Options {
    #[arg(default_value = "market")]
    name: String,
    /// How the program starts itself again: number of the trader, and kind of locks
    #[arg(hide = true, requires = "locking")]
    trader: Option<u32>,
    #[arg(hide = true)]
    locking: Option<Locking>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { name, trader, locking } = Options::parse();
    let outcome = match (trader, locking) {
        (Some(trader), Some(locking)) => trader::run(&name, trader, locking).await,
        _ => compare(&name).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("market: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(name: &str) -> Result<()> {
    let whole = trades_per_second(&format!("{name}-whole"), "whole").await?;
    let items = trades_per_second(&format!("{name}-items"), "items").await?;
    println!("one lock for the whole market: {whole:.0} trades per second");
    println!("one lock for each item: {items:.0} trades per second");
    Ok(())
}

async fn trades_per_second(name: &str, locking: &str) -> Result<f64> {
    Goods::open(name).await?.hand_out(TRADERS).await?;
    let traders =
        (1..=TRADERS).map(|trader| vec![name.to_owned(), trader.to_string(), locking.to_owned()]);
    let start = Instant::now();
    let mut trades = 0.0;
    crew::run(traders, |line| {
        println!("{line}");
        let bought = line.rsplit(' ').next().and_then(|number| number.parse().ok());
        trades += bought.unwrap_or(0.0);
    })
    .await?;
    Ok(trades / start.elapsed().as_secs_f64())
}
