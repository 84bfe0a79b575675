//! What strangers may send: arguments that no client sends, and messages that no script publishes.
//!
//! In the environment: `FUZZ_CASES` for how many of each, `FUZZ_SEED` for which ones.
//! `scripts/fuzz` sets both.

mod arguments;
mod calls;
mod flood;
mod forgeries;
mod messages;
mod replies;
mod rules;
mod scripts;

/// How much to try, and what.
struct Plan {
    cases: u64,
    seed: u64,
}

impl Plan {
    /// What the environment does not say is chosen here, and printed, so that a failure can be had
    /// again.
    fn read(cases: u64) -> Self {
        let setting = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
        };
        let plan = Self {
            cases: setting("FUZZ_CASES").unwrap_or(cases),
            seed: setting("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32)),
        };
        println!("seed {}", plan.seed);
        plan
    }
}

/// Bytes as one can read them in the report of a failure.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 80;
    match bytes.get(..MOST) {
        Some(start) if bytes.len() > MOST => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
