//! `doctor` reports that the server saves too little, or cannot save.

use std::process::Stdio;

use redis_semaphore::SemaphoreClient;
use redis_semaphore::Verdict::{Critical, Notice};

use super::{Patient, assert_only, findings_of};
use test_support::folder::Folder;
use test_support::observer::{eventually, until};
use test_support::server::{binary, connect, free_port};

#[tokio::test]
async fn the_doctor_reports_weak_or_missing_persistence() {
    let mut patient = Patient::healthy().await;
    patient.run("CONFIG SET appendfsync no");
    patient.finds(Notice, "persistence", "CONFIG SET appendfsync everysec").await;
    patient.run("CONFIG SET appendonly no");
    patient.finds(Critical, "persistence", "nothing is written to disk").await;
    patient.run_words(&["CONFIG", "SET", "save", "3600 1"].map(str::to_owned));
    patient.finds(Notice, "persistence", "only save points are set (3600 1)").await;
}

#[tokio::test]
async fn the_doctor_reports_a_failed_save() {
    let mut patient = Patient::healthy().await;
    // The server cannot rename its snapshot to a directory.
    std::fs::create_dir(patient.server.folder().join("dump.rdb")).unwrap();
    patient.run("BGSAVE");
    let status = async || patient.info("rdb_last_bgsave_status");
    eventually("failed", status, |status| status == "err").await;
    // No save points are set, so the server still accepts writes.
    patient.finds_nothing().await;
    patient.run_words(&["CONFIG", "SET", "save", "3600 1"].map(str::to_owned));
    let acquired = patient.client.semaphore("a").limit(1).build().unwrap().acquire().await;
    assert!(acquired.unwrap_err().to_string().contains("MISCONF"));
    let findings = patient.findings().await;
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert_only(&findings[..1], Critical, "saves", "the last save failed");
    // The server rejects all writes in this state.
    assert_only(&findings[1..], Critical, "commands", "(MISCONF)");
}

/// The disk is full: no file of the server may be larger than 4 kB.
#[tokio::test]
async fn the_doctor_reports_an_append_only_file_that_cannot_be_written() {
    let (folder, port) = (Folder::create(), free_port().to_string());
    let options = ["--port", &port, "--save", "", "--appendonly", "yes", "--dir"];
    let _server = tokio::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"", &binary()])
        .args(options)
        .arg(&folder.0)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let url = format!("redis://127.0.0.1:{port}/");
    let read = async || SemaphoreClient::builder().read_only().connect(&url).await;
    let reader = eventually("a server", read, Result::is_ok).await.unwrap();
    let mut writer = connect(&url);
    let mut fill = || redis::cmd("APPEND").arg("a").arg("b".repeat(500)).exec(&mut writer);
    until("the disk is full", || fill().is_err_and(|error| error.code() == Some("MISCONF")));
    let findings = findings_of(&reader).await;
    assert_only(&findings, Critical, "persistence", "the append-only file failed");
}
