//! Tests of hosts that are given without a URL, and of settings that only one of several URLs
//! contains.

use redis_semaphore::redis::{Client, ConnectionAddr, IntoConnectionInfo};
use redis_semaphore::{Error, IntoServer, SemaphoreClient};

use test_support::errors::whole;

const SECRET: &str = "S3cr3t";

/// A user may write a whole URL, or a part of a URL, instead of a host.
#[tokio::test]
async fn a_malformed_host_is_rejected_and_not_shown() {
    let builder = SemaphoreClient::builder;
    for host in [
        "u:S3cr3t@127.0.0.1",
        "S3cr3t@127.0.0.1",
        "redis://u:S3cr3t@127.0.0.1/",
        "127.0.0.1/S3cr3t",
        "127.0.0.1:S3cr3t",
        "127.0.0.1?pass=S3cr3t",
        "127.0.0.1#S3cr3t",
        "[::1]:S3cr3t",
        "::1%S3cr3t@",
        "127.0.0.1 S3cr3t",
        "127.0.0.1,S3cr3t",
        "S3cr3t\n",
        "",
    ] {
        let tcp = || ConnectionAddr::Tcp(host.to_owned(), 1);
        let tls = ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port: 1,
            insecure: false,
            tls_params: None,
        };
        let client = Client::open(tcp()).unwrap();
        for refused in [
            (host, 1).into_server().unwrap_err(),
            tcp().into_server().unwrap_err(),
            tls.into_server().unwrap_err(),
            tcp().into_connection_info().unwrap().into_server().unwrap_err(),
            builder().connect_primary_of([(host, 1)]).await.unwrap_err(),
            builder().connect_cluster([tcp()]).await.unwrap_err(),
            builder().connect_sentinels([(host, 1)], "jobs", tcp()).await.unwrap_err(),
            builder().connect_client(client).await.unwrap_err(),
        ] {
            let reported = format!("{} {refused:?}", whole(&refused));
            assert!(matches!(refused, Error::Invalid { .. }), "{reported}");
            assert!(!reported.contains(SECRET), "{reported}");
        }
    }
    for host in ["localhost", "redis-1.example_2.", "127.0.0.1", "::1", "fe80::1%eth0"] {
        assert_eq!((host, 7).into_server().unwrap().addr().to_string(), format!("{host}:7"));
    }
}

/// The protocol of the first URL applies to all nodes.
#[tokio::test]
async fn a_protocol_that_only_a_later_node_sets_is_rejected() {
    let [plain, newer] = ["redis://127.0.0.1:1/", "redis://127.0.0.1:1/?protocol=3"];
    let connect = async |nodes: [&str; 2]| {
        SemaphoreClient::builder().connect_cluster(nodes).await.unwrap_err()
    };
    let refused = connect([plain, newer]).await;
    assert!(matches!(refused, Error::Invalid { what: "nodes", .. }), "{refused:?}");
    assert!(refused.to_string().contains("the protocol must be the same"), "{refused}");
    for nodes in [[newer, newer], [newer, plain]] {
        let refused = connect(nodes).await;
        assert!(matches!(refused, Error::Connect { .. }), "{nodes:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_database_that_only_a_sentinels_url_sets_is_rejected() {
    let connect = async |sentinel: &str, primary: &str| {
        let sentinels = ["redis://127.0.0.1:1/", sentinel];
        SemaphoreClient::builder().connect_sentinels(sentinels, "jobs", primary).await.unwrap_err()
    };
    let sentinel = "redis://127.0.0.1:1/5";
    for primary in ["redis://primary/", "redis://primary/3"] {
        let refused = connect(sentinel, primary).await;
        assert!(matches!(refused, Error::Invalid { what: "sentinels", .. }), "{refused:?}");
        assert!(refused.to_string().contains("to the URL of the primary"), "{refused}");
    }
    let refused = connect(sentinel, "redis://primary/5").await;
    assert!(matches!(refused, Error::Connect { .. }), "{refused:?}");
}
