//! Servers of every kind: one, a primary with replicas, a cluster, over TLS, away, or silent.

mod cluster;
mod cluster_map;
mod credentials;
mod failover;
mod faults;
mod outages;
mod tls;
mod urls;
