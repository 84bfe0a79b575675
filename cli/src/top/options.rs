//! The options of `top`.

use std::time::Duration;

use clap::Args;

use crate::duration::{WEEK, duration_within};
use crate::pattern::{self, Pattern};

/// The shortest interval, so that the server does not become busy.
const SHORTEST: Duration = Duration::from_millis(50);

const KEYS: &str = "\
Keys:
  Up, Down, PgUp, PgDn, Home, End   move (also k, j)
  1 2 3 4                           sort by a column; press again to reverse
  Enter, Right                      open the semaphore
  g                                 in a semaphore: show its groups, or its holders and waiters
  l                                 change or clear the limit
  r                                 revoke the marked permit or request, after confirmation
  Esc, Left, Backspace              back to the list; in the list, Esc quits
  q, Ctrl-C                         quit

Off-screen semaphores are read at least ten times less often. To find new ones, the server scans all its \
keys, in steps of well below 1 ms. Without changes, a read-only user is sufficient.";

#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub struct Top {
    #[arg(help = pattern::HELP)]
    pub pattern: Option<Pattern>,
    /// Interval between reads of the semaphores on the screen, 50ms to 7days
    #[arg(
        long,
        default_value = "1s",
        value_name = "DURATION",
        value_parser = duration_within(SHORTEST, WEEK)
    )]
    pub every: Duration,
}
