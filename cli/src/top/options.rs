//! What may be asked of `top`.

use std::time::Duration;

use clap::Args;

use crate::duration::{WEEK, duration};
use crate::pattern::{self, Pattern};

/// So the server is not made busy.
const SHORTEST: Duration = Duration::from_millis(50);

const KEYS: &str = "\
Keys:
  Up, Down, PgUp, PgDn, Home, End   move (k and j, too); from Home on, the mark stays at the top
  1 2 3 4                           sort by that column; once more: the other way round
  Enter, Right                      open the semaphore: who holds it, who waits
  l                                 another limit: a number, or clear it
  r                                 revoke the marked permit or request; it asks first
  Esc, Left, Backspace              back to the list; there Esc leaves
  q, Ctrl-C                         leave

What is on the screen is looked at at the pace of --every, all others ten times less often. For new \
semaphores the server looks through all its keys, in steps of well below 1 ms: five times less often, \
and for a tenth of the time at most. A user of the server who may only look is enough, until \
something is changed: docs/protocol.md has the rules.";

#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub struct Top {
    #[arg(help = pattern::HELP)]
    pub pattern: Option<Pattern>,
    /// How often to look at what is on the screen: 50ms to 7days
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration(SHORTEST, WEEK))]
    pub every: Duration,
}
