//! The arguments of a bench.

use clap::Parser;

/// Measures figures, each beside its baseline.
#[derive(Parser)]
#[command(version = None)]
pub struct Arguments {
    /// Measure only these figures: IDs, such as P2, or the first letters of IDs [default: P S G N]
    ///
    /// P this machine, S scripts, G groups, N networks, C clients, O other designs' handoffs,
    /// H holders, Q queues, R refreshes, M other designs' memory, W waits, D networks of many
    /// lengths, F a flood, L leaks in long runs
    ids: Vec<String>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Measure everything with the smallest size, to check that it runs
    #[arg(long)]
    test: bool,
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    /// Returns whether the figure with this ID is measured. Like criterion, a test without
    /// arguments runs everything.
    pub fn choose(&self, id: &str) -> bool {
        if self.ids.is_empty() {
            return only_tests() || id.starts_with(['P', 'S', 'G', 'N']);
        }
        self.ids.iter().any(|chosen| chosen == id || *chosen == id[..1])
    }
}

/// Returns whether benches only check that they run. Like criterion, a bench measures only if
/// `cargo bench` started it. Criterion itself has no such function.
pub fn only_tests() -> bool {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    has("--test") || !has("--bench")
}
