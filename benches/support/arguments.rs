//! The arguments of a bench.

use clap::Parser;

/// The arguments of `cargo bench` for benches that do not use criterion.
#[derive(Parser)]
pub struct Arguments {
    /// Run only benches whose name contains this text
    filter: Option<String>,
    /// Print the figures as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Only check that the bench runs
    #[arg(long)]
    test: bool,
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    pub fn wants(&self, bench: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| bench.contains(filter))
    }

    /// Returns whether the bench only checks that it runs. Like criterion, a bench measures only if
    /// `cargo bench` started it.
    pub fn only_tests(&self) -> bool {
        self.test || !self.bench
    }
}

/// Returns whether criterion only tests its benches. Criterion itself has no such function.
pub fn only_tests() -> bool {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    has("--test") || !has("--bench")
}
