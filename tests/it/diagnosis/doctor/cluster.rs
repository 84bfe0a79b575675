//! The doctor examines every primary of a cluster.

use redis_semaphore::{Error, SemaphoreClient, Verdict};

use test_support::cluster::Cluster;

async fn connect(cluster: &Cluster) -> SemaphoreClient {
    SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap()
}

#[tokio::test]
async fn the_doctor_looks_at_every_node() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    cluster.nodes[1].grant("+info");
    cluster.nodes[1].grant("+config|get");
    let diagnosis = connect(&cluster).await.doctor().await.unwrap();
    assert_eq!(diagnosis.servers.len(), 2, "{diagnosis}");
    let about = |node: usize| -> Vec<(Verdict, &str)> {
        let address = format!("127.0.0.1:{}", cluster.nodes[node].port);
        let mut there = diagnosis.servers.iter().filter(|server| server.address == address);
        let checks = there.next().expect("the node was examined").checks.iter();
        let findings = checks.filter(|check| check.verdict != Verdict::Ok);
        findings.map(|check| (check.verdict, check.name)).collect()
    };
    let unchecked = about(0);
    assert_eq!(unchecked.len(), 7, "checks that its user may not make: {diagnosis}");
    assert!(unchecked.iter().all(|(verdict, _)| *verdict == Verdict::Unchecked), "{diagnosis}");
    assert_eq!(about(1), [(Verdict::Critical, "persistence")], "{diagnosis}");
}

/// The reachable nodes are examined, too.
#[tokio::test]
async fn the_doctor_reports_a_node_that_is_away() {
    let Some(mut cluster) = Cluster::start(2, false).await else { return };
    let client = connect(&cluster).await;
    cluster.nodes[1].kill();
    let diagnosis = client.doctor().await.unwrap();
    assert_eq!(diagnosis.servers.len(), 2, "{diagnosis}");
    let away = format!("127.0.0.1:{}", cluster.nodes[1].port);
    let report = diagnosis.servers.iter().find(|report| report.address == away).unwrap();
    let [check] = &report.checks[..] else { panic!("{diagnosis}") };
    assert_eq!((check.verdict, check.name), (Verdict::Critical, "connection"), "{diagnosis}");
    assert!(check.fix.as_ref().unwrap().contains("start the server"), "{diagnosis}");
    cluster.nodes[0].kill();
    let gone = client.doctor().await.unwrap_err();
    assert!(matches!(gone, Error::Connect { .. }), "{gone}");
}
