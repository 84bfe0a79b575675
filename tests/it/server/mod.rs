//! All kinds of servers: a single server, a primary with replicas, a cluster, over TLS,
//! unavailable, or silent.

mod cluster;
mod cluster_map;
mod credentials;
mod failover;
mod faults;
mod hosts;
mod outages;
mod tls;
mod urls;
