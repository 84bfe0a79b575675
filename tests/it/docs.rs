//! Tests that check statements of the documentation.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis_semaphore::SemaphoreClient;

use test_support::observer::{eventually, in_time};
use test_support::server::Server;

/// Checks that the source contains the beginning of each log message that `docs/troubleshooting.md`
/// quotes. The test does not check that the crate logs the message.
#[test]
fn each_log_message_in_troubleshooting_md_is_in_the_source() {
    let page = include_str!("../../docs/troubleshooting.md");
    let (_, section) = page.split_once("## Log messages").unwrap();
    let texts: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| warn |") || line.starts_with("| info |"))
        .map(|line| line.split('|').nth(2).unwrap().trim().trim_matches('`'))
        .collect();
    assert!(texts.len() > 5, "{texts:?}");
    let source = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src"));
    for text in texts {
        assert!(source.contains(&format!("\"{text}")), "nothing logs {text:?}");
    }
}

/// Checks that each test named in `tests/cases.md` exists.
#[test]
fn each_test_named_in_cases_md_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = include_str!("../cases.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    let is_head = |row: &&&str| row.starts_with("| report ") || row.starts_with("| --- ");
    let rows: Vec<_> = rows.iter().filter(|row| !is_head(row)).collect();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [report, _, held_by] = cells[..] else { panic!("three cells: {row}") };
        assert!(report.contains('/') && report.contains('#'), "owner/repository#number: {row}");
        if held_by.starts_with("no test, as ") {
            continue;
        }
        let (file, test) = held_by.split_once("::").unwrap_or((held_by, ""));
        let text =
            fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(test), "{file} has no {test}");
    }
}

fn read_all(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| match path.is_dir() {
        true => read_all(&path),
        false => fs::read_to_string(path).unwrap(),
    };
    entries.map(read).collect()
}

/// Runs the command of `docs/troubleshooting.md` that lists the holders.
#[tokio::test]
async fn the_documented_command_lists_only_current_holders() {
    let page = include_str!("../../docs/troubleshooting.md");
    let line = page.lines().find(|line| line.contains("permits' $(date")).expect("the line");
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let builder = || client.semaphore("jobs").limit(2);
    // Each acquire removes expired leases, so the permit that expires is acquired last.
    let held = builder().build().unwrap().acquire().await.unwrap();
    let ended = builder().auto_refresh(false).lease(Duration::from_millis(500)).build().unwrap();
    let ended = ended.acquire().await.unwrap();
    in_time("its end", ended.lost()).await;
    let mut redis = server.connect();
    let mut list = |now: &str| -> Vec<String> {
        let line = line.replace("{name}", "{jobs}").replace("$(date +%s%3N)", now);
        let words: Vec<_> = line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        redis::cmd(words[1]).arg(&words[2..]).query(&mut redis).unwrap()
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
    // The lease expires on the server's clock a moment after its holder's deadline.
    let listed = eventually("one ID and its end", async || list(&now()), |l| l.len() == 2).await;
    assert_eq!(listed[0], held.id());
    assert_eq!(list("-inf").len(), 6, "the expired lease and the member `*` are still there");
}
