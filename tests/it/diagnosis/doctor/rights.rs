//! `doctor` reports rights that the user lacks, and facts that the server does not return.

use redis_semaphore::Verdict::{Critical, Notice, Unchecked};

use super::{Patient, assert_only, findings_of};

#[tokio::test]
async fn the_documented_user_with_two_more_rights_can_run_all_checks() {
    let mut patient = Patient::healthy().await;
    let client = patient.as_user("+info +config|get").await;
    assert_eq!(findings_of(&client).await, []);
}

#[tokio::test]
async fn the_doctor_reports_rights_that_the_user_lost() {
    let mut patient = Patient::healthy().await;
    let client = patient.as_user("+info +config|get").await;
    patient.run("ACL SETUSER jobs -zrank -zrem -publish");
    let findings = findings_of(&client).await;
    assert_only(&findings[..1], Critical, "commands", "lacks the right +zrank");
    assert_only(&findings[1..2], Critical, "commands", "fix: ACL SETUSER jobs +zrem");
    if patient.info("redis_version").starts_with("6.") {
        // The script cannot check rights, so it tries no command that writes.
        assert_eq!(findings.len(), 2, "{findings:?}");
    } else {
        assert_only(&findings[2..], Critical, "commands", "fix: ACL SETUSER jobs +publish");
    }
    for (right, name) in [
        ("+ping", "commands"),
        ("+eval", "commands"),
        ("+script|load", "commands"),
        ("+evalsha", "commands"),
        ("+subscribe", "messages"),
        ("+publish", "commands"),
    ] {
        let client = patient.as_user("+info +config|get").await;
        // Redis 6.2 cannot remove the right for a single subcommand.
        let command = right[1..].split('|').next().unwrap();
        patient.run(&format!("ACL SETUSER jobs -{command}"));
        let findings = findings_of(&client).await;
        assert_only(&findings[..1], Critical, name, &format!("fix: ACL SETUSER jobs {right}"));
        // The script `probe` tries the other commands, if the user can run scripts.
        if ["+ping", "+eval", "+script|load", "+evalsha"].contains(&right) {
            assert_only(&findings[1..], Unchecked, name, "other commands were not tried");
        } else {
            assert_eq!(findings.len(), 1, "{findings:?}");
        }
    }
    let client = patient.as_user("+info +config|get").await;
    patient.run("ACL SETUSER jobs -time");
    let findings = findings_of(&client).await;
    assert_only(&findings[..1], Critical, "commands", "fix: ACL SETUSER jobs +time");
    assert_only(&findings[1..], Unchecked, "clock", "the user may not call TIME");
}

#[tokio::test]
async fn checks_that_need_missing_rights_are_reported_as_unchecked() {
    let mut patient = Patient::healthy().await;
    let client = patient.as_user("+config|get").await;
    let by_config = ["persistence", "saves"];
    let by_info = ["clients", "eviction", "memory", "replicas", "role"];
    let all = [&by_info[..], &by_config[..]].concat();
    for (rights, lacking, unreported) in
        [("+config|get", "INFO", &all[..]), ("+info", "CONFIG GET", &by_config), ("", "INFO", &all)]
    {
        let client = patient.as_user(rights).await;
        let findings = findings_of(&client).await;
        let mut names: Vec<_> = findings.iter().map(|check| check.name).collect();
        names.sort_unstable();
        let mut unreported = unreported.to_vec();
        unreported.sort_unstable();
        assert_eq!(names, unreported);
        for check in &findings {
            assert_only(
                std::slice::from_ref(check),
                Unchecked,
                check.name,
                &format!("the user may not call {lacking}"),
            );
        }
    }
    // The suggested fix works.
    patient.run("ACL SETUSER jobs +info +config|get");
    assert_eq!(findings_of(&client).await, []);
}

#[tokio::test]
async fn the_doctor_lists_the_worst_findings_first() {
    let mut patient = Patient::healthy().await;
    patient.run("CONFIG SET maxmemory-policy allkeys-lru");
    let client = patient.as_user("+info").await;
    patient.run("ACL SETUSER jobs -publish");
    let findings = findings_of(&client).await;
    let found = findings.iter().map(|check| (check.verdict, check.name));
    let expected = [
        (Critical, "commands"),
        (Notice, "eviction"),
        (Unchecked, "persistence"),
        (Unchecked, "saves"),
    ];
    assert!(found.eq(expected), "{findings:?}");
}

#[tokio::test]
async fn checks_whose_data_the_server_does_not_return_are_unchecked() {
    let patient = Patient::with(&["--rename-command", "CONFIG", ""]).await;
    let findings = patient.findings().await;
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert_only(&findings[..1], Unchecked, "persistence", "the server rejects CONFIG GET (");
    assert_only(&findings[1..], Unchecked, "saves", "the server rejects CONFIG GET (");
    // `INFO` returns another command's text, which contains none of the expected fields.
    let renamed = ["--rename-command", "INFO", "", "--rename-command", "LOLWUT", "INFO"];
    let patient = Patient::with(&renamed).await;
    let findings = patient.findings().await;
    assert_eq!(findings.len(), 7, "{findings:?}");
    assert_only(&findings[..1], Unchecked, "role", "INFO does not report role");
}
