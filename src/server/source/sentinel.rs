//! Finds the primary that sentinels name. redis-rs can also find the primary, but its errors do not
//! name the server that failed, or the step that failed.

use std::collections::HashMap;

use redis::{Client, ConnectionInfo, ErrorKind, RedisError};

use super::{Unconnected, address, connect_to_primary, first_ok};
use crate::error::{NO_SENTINEL, PRIMARY_DOWN, SENTINEL_WANTS_PASSWORD, is_unknown_command, says};
use crate::server::dialer::{Dialed, Dialer};
use crate::server::slots::Address;

/// The number of sentinels that are queried at the same time. The first sentinels in the list are
/// queried first.
const ASKED_AT_ONCE: usize = 3;

#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<Client>,
    pub(crate) service: String,
    /// The user, password, database and TLS setting of the primary. The host and port are not used.
    pub(crate) primary: ConnectionInfo,
}

/// The step at which the search stopped. A later step gives more information.
#[derive(PartialEq, PartialOrd)]
enum Step {
    Sentinel,
    Name,
    Down,
    Primary,
}

impl Sentinels {
    /// Connects to the first server that a sentinel names as the primary and whose role is primary.
    pub(super) async fn connect(&self, dialer: &Dialer) -> Result<(Client, Dialed), Unconnected> {
        let attempts = self.sentinels.iter().map(|sentinel| self.follow(sentinel, dialer));
        first_ok(ASKED_AT_ONCE, attempts.collect()).await.map_err(|errors| {
            let further = |first: (Step, _), next: (Step, _)| match first.0 < next.0 {
                true => next,
                false => first,
            };
            errors.into_iter().reduce(further).expect("at least one sentinel is configured").1
        })
    }

    async fn follow(
        &self,
        sentinel: &Client,
        dialer: &Dialer,
    ) -> Result<(Client, Dialed), (Step, Unconnected)> {
        let asked = address(sentinel);
        let masters =
            masters(sentinel, dialer).await.map_err(|error| at_sentinel(&asked, error))?;
        let known = masters.iter().find(|master| master.get("name") == Some(&self.service));
        let Some(named) = known else {
            return Err((Step::Name, self.unknown(&asked, &masters)));
        };
        let field = |name| named.get(name).map_or("", String::as_str);
        let Ok(port) = field("port").parse() else {
            return Err((Step::Name, self.unknown(&asked, &masters)));
        };
        let node = Address { host: field("ip").to_owned(), port };
        let service = &self.service;
        if field("flags").contains("_down") {
            let found = format!(
                "the sentinel marks its primary {node} as down ({}) and names no other",
                field("flags")
            );
            let error = (ErrorKind::MasterNameNotFoundBySentinel, PRIMARY_DOWN, found).into();
            let server = Some(format!("{asked} (a sentinel of {service})"));
            return Err((Step::Down, Unconnected { server, error }));
        }
        let info = self.primary.clone().set_addr(node.as_reached_by(self.primary.addr()));
        let connect = async { connect_to_primary(&Client::open(info)?, dialer).await };
        connect.await.map_err(|error| {
            let server = Some(format!("{node} (the primary that the sentinel at {asked} names)"));
            (Step::Primary, Unconnected { server, error })
        })
    }

    fn unknown(&self, asked: &str, masters: &[HashMap<String, String>]) -> Unconnected {
        let names: Vec<_> = masters.iter().filter_map(|master| master.get("name")).collect();
        let service = &self.service;
        let found =
            format!("the sentinel knows no primary with the name {service:?}; it knows {names:?}");
        let error = (ErrorKind::MasterNameNotFoundBySentinel, "no primary", found).into();
        Unconnected { server: Some(format!("{asked} (a sentinel)")), error }
    }
}

/// Explains why a sentinel did not return its data.
fn at_sentinel(asked: &str, error: RedisError) -> (Step, Unconnected) {
    let (server, error) = if is_unknown_command(&error.to_string()) {
        (asked.to_owned(), (ErrorKind::InvalidClientConfig, NO_SENTINEL).into())
    } else if says(&error, "NOAUTH") {
        // The sentinel wants its own password, not the password of the primary.
        let detail = SENTINEL_WANTS_PASSWORD.to_owned();
        let error = redis::make_extension_error("NOAUTH".to_owned(), Some(detail));
        (format!("{asked} (a sentinel)"), error)
    } else {
        (format!("{asked} (a sentinel)"), error)
    };
    (Step::Sentinel, Unconnected { server: Some(server), error })
}

/// Returns the sentinel's data about all primaries that it monitors.
async fn masters(
    sentinel: &Client,
    dialer: &Dialer,
) -> Result<Vec<HashMap<String, String>>, RedisError> {
    let dialer = dialer.without_provider();
    let dialed = dialer.connect(sentinel, &dialer.config()).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("MASTERS");
    command.query_async(&mut dialed.connection()).await
}
