//! Input from attackers: arguments that no client sends, and messages that no script publishes.
//!
//! The environment variable `FUZZ_CASES` sets the number of cases, and `FUZZ_SEED` selects them.
//! `scripts/fuzz` sets both.

mod arguments;
mod calls;
mod flood;
mod forgeries;
mod members;
mod messages;
mod replies;
mod rules;
mod scripts;

/// The number of cases, and the seed that selects them.
struct Plan {
    cases: u64,
    seed: u64,
}

impl Plan {
    /// Reads the values from the environment. Without these values, the number of cases is `cases`,
    /// and the seed is random. Prints the seed, so that a failure can be reproduced.
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

/// Returns the bytes as readable text for the report of a failure.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 80;
    match bytes.get(..MOST) {
        Some(start) if bytes.len() > MOST => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
