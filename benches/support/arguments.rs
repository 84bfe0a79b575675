//! The arguments of a bench.

use clap::Parser;

/// What benches without criterion understand of the arguments that `cargo bench` passes on.
#[derive(Parser)]
pub struct Arguments {
    /// Only runs a bench whose name has this in it
    filter: Option<String>,
    /// Prints the figures as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Only tries whether the bench runs
    #[arg(long)]
    test: bool,
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    pub fn wants(&self, bench: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| bench.contains(filter))
    }

    /// As criterion has it: measuring is for `cargo bench`.
    pub fn only_tests(&self) -> bool {
        self.test || !self.bench
    }
}

/// Whether criterion only tries its benches. It does not tell them.
pub fn only_tests() -> bool {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    has("--test") || !has("--bench")
}
