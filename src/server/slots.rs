//! The map of a cluster's slots to its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use crc16::{State, XMODEM};
use redis::{ConnectionAddr, Value};

/// The number of slots, from the specification of Redis Cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a hash tag, which is the text in braces in a key.
pub(crate) fn slot_of(tag: &str) -> u16 {
    State::<XMODEM>::calculate(tag.as_bytes()) % SLOTS
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Parses an address as in `MOVED 3999 127.0.0.1:6381`. If the host is missing, the host of the
    /// queried node is used.
    pub(crate) fn parse(text: &str, asked: &Address) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host_or(host, asked), port: port.parse().ok()? })
    }

    /// Returns this node's address with the TLS settings of another address.
    pub(crate) fn as_reached_by(&self, other: &ConnectionAddr) -> ConnectionAddr {
        let Self { host, port } = self.clone();
        match other {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}

/// Returns the host of a node. The argument `host` is empty or "?" if the node does not know its
/// own host, or must not reveal its host. In that case, the host of the queried node is returned.
fn host_or(host: &str, asked: &Address) -> String {
    match host {
        "" | "?" => asked.host.clone(),
        host => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Debug, Default)]
pub(crate) struct SlotMap {
    ranges: Vec<(RangeInclusive<u16>, Address)>,
    /// The address and the ID of each node, including replicas.
    nodes: BTreeMap<Address, String>,
}

impl SlotMap {
    /// Reads the reply to CLUSTER SLOTS. Each range has its first slot, last slot, primary and
    /// replicas.
    pub(crate) fn read(reply: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut slots = Self::default();
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [first, last, nodes @ ..] = &range[..] else { return None };
            let nodes = nodes.iter().map(|node| read_node(node, asked));
            let nodes: Vec<(Address, String)> = nodes.collect::<Option<_>>()?;
            let (primary, _) = nodes.first()?;
            slots.ranges.push((read_number(first)?..=read_number(last)?, primary.clone()));
            slots.nodes.extend(nodes);
        }
        (!slots.ranges.is_empty()).then_some(slots)
    }

    pub(crate) fn node(&self, slot: u16) -> Option<&Address> {
        // The last range has precedence: see `moved`.
        self.ranges.iter().rev().find(|(range, _)| range.contains(&slot)).map(|(_, node)| node)
    }

    /// The number of slots without a node.
    pub(crate) fn unserved(&self) -> usize {
        (0..SLOTS).filter(|slot| self.node(*slot).is_none()).count()
    }

    /// Records the new node of one slot. The new node has precedence over the ranges until the map
    /// is read again.
    pub(crate) fn moved(&mut self, slot: u16, node: Address) {
        self.ranges.retain(|(range, _)| *range != (slot..=slot));
        self.ranges.push((slot..=slot, node));
    }

    pub(crate) fn knows(&self, node: &Address) -> bool {
        self.nodes.contains_key(node) || self.ranges.iter().any(|(_, primary)| primary == node)
    }

    pub(crate) fn primaries_and_replicas(&self) -> (Vec<Address>, Vec<Address>) {
        let primaries: BTreeSet<_> = self.ranges.iter().map(|(_, node)| node).cloned().collect();
        let replicas = self.nodes.keys().filter(|node| !primaries.contains(node));
        let replicas = replicas.cloned().collect();
        (primaries.into_iter().collect(), replicas)
    }

    /// Whether the maps have a node in common. Any map is accepted if no map existed before.
    pub(crate) fn is_of_the_cluster_of(&self, before: &Self) -> bool {
        let is_known = |name: &String| before.nodes.values().any(|known| known == name);
        before.nodes.is_empty() || self.nodes.values().any(is_known)
    }
}

fn read_node(node: &Value, asked: &Address) -> Option<(Address, String)> {
    let Value::Array(node) = node else { return None };
    let [host, port, name, ..] = &node[..] else { return None };
    let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
    let host = host_or(host.as_deref().unwrap_or_default(), asked);
    Some((Address { host, port: read_number(port)? }, redis::from_redis_value_ref(name).ok()?))
}

/// Reads the number of a slot or a port.
fn read_number(value: &Value) -> Option<u16> {
    let Value::Int(number) = value else { return None };
    u16::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn slot_numbers_match_the_cluster_specification() {
        // These values are examples of the specification, and the check value of its checksum.
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of(""), 0);
    }

    #[test]
    fn addresses_may_lack_the_host_and_have_colons() {
        let asked = address("redis-3", 7000);
        assert_eq!(Address::parse("10.0.0.1:6381", &asked), Some(address("10.0.0.1", 6381)));
        assert_eq!(Address::parse(":6381", &asked), Some(address("redis-3", 6381)));
        assert_eq!(Address::parse("?:6381", &asked), Some(address("redis-3", 6381)));
        assert_eq!(Address::parse("fe80::1:6381", &asked), Some(address("fe80::1", 6381)));
        assert_eq!(Address::parse("10.0.0.1:", &asked), None);
        assert_eq!(Address::parse("10.0.0.1", &asked), None);
    }

    #[test]
    fn a_moved_slot_is_looked_up_at_its_new_node() {
        let range = (0..=16_383, address("one", 1));
        let mut slots = SlotMap { ranges: vec![range], ..SlotMap::default() };
        slots.moved(7, address("two", 2));
        slots.moved(7, address("three", 3));
        assert_eq!(slots.node(7), Some(&address("three", 3)));
        assert_eq!(slots.node(8), Some(&address("one", 1)));
        let primaries = vec![address("one", 1), address("three", 3)];
        assert_eq!(slots.primaries_and_replicas(), (primaries, vec![]));
    }

    #[test]
    fn an_unreadable_reply_gives_no_slot_map() {
        let asked = address("one", 1);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value| Value::Array(vec![host, Value::Int(6379), text("id")]);
        let range = |first, host| Value::Array(vec![Value::Int(first), Value::Int(9), node(host)]);
        let read = |ranges| SlotMap::read(&Value::Array(ranges), &asked);

        let slots = read(vec![range(0, text("two"))]).unwrap();
        assert_eq!(slots.node(9), Some(&address("two", 6379)));
        assert_eq!(slots.node(10), None);
        let slots = read(vec![range(0, Value::Nil)]).unwrap();
        assert_eq!(slots.node(0), Some(&address("one", 6379)));

        assert!(read(vec![]).is_none(), "a cluster without slots");
        assert!(read(vec![range(-1, text("two"))]).is_none());
        assert!(read(vec![Value::Array(vec![Value::Int(0)])]).is_none());
        assert!(SlotMap::read(&Value::Okay, &asked).is_none());
    }
}
