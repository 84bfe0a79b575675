//! Tests with all kinds of servers: single servers, primaries with replicas, clusters, servers with
//! TLS, and servers that are unavailable or silent.

mod cluster;
mod cluster_map;
mod credentials;
mod failover;
mod faults;
mod hosts;
mod outages;
mod tls;
mod urls;
