//! The command `top`, tested by what the terminal shows.

mod leaving;
mod pane;
mod support;

use std::fs;
use std::time::Duration;

use redis_semaphore::redis::cmd;
use redis_semaphore::{Group, Permit, Semaphore, SemaphoreClient};
use test_support::cluster::Cluster;
use test_support::folder::Folder;
use unicode_width::UnicodeWidthStr;

use self::pane::Pane;
use self::support::{queue, top, watch};
use crate::strangers::{NAMES, STEERING, must_not_steer};
use crate::support::server::Server;
use crate::support::tool::TOOL;

const WORD_OF_ONE_GONE: &str = "P:gone-1.1.x:1:30000:0123456789abcdef";

/// Creates three semaphores: `emails` is free, `jobs` is full and has a queue, and one permit of
/// `uploads` is held.
async fn three(server: &Server) -> (Semaphore, Vec<Permit>) {
    let client = server.semaphores().await;
    let semaphore = |name, limit| client.semaphore(name).limit(limit).build().unwrap();
    semaphore("emails", 1).acquire().await.unwrap().release().await.unwrap();
    let uploads = semaphore("uploads", 10).acquire().await.unwrap();
    let jobs = semaphore("jobs", 3);
    let permits = vec![jobs.acquire_many(3).await.unwrap(), uploads];
    queue(&jobs, Duration::ZERO).await;
    queue(&jobs, Duration::from_secs(3600)).await;
    (jobs, permits)
}

/// Returns the words of a line, without bars and histories.
fn words(text: &str, line: usize) -> Vec<&str> {
    let words = text.lines().nth(line).unwrap_or_default().split_whitespace();
    words.filter(|word| word.contains(char::is_alphanumeric)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_is_sorted_by_any_column() {
    let server = Server::start();
    let (_jobs, _permits) = three(&server).await;
    let pane = watch(&server);
    let text = pane.wait_for("three rows", |text| text.contains("3/3") && text.contains("1/10"));
    assert!(text.contains("3 semaphores under prefix sem, every 100ms"), "{text}");
    assert_eq!(words(&text, 2), ["emails", "0/1", "0"], "{text}");
    assert_eq!(words(&text, 3)[..3], ["jobs", "3/3", "2"], "{text}");
    // A head start does not increase the reported wait.
    assert!(words(&text, 3)[3].ends_with('s'), "{text}");
    assert_eq!(words(&text, 4), ["uploads", "1/10", "0"], "{text}");
    for (key, first, last) in [
        ("1", "uploads", "emails"),
        ("1", "emails", "uploads"),
        ("2", "jobs", "emails"),
        ("2", "emails", "jobs"),
        ("3", "jobs", "uploads"),
        ("3", "emails", "jobs"),
        ("4", "jobs", "uploads"),
        ("4", "emails", "jobs"),
    ] {
        pane.press(&[key]);
        pane.wait_for(&format!("order after {key}"), |text| {
            words(text, 2).first() == Some(&first) && words(text, 4).first() == Some(&last)
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_new_semaphores_only_if_they_match_the_pattern() {
    let server = Server::start();
    let (_jobs, _permits) = three(&server).await;
    let pane = pane::Pane::start(&format!("{} '*s-?'", top(&server)));
    pane.wait_for_text("No semaphore matching *s-? exists under the prefix sem.");
    let client = server.semaphores().await;
    let late = client.semaphore("jobs-2").limit(5).build().unwrap();
    let permit = late.acquire_many(2).await.unwrap();
    let text = pane.wait_for_text("2/5");
    assert!(text.contains("1 semaphore matching *s-?") && !text.contains("emails"), "{text}");
    permit.release().await.unwrap();
    pane.wait_for_text("0/5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opened_semaphore_shows_its_holder_and_waiters() {
    let server = Server::start();
    let (_jobs, _permits) = three(&server).await;
    queue_one_that_is_gone(&server);
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    pane.press(&["Down", "Enter"]);
    let text = pane.wait_for("holder and waiters", |text| words(text, 8).len() > 3);
    assert!(words(&text, 1).join(" ").starts_with("jobs: held 3, limit 3, queued 3"), "{text}");
    let holder = words(&text, 4);
    assert_eq!(holder[..2], ["web-1", "3"], "{text}");
    assert!(holder[2].ends_with('s') && holder[3].contains(":30000:"), "{text}");
    // A later request with a head start is ahead of the first request in the queue.
    assert_eq!(words(&text, 6)[..2], ["web-1", "1"], "{text}");
    assert!(words(&text, 6)[2].ends_with('s'), "{text}");
    let process = |line| {
        let words = words(&text, line);
        words[words.len() - 3..words.len() - 1].to_vec()
    };
    assert_eq!(process(6), ["1", "alive"], "{text}");
    assert_eq!(process(7), ["2", "dead"], "{text}");
    assert_eq!(process(8), ["3", "alive"], "{text}");
    pane.press(&["Escape"]);
    pane.wait_for_text("HELD/LIMIT");
}

/// Queues a request that is a minute old and belongs to a process without heartbeats.
fn queue_one_that_is_gone(server: &Server) {
    let mut connection = server.connect();
    let (seconds, micros): (u64, u64) = cmd("TIME").query(&mut connection).unwrap();
    let ticket = (seconds - 60) * 1_000_000 + micros;
    let mut add = cmd("ZADD");
    add.arg("sem:{jobs}:queue").arg(ticket).arg(WORD_OF_ONE_GONE).exec(&mut connection).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_set_and_cleared() {
    let server = Server::start();
    let (jobs, _permits) = three(&server).await;
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    pane.press(&["Down", "l"]);
    pane.wait_for_text("Effective limit: 3. Declared: 3. Runtime: none.");
    pane.press(&["-", "7", "Enter"]);
    pane.wait_for_text("New limit: -7_ (must be a number from 0 to 4294967295, or c)");
    pane.press(&["BSpace", "BSpace", "7", "1", "BSpace"]);
    pane.wait_for_text("New limit: 7_");
    pane.press(&["Escape"]);
    pane.wait_for("end of the dialogue", |text| !text.contains("New limit"));
    assert_eq!(jobs.limit().await.unwrap(), 3);
    pane.press(&["l", "4", "Enter"]);
    pane.wait_for_text("jobs: the limit is now 4");
    // One of the waiters got a permit.
    pane.wait_for_text("4/4");
    assert_eq!(jobs.inspect().await.unwrap().runtime_limit, Some(4));
    pane.press(&["l", "c", "Enter"]);
    pane.wait_for_text("jobs: the runtime limit was cleared.");
    pane.wait_for_text("4/3");
    assert_eq!(jobs.inspect().await.unwrap().runtime_limit, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_revokes_only_after_confirmation() {
    let server = Server::start();
    let (jobs, permits) = three(&server).await;
    queue_one_that_is_gone(&server);
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    pane.press(&["Down", "Enter"]);
    pane.wait_for_text("gone-1");
    pane.press(&["r"]);
    let text = pane.wait_for_text("y: revoke");
    assert!(text.contains("up to 10s") && text.contains("up to 30s"), "{text}");
    assert!(text.contains(permits[0].id()), "{text}");
    pane.press(&["n"]);
    pane.wait_for("end of the dialogue", |text| !text.contains("y: revoke"));
    permits[0].refresh().await.unwrap();

    // These keys select the request of the dead process, which is the second in the queue.
    pane.press(&["Down", "Down", "r"]);
    pane.wait_for_text("The request leaves the queue");
    pane.press(&["y"]);
    pane.wait_for_text("The request was removed from the queue");
    pane.wait_for("its end", |text| !text.contains("gone"));
    assert_eq!(jobs.inspect().await.unwrap().queued, 2);

    pane.press(&["Home", "r"]);
    pane.wait_for_text("finds out at its next refresh");
    pane.press(&["y"]);
    pane.wait_for_text("The permit was revoked. A holder that refreshes it finds out within 10s");
    permits[0].lost().await;
    pane.wait_for_text("held 2, limit 3, queued 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_values_stay_on_the_screen_during_an_outage() {
    let mut server = Server::start();
    let (jobs, permits) = three(&server).await;
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    server.kill();
    let text = pane.wait_for_text("Redis is unavailable; last update at 20");
    assert!(text.contains("3/3") && text.contains(" UTC:"), "{text}");
    drop((jobs, permits));
    server.start_again();
    let client = server.semaphores().await;
    let later = client.semaphore("later").limit(2).build().unwrap();
    let _permit = later.acquire().await.unwrap();
    pane.wait_for("the new values", |text| {
        text.contains("1/2") && !text.contains("Redis is unavailable")
    });
}

/// The semaphores of other nodes are still updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_an_unreachable_cluster_node_stay_and_are_marked() {
    let mut cluster = Cluster::form(3, false, &["--cluster-require-full-coverage", "no"]);
    let names = [0, 1].map(|node| cluster.name_at(node));
    let urls: Vec<String> = cluster.nodes.iter().map(|node| node.admin_url()).collect();
    let client = SemaphoreClient::builder().connect_cluster(urls.clone()).await.unwrap();
    let [here, there] = names.map(|name| client.semaphore(name).limit(1).build().unwrap());
    let _held = (here.acquire().await.unwrap(), there.acquire().await.unwrap());
    let urls = urls.join(",");
    let pane = Pane::start(&format!("{TOOL} --cluster --url {urls} top --every 100ms"));
    pane.wait_for("both semaphores", |text| text.matches("1/1").count() == 2);
    cluster.nodes[1].kill();
    let marked = |text: &str| {
        text.contains("No reply for 1 semaphore, marked with") && text.contains("1/1 ?")
    };
    pane.wait_for("the mark", marked);
    here.set_limit(4).await.unwrap();
    pane.wait_for("the new limit", |text| marked(text) && text.contains("1/4 "));
    cluster.nodes[1].start_again();
    pane.wait_for("a list without marks", |text| !text.contains("No reply for"));
}

/// A terminal may send Esc and a letter as one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_with_alt_or_control_cancel_the_revoke_dialogue() {
    let server = Server::start();
    let (_jobs, permits) = three(&server).await;
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    pane.press(&["Down", "Enter"]);
    pane.wait_for_text("HOLDERS");
    for key in ["M-y", "C-y", "C-z"] {
        pane.press(&["r"]);
        pane.wait_for_text("y: revoke");
        pane.press(&[key]);
        pane.wait_for("the end of the dialogue", |text| !text.contains("y: revoke"));
    }
    permits[0].refresh().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_list_of_names_is_not_reported_as_an_outage() {
    let server = Server::start();
    let (jobs, _permits) = three(&server).await;
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    server.run("ACL SETUSER default -scan");
    let refused =
        |text: &str| text.contains("No new list of names since 20") && text.contains("+scan");
    pane.wait_for("the rejected list", refused);
    // The known semaphores are still updated.
    jobs.set_limit(4).await.unwrap();
    pane.wait_for("the rejected list", |text| refused(text) && text.contains("4/4"));
    server.run("ACL SETUSER default +scan");
    pane.wait_for("a new list", |text| !text.contains("No new list"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_draws_bars_and_histories_in_color_unless_no_color_is_set() {
    let server = Server::start();
    let (jobs, _permits) = three(&server).await;
    let has_colors = |pane: &Pane| {
        let codes = pane.text_with_codes();
        ["38;5;2m", "38;5;3m", "38;5;1m"].map(|code| codes.contains(code))
    };
    let pane = watch(&server);
    let is_drawn = |text: &str| {
        let line = |line: usize| text.lines().nth(line).unwrap_or_default();
        line(1).matches("LAST 5m").count() == 2
            && line(2).contains(" ······ 0/1         ")
            && line(3).contains(" ██████ 3/3         ")
            && line(4).contains(" ▌····· 1/10        ")
            && line(2).matches('▁').count() >= 2
            && line(3).contains("█ 2 ")
            && line(4).contains("▂ 0 ")
    };
    pane.wait_for("bars and histories", is_drawn);
    assert_eq!(has_colors(&pane), [true, true, false]);
    jobs.set_limit(2).await.unwrap();
    pane.wait_for_text(" █████+ 3/2 ");
    assert_eq!(has_colors(&pane), [true, false, true]);
    jobs.set_limit(0).await.unwrap();
    pane.wait_for_text(" paused 3/0 ");
    pane.press(&["Down", "Enter"]);
    pane.wait_for("history of one", |text| {
        let line = text.lines().nth(2).unwrap_or_default();
        line.starts_with("paused  held ")
            && line.contains("█  queued ")
            && line.ends_with(" last 5m")
    });

    let plain = Pane::start(&format!("NO_COLOR=1 {}", top(&server)));
    plain.wait_for_text(" ▌····· 1/10 ");
    assert_eq!(has_colors(&plain), [false; 3]);
    let dumb = Pane::start(&format!("TERM=dumb {}; echo status $?", top(&server)));
    let text = dumb.wait_for_text("status 2");
    assert!(text.contains("top cannot draw in this terminal"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_from_other_clients_does_not_control_the_terminal() {
    let server = Server::start();
    let client = server.semaphores().await;
    for name in NAMES {
        client.semaphore(name).limit(1).build().unwrap().set_limit(1).await.unwrap();
    }
    let mut add = cmd("ZADD");
    let id = format!("P:{STEERING}:1:30000:0123456789abcdef");
    add.arg("sem:{a}:queue").arg("1").arg(id).exec(&mut server.connect()).unwrap();
    let folder = Folder::create();
    let pane = Pane::start(&format!("read begin; {}", top(&server)));
    let raw = folder.0.join("raw");
    pane.copy_output(&raw);
    pane.press(&["Enter"]);
    let are_known = |text: &str| text.matches(" ······ 0/1 ").count() == NAMES.len();
    let text = pane.wait_for("all semaphores", are_known);
    // Names in any writing system leave the columns aligned.
    let column = |line: &str| line.split(" ······ ").next().unwrap().width();
    let rows: Vec<_> = text.lines().skip(2).take(NAMES.len()).map(column).collect();
    assert!(rows.windows(2).all(|two| two[0] == two[1]), "{text}");
    pane.press(&["Home", "Enter"]);
    pane.wait_for("a waiter", |text| text.contains("WAITERS") && text.contains("\\u{9b}2J"));
    pane.press(&["r"]);
    pane.wait_for_text("Revoke at a");
    let raw = String::from_utf8(fs::read(raw).unwrap()).unwrap();
    assert!(raw.contains("WAITERS"), "{raw:?}");
    must_not_steer(&raw.replace('\x1b', ""));
    assert!(!raw.contains("\x1b]0;"), "{raw:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_adapts_to_the_size_of_the_terminal() {
    let server = Server::start();
    let (_jobs, _permits) = three(&server).await;
    let pane = watch(&server);
    pane.wait_for_text("3/3");
    for (width, height) in [(120, 40), (30, 8), (80, 24)] {
        pane.resize(width, height);
        pane.wait_for(&format!("keys at the end of {height} lines"), |text| {
            let lines: Vec<&str> = text.lines().collect();
            lines.len() == usize::from(height) && lines[lines.len() - 1].starts_with("↑↓ PgUp PgDn")
        });
        pane.wait_for_text("jobs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_g_shows_the_groups_of_an_open_semaphore() {
    let server = Server::start();
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(2).build().unwrap();
    let held = jobs.request().group(Group::new("tenant-5").share(5).cap(2)).weight(2);
    let held = held.acquire().await.unwrap();
    let _next = tokio::spawn(jobs.request().group(Group::new("tenant-2").share(2)).acquire());
    let pane = watch(&server);
    pane.wait_for("the queue", |text| text.contains("2/2") && words(text, 2).contains(&"1"));
    pane.press(&["Enter"]);
    pane.wait_for_text("HOLDERS");
    pane.press(&["g"]);
    let text = pane.wait_for("the groups", |text| text.contains("tenant-2"));
    assert!(text.contains("GROUP") && !text.contains("HOLDERS"), "{text}");
    let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
    assert_eq!(words(&text, line("tenant-5"))[..3], ["tenant-5", "2", "0"], "{text}");
    assert_eq!(words(&text, line("tenant-2"))[..3], ["tenant-2", "0", "1"], "{text}");
    // There is no permit to revoke.
    pane.press(&["r", "g"]);
    pane.wait_for_text("HOLDERS");
    drop(held);
}
