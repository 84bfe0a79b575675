//! Tests that the crate sends no command that is denied to the users of `docs/production.md`.
//! Denied commands fill the server's ACL log and trigger alarms. The tests read the server's own
//! counts.

use redis_semaphore::{Semaphore, SemaphoreClient};

use test_support::acl::{self, denied};
use test_support::cluster::Cluster;
use test_support::observer::{Observer, in_time};
use test_support::server::{Server, unique_name};

async fn use_it(semaphore: &Semaphore, observer: &Observer) {
    let held = in_time("a permit", semaphore.acquire()).await.unwrap();
    let waits = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    observer.sees(1, 1).await;
    held.release().await.unwrap();
    let permit = in_time("its turn", waits).await.unwrap().unwrap();
    permit.refresh().await.unwrap();
    semaphore.inspect().await.unwrap();
    semaphore.set_limit(2).await.unwrap();
    semaphore.clear_limit().await.unwrap();
    permit.release().await.unwrap();
}

/// Returns whether the server reports a user's rights. Servers before 7.0 report no rights.
fn can_be_asked(server: &Server) -> bool {
    !server.is_older_than_7()
}

#[tokio::test]
async fn a_client_of_a_single_server_sends_no_denied_command() {
    let server = Server::start();
    acl::set_user(&mut server.connect(), acl::LOOKER, &acl::looker_rules()[0]);
    let observer = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
    let name = unique_name();
    let observer = Observer::of(observer.semaphore(&*name).limit(1).build().unwrap());
    for url in [server.url(), format!("{}?protocol=3", server.url())] {
        let client = SemaphoreClient::connect(&url).await.unwrap();
        use_it(&client.semaphore(&*name).limit(1).build().unwrap(), &observer).await;
        assert_eq!(denied(&server), [""; 0], "a user of semaphores");
        if can_be_asked(&server) {
            client.doctor().await.unwrap();
            assert_eq!(denied(&server), [""; 0], "the doctor");
        }
    }
    if !can_be_asked(&server) {
        return;
    }
    let url = server.url_of(acl::LOOKER);
    let looker = SemaphoreClient::builder().for_doctor().connect(&url).await.unwrap();
    looker.names().await.unwrap();
    looker.semaphore(&*name).existing_limit().build().unwrap().inspect().await.unwrap();
    let diagnosis = looker.doctor().await.unwrap().to_string();
    assert!(diagnosis.contains(" +persist") && !diagnosis.contains(" &sem"), "{diagnosis}");
    assert_eq!(denied(&server), [""; 0], "a read-only user");
}

#[tokio::test]
async fn a_client_of_a_cluster_sends_no_denied_command() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let admins: Vec<_> = cluster.nodes.iter().map(Server::admin_url).collect();
    let observers = SemaphoreClient::builder().connect_cluster(admins).await.unwrap();
    let client = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
    for node in 0..2 {
        let name = cluster.name_at(node);
        let observer = observers.semaphore(&*name).limit(1).build().unwrap();
        use_it(&client.semaphore(&*name).limit(1).build().unwrap(), &Observer::of(observer)).await;
    }
    client.doctor().await.unwrap();
    let looking = cluster.nodes.iter().map(|node| {
        acl::set_user(&mut node.connect(), acl::LOOKER, &acl::looker_rules()[1]);
        node.url_of(acl::LOOKER)
    });
    let looker = SemaphoreClient::builder().for_doctor().connect_cluster(looking).await.unwrap();
    looker.names().await.unwrap();
    let diagnosis = looker.doctor().await.unwrap().to_string();
    assert!(diagnosis.contains(" +ssubscribe"), "{diagnosis}");
    for node in &cluster.nodes {
        assert_eq!(denied(node), [""; 0]);
    }
}
