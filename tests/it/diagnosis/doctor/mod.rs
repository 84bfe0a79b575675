//! `doctor` reports each problem of a real server, and reports nothing about a healthy server.

mod cluster;
mod disk;
mod rights;

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Connection;
use redis_semaphore::{Check, Diagnosis, Error, SemaphoreClient, Verdict};

use test_support::acl;
use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::Proxy;
use test_support::scripts::words;
use test_support::server::Server;

use Verdict::{Critical, Notice, Unchecked};

/// A healthy server, a client whose user may read everything, and a connection that changes the
/// server.
struct Patient {
    server: Server,
    client: SemaphoreClient,
    admin: Connection,
}

impl Patient {
    async fn healthy() -> Self {
        Self::with(&[]).await
    }

    async fn with(options: &[&str]) -> Self {
        let server = Server::start_with(&[&["--appendonly", "yes"], options].concat());
        let client = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
        let admin = server.connect();
        Self { server, client, admin }
    }

    fn run(&mut self, command: &str) {
        self.run_words(&words(command));
    }

    fn run_words(&mut self, words: &[String]) {
        redis::cmd(&words[0]).arg(&words[1..]).exec(&mut self.admin).unwrap();
    }

    fn info(&mut self, field: &str) -> String {
        let info: redis::InfoDict = redis::cmd("INFO").query(&mut self.admin).unwrap();
        info.get(field).unwrap_or_else(|| panic!("INFO has no {field}"))
    }

    /// Connects as the user of the documentation, with these additional rights.
    async fn as_user(&mut self, rules: &str) -> SemaphoreClient {
        let mut set = words("ACL SETUSER jobs reset");
        set.extend_from_slice(acl::documented_rules());
        set.extend(words(rules));
        self.run_words(&set);
        SemaphoreClient::connect(&self.server.url()).await.unwrap()
    }

    async fn findings(&self) -> Vec<Check> {
        findings_of(&self.client).await
    }

    async fn finds(&self, verdict: Verdict, name: &str, saying: &str) {
        assert_only(&self.findings().await, verdict, name, saying);
    }

    async fn finds_nothing(&self) {
        assert_eq!(self.findings().await, []);
    }
}

/// Examines the only server, and returns all checks that are not ok.
async fn findings_of(client: &SemaphoreClient) -> Vec<Check> {
    let diagnosis = client.doctor().await.unwrap();
    let [server] = &diagnosis.servers[..] else { panic!("{diagnosis}") };
    let findings: Vec<Check> =
        server.checks.iter().filter(|check| check.verdict != Verdict::Ok).cloned().collect();
    let worst = findings.iter().map(|check| check.verdict).min().unwrap_or(Verdict::Ok);
    assert_eq!(diagnosis.worst(), worst);
    findings
}

/// Checks that there is exactly one finding, with a description and a fix.
#[track_caller]
fn assert_only(findings: &[Check], verdict: Verdict, name: &str, saying: &str) {
    let [check] = findings else { panic!("{name}: {findings:#?}") };
    assert_eq!((check.verdict, check.name), (verdict, name), "{check}");
    let shown = check.to_string();
    assert!(shown.contains(saying), "{saying:?} is not in: {shown}");
    assert!(shown.starts_with(&verdict.to_string()), "{shown}");
    let fix = check.fix.as_ref().expect("a fix");
    assert!(shown.ends_with(&format!("fix: {fix}")) && !fix.is_empty(), "{shown}");
}

/// Returns each check of the only server with its verdict, ordered by name.
fn all_checks(diagnosis: &Diagnosis) -> Vec<(&str, Verdict)> {
    let [server] = &diagnosis.servers[..] else { panic!("{diagnosis}") };
    let mut checks: Vec<_> =
        server.checks.iter().map(|check| (check.name, check.verdict)).collect();
    checks.sort_unstable();
    checks
}

const CHECKS: [&str; 10] = [
    "clients",
    "clock",
    "commands",
    "eviction",
    "memory",
    "messages",
    "persistence",
    "replicas",
    "role",
    "saves",
];

#[tokio::test]
async fn the_doctor_reports_the_server_address_version_and_all_checks() {
    let patient = Patient::healthy().await;
    let diagnosis = patient.client.doctor().await.unwrap();
    assert_eq!(all_checks(&diagnosis), CHECKS.map(|name| (name, Verdict::Ok)));
    let server = &diagnosis.servers[0];
    assert_eq!(server.address, format!("127.0.0.1:{}", patient.server.port));
    let version = server.version.split_once(' ').expect("name and version");
    assert!(["redis", "valkey"].contains(&version.0), "{version:?}");
    assert!(version.1.starts_with(|c: char| c.is_ascii_digit()), "{version:?}");
    let report = diagnosis.to_string();
    assert_eq!(report.lines().count(), 1 + CHECKS.len(), "{report}");
    assert!(report.starts_with(&format!("{}, {}\n", server.address, server.version)), "{report}");
    for check in &server.checks {
        assert!(report.contains(&check.finding) && check.fix.is_none(), "{report}");
    }
}

#[tokio::test]
async fn the_doctor_finds_nothing_on_a_healthy_server_and_leaves_no_keys() {
    let mut patient = Patient::healthy().await;
    patient.finds_nothing().await;
    assert_eq!(redis::cmd("DBSIZE").query(&mut patient.admin), Ok(0));
    patient.run_words(&["CONFIG", "SET", "save", "3600 1 300 100"].map(str::to_owned));
    patient.finds_nothing().await;
    // `doctor` does not report a memory limit with enough free memory.
    patient.run("CONFIG SET maxmemory 1gb");
    patient.finds_nothing().await;
}

#[tokio::test]
async fn the_doctor_reports_an_eviction_policy() {
    let mut patient = Patient::healthy().await;
    patient.run("CONFIG SET maxmemory-policy allkeys-lru");
    patient.finds(Notice, "eviction", "if maxmemory is set").await;
    patient.run("CONFIG SET maxmemory 1gb");
    patient.finds(Critical, "eviction", "CONFIG SET maxmemory-policy noeviction").await;
    patient.run("CONFIG SET maxmemory-policy volatile-ttl");
    patient.finds(Critical, "eviction", "keys of semaphores (because they have an expiry)").await;
    // The finding contains the number of evicted keys.
    patient.run("SET some-key value PX 100000");
    patient.run("CONFIG SET maxmemory 1");
    eventually("evicted", async || patient.info("evicted_keys"), |keys| keys == "1").await;
    patient.run("CONFIG SET maxmemory 1gb");
    patient.finds(Critical, "eviction", "it has evicted 1 keys").await;
}

#[tokio::test]
async fn the_doctor_reports_memory_that_is_almost_full() {
    let mut patient = Patient::healthy().await;
    let used: u64 = patient.info("used_memory").parse().unwrap();
    // The number of connections changes the used memory a little. So the test uses 80 % and 95 %,
    // which are not near the threshold of 90 %.
    patient.run(&format!("CONFIG SET maxmemory {}", used * 100 / 80));
    patient.finds_nothing().await;
    patient.run(&format!("CONFIG SET maxmemory {}", used * 100 / 95));
    patient.finds(Critical, "memory", " % of maxmemory is used").await;
}

/// A full server behaves as the finding describes.
#[tokio::test]
async fn a_full_server_rejects_acquires_and_limits_but_no_refreshes_and_releases() {
    let mut patient = Patient::healthy().await;
    let semaphore = patient.client.semaphore("full").limit(2).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    patient.run("CONFIG SET maxmemory 1");
    let findings = patient.findings().await;
    let memory: Vec<_> = findings.into_iter().filter(|check| check.name == "memory").collect();
    let said = "a full server rejects new acquires and new limits, while holders can still \
                refresh and release";
    assert_only(&memory, Critical, "memory", said);
    for refused in [
        semaphore.acquire().await.map(drop).unwrap_err(),
        semaphore.set_limit(3).await.map(drop).unwrap_err(),
    ] {
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
    permit.refresh().await.unwrap();
    permit.release().await.unwrap();
    // The suggested fix works.
    patient.run(memory[0].fix.as_ref().unwrap().split(',').next().unwrap());
    patient.finds_nothing().await;
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_doctor_reports_replicas_without_min_replicas_to_write() {
    let mut patient = Patient::healthy().await;
    let _replica =
        Server::start_with(&["--replicaof", "127.0.0.1", &patient.server.port.to_string()]);
    eventually("replica", async || patient.info("connected_slaves"), |number| number == "1").await;
    patient.finds(Notice, "replicas", "CONFIG SET min-replicas-to-write 1").await;
    let good = async |patient: &mut Patient| patient.info("min_slaves_good_slaves");
    patient.run("CONFIG SET min-replicas-to-write 1");
    eventually("no lag", async || good(&mut patient).await, |number| number == "1").await;
    patient.finds_nothing().await;
    // A client that only reads finds out that all writes fail.
    let url = patient.server.admin_url();
    let reader = SemaphoreClient::builder().read_only().connect(&url).await.unwrap();
    patient.run("CONFIG SET min-replicas-to-write 2");
    let findings = findings_of(&reader).await;
    assert_only(&findings, Critical, "replicas", "lower min-replicas-to-write");
}

#[tokio::test]
async fn the_doctor_reports_a_primary_that_became_a_replica() {
    let mut patient = Patient::healthy().await;
    let restricted = patient.as_user("").await;
    let url = patient.server.admin_url();
    let reader = SemaphoreClient::builder().read_only().connect(&url).await.unwrap();
    patient.run("REPLICAOF 127.0.0.1 1");
    let findings = patient.findings().await;
    assert_only(&findings[..1], Critical, "role", "a replica of 127.0.0.1:1");
    let untried: Vec<_> = findings[1..].iter().map(|check| (check.verdict, check.name)).collect();
    let names = ["replicas", "persistence", "commands", "messages"];
    assert_eq!(untried, names.map(|name| (Unchecked, name)));
    // If the user may not read the role, the rejected commands still reveal the role.
    let findings = findings_of(&restricted).await;
    let [server, unchecked @ ..] = &findings[..] else { panic!("nothing is found") };
    assert_only(std::slice::from_ref(server), Critical, "commands", "a replica");
    assert!(unchecked.iter().all(|check| check.verdict == Unchecked), "{findings:?}");
    // A client that only reads may use a replica.
    let findings = findings_of(&reader).await;
    let role = findings.iter().find(|check| check.name == "role").expect("the role is reported");
    assert_eq!(role.verdict, Notice, "{role:?}");
}

#[tokio::test]
async fn the_doctor_reports_connections_that_run_out() {
    let mut patient = Patient::healthy().await;
    patient.run("CONFIG SET maxclients 20");
    // Three connections are open: for the administrator, for commands and for messages.
    let mut crowd: Vec<_> = (0..14).map(|_| patient.server.connect()).collect();
    patient.finds_nothing().await;
    crowd.push(patient.server.connect());
    patient.finds(Critical, "clients", "90 % of maxclients are connected (18 of 20)").await;
    crowd.extend([patient.server.connect(), patient.server.connect()]);
    let findings = patient.findings().await;
    assert_only(&findings[..1], Critical, "clients", "100 % of maxclients");
    assert_only(&findings[1..], Critical, "messages", "its maximum number of connections");
}

/// No call has used the connection since it was cut.
#[tokio::test]
async fn an_idle_connection_that_was_cut_is_no_finding() {
    let mut patient = Patient::healthy().await;
    patient.run("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(patient.findings().await, []);
}

#[tokio::test]
async fn the_doctor_reports_a_server_clock_that_is_far_off() {
    let patient = Patient::healthy().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for (server, how) in [
        (now + Duration::from_secs(1000), " s ahead of the local clock"),
        (now - Duration::from_secs(1000), " s behind the local clock"),
    ] {
        patient.server.clock.freeze_at(server.as_micros() as i64);
        patient.finds(Notice, "clock", how).await;
    }
}

#[tokio::test]
async fn the_doctor_returns_an_error_if_the_server_is_gone() {
    let mut patient = Patient::healthy().await;
    patient.server.kill();
    let gone = patient.client.doctor().await.unwrap_err();
    assert!(matches!(gone, Error::Connect { .. }), "{gone}");
    assert!(gone.to_string().contains(&patient.server.port.to_string()), "{gone}");
}

/// The setting `timeout` is no finding, because it does not close subscribed connections.
#[tokio::test]
async fn the_server_setting_timeout_does_not_close_subscribed_connections() {
    let mut patient = Patient::healthy().await;
    let semaphore = patient.client.semaphore("idle").limit(1).build().unwrap();
    let observer = Observer::new(&patient.server.url(), "idle", 1).await;
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    observer.sees(1, 1).await;
    let clients = |patient: &mut Patient| -> String {
        redis::cmd("CLIENT").arg("LIST").query(&mut patient.admin).unwrap()
    };
    let listening = |clients: &str| -> Vec<String> {
        let listens = |line: &&str| line.contains(" sub=1 ");
        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        let mut ids: Vec<_> = clients.lines().filter(listens).map(id).collect();
        ids.sort();
        ids
    };
    let before = listening(&clients(&mut patient));
    assert_eq!(before.len(), 2, "the process that waits, and the observer");
    let mut idle = patient.server.connect();
    redis::cmd("CLIENT").arg("SETNAME").arg("idle").exec(&mut idle).unwrap();
    patient.run("CONFIG SET timeout 1");
    let cut = |clients: &String| !clients.contains(" name=idle ");
    let after = eventually("cut", async || clients(&mut patient), cut).await;
    assert_eq!(listening(&after), before);
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// Each round cuts the connection later, until `doctor` ends before the cut.
#[tokio::test]
async fn the_doctor_succeeds_if_its_connection_is_cut_during_the_checks() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    for turns in (0..).step_by(4) {
        let cut = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            proxy.cut_commands();
        };
        let mut cut = pin!(cut);
        let mut doctor = pin!(client.doctor());
        let diagnosis = tokio::select! {
            diagnosis = &mut doctor => {
                diagnosis.unwrap();
                break;
            }
            () = &mut cut => doctor.await,
        };
        assert!(diagnosis.is_ok(), "cut after {turns} turns: {diagnosis:?}");
    }
}

/// After the rejected write, the client does not use the server for calls for a while.
#[tokio::test]
async fn the_doctor_examines_a_server_that_has_just_rejected_a_write() {
    let mut patient = Patient::healthy().await;
    let semaphore = patient.client.semaphore("jobs").limit(1).build().unwrap();
    drop(semaphore.acquire().await.unwrap());
    patient.run("REPLICAOF 127.0.0.1 1");
    for _ in 0..3 {
        semaphore.try_acquire().await.unwrap_err();
        let findings = patient.findings().await;
        assert_eq!((findings[0].verdict, findings[0].name), (Critical, "role"), "{findings:?}");
    }
}
