//! The tickets that a server may have issued at a given moment. The server's clock is set forward
//! and back. A ticket is never smaller than the largest time that the clock has shown before.

use super::history::{Event, Moment, What};

/// While the clock is behind the last ticket, each ticket is larger by one than the ticket before
/// it. The sum of these increases is less than this value.
const COUNTED_ON: i64 = 1_000_000_000;

/// The settings of the clock, in order.
pub struct Tickets(Vec<Setting>);

struct Setting {
    /// The setting took effect between these moments.
    since: Moment,
    surely: Moment,
    /// The lead of the server's clock over the history's clock, in ns.
    ahead: i64,
}

impl Tickets {
    pub fn new(events: &[Event]) -> Self {
        let mut settings = vec![Setting { since: 0, surely: 0, ahead: 0 }];
        settings.extend(events.iter().filter_map(|event| match event.what {
            What::ClockIs { since, ahead } => Some(Setting { since, surely: event.at, ahead }),
            _ => None,
        }));
        Self(settings)
    }

    /// Returns the smallest possible ticket, in ns like all times here.
    pub fn least(&self, at: Moment) -> i64 {
        let surely = self.0.iter().enumerate().take_while(|(_, setting)| setting.surely <= at);
        let said = surely.map(|(index, setting)| {
            let until = self.0.get(index + 1).map_or(at, |next| next.since.min(at));
            until as i64 + setting.ahead
        });
        said.max().unwrap()
    }

    pub fn most(&self, at: Moment) -> i64 {
        let possible = self.0.iter().enumerate().take_while(|(_, setting)| setting.since <= at);
        let said = possible.map(|(index, setting)| {
            match self.0.get(index + 1).filter(|next| next.surely <= at) {
                Some(next) => next.surely as i64 + setting.ahead + COUNTED_ON,
                None => at as i64 + setting.ahead,
            }
        });
        said.max().unwrap()
    }
}
