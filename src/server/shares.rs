//! The slots that each primary of a cluster reports. A scan of all primaries compares the slots
//! before and after the scan, to find out whether a slot has moved with its keys.

use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::RedisError;

use super::cluster::Cluster;
use super::link::Link;
use super::scan::QueryError;
use super::slots::SLOTS;

/// The slots of one primary.
#[derive(Debug, PartialEq)]
pub(crate) struct Share {
    id: String,
    /// Ranges, such as `0-5460` or `7`.
    slots: Vec<String>,
    /// The moving slots, with their source or destination: `93-<-ID`, `93->-ID`.
    moving: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Shares(Vec<Share>);

impl Cluster {
    /// Reads the map again, and queries all primaries.
    pub(crate) async fn shares(self: &Arc<Self>) -> Result<(Vec<Arc<Link>>, Shares), QueryError> {
        self.refresh().await.map_err(|(node, error)| QueryError {
            address: self.describe(&node),
            command: "cluster|slots",
            error,
        })?;
        let links: Vec<_> = self.nodes().iter().map(|node| self.link(node)).collect();
        let shares = Shares(try_join_all(links.iter().map(share_of)).await?);
        match shares.trouble() {
            Some(trouble) => Err(self.query_error("cluster|nodes", trouble)),
            None => Ok((links, shares)),
        }
    }

    /// Fails if the primaries have changed. A primary that became a replica may have lost keys.
    pub(crate) async fn same_primaries(
        self: &Arc<Self>,
        before: &Shares,
    ) -> Result<(), QueryError> {
        match self.shares().await?.1.ids().eq(before.ids()) {
            true => Ok(()),
            false => Err(self.query_error("cluster|nodes", no_primary())),
        }
    }

    fn query_error(&self, command: &'static str, error: RedisError) -> QueryError {
        QueryError { address: self.to_string(), command, error }
    }
}

async fn share_of(link: &Arc<Link>) -> Result<Share, QueryError> {
    let mut nodes = redis::cmd("CLUSTER");
    let response: Result<String, _> = link.query(nodes.arg("NODES")).await;
    let share = response.and_then(|nodes| Share::read(&nodes).ok_or_else(no_primary));
    share.map_err(|error| link.query_error("cluster|nodes", error))
}

impl Share {
    /// Reads a primary's own line in its reply to CLUSTER NODES.
    fn read(nodes: &str) -> Option<Self> {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let is_itself = |words: &Vec<String>| {
            words.get(2).is_some_and(|flags| flags.starts_with("myself,master"))
        };
        let words = nodes.lines().map(words).find(is_itself)?;
        let (moving, slots) = words.iter().skip(8).partition(|slot| slot.starts_with('['));
        let all = |slots: Vec<&String>| {
            slots.iter().map(|slot| slot.trim_matches(['[', ']']).to_owned()).collect()
        };
        Some(Self { id: words[0].clone(), slots: all(slots), moving: all(moving) })
    }

    fn size(&self) -> usize {
        let number = |text: &str| text.parse::<usize>().unwrap_or_default();
        let size = |range: &String| match range.split_once('-') {
            Some((first, last)) => number(last).saturating_sub(number(first)) + 1,
            None => 1,
        };
        self.slots.iter().map(size).sum()
    }
}

impl Shares {
    /// Whether keys may be moving.
    pub(crate) fn are_moving(&self) -> bool {
        self.0.iter().any(|share| !share.moving.is_empty())
    }

    fn ids(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|share| &share.id)
    }

    /// Returns an error if some keys may be on none of these primaries.
    fn trouble(&self) -> Option<RedisError> {
        let served: usize = self.0.iter().map(Share::size).sum();
        if served < SLOTS.into() {
            let found = format!("only {served} of {SLOTS} slots have a node");
            return Some(redis::make_extension_error("CLUSTERDOWN".to_owned(), Some(found)));
        }
        let is_known = |place: &String| self.0.iter().any(|share| place.ends_with(&share.id));
        let to_unknown = self.0.iter().flat_map(|share| &share.moving).find(|at| !is_known(at))?;
        let found = format!("{to_unknown}: a node of this move is not a primary with slots yet");
        Some(redis::make_extension_error("TRYAGAIN".to_owned(), Some(found)))
    }
}

fn no_primary() -> RedisError {
    let found = "the node is no longer a primary".to_owned();
    redis::make_extension_error("READONLY".to_owned(), Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected
67ed 127.0.0.1:30002@31002,host2 master - 0 1426238316232 2 connected 5461-10922
e7d1 127.0.0.1:30001@31001,host1 myself,master - 0 0 1 connected 0-5459 7000 [93-<-67ed] [7->-67ed]
";

    fn share(id: &str, slots: &str, moving: &str) -> Share {
        let all = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Share { id: id.to_owned(), slots: all(slots), moving: all(moving) }
    }

    #[test]
    fn a_primary_reports_its_own_and_its_moving_slots() {
        let read = Share::read(NODES).unwrap();
        assert_eq!(read, share("e7d1", "0-5459 7000", "93-<-67ed 7->-67ed"));
        assert_eq!(read.size(), 5461);
        assert_eq!(Share::read(&NODES.replace("myself,master", "myself,slave")), None);
        assert_eq!(Share::read(""), None);
    }

    #[test]
    fn unassigned_slots_and_moves_to_unknown_nodes_are_errors() {
        let trouble = |shares| Shares(shares).trouble().map(|error| error.to_string());
        let whole = || share("a", "0-16383", "");
        assert_eq!(trouble(vec![whole()]), None);
        assert_eq!(trouble(vec![share("a", "0-9 11-16383", ""), share("b", "10", "")]), None);
        let found = trouble(vec![share("a", "0-9 11-16383", "")]).unwrap();
        assert!(found.contains("only 16383 of 16384"), "{found}");
        let moving = || share("b", "", "7-<-a");
        assert_eq!(trouble(vec![whole(), moving()]), None);
        assert!(Shares(vec![whole(), moving()]).are_moving());
        let found = trouble(vec![share("a", "0-16383", "7->-b")]).unwrap();
        assert!(found.contains("7->-b"), "{found}");
    }
}
