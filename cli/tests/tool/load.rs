//! `load` as its users start it: its arguments, results and exit status.

use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_semaphore::{Inspection, SemaphoreClient};
use serde_json::Value;
use test_support::observer::{Observer, eventually, in_time};
use test_support::scripts::keys_of;
use test_support::server::{connect, shared_admin_url, shared_url, unique_name};
use tokio::process::{Child, Command};

use crate::support::tool::TOOL;

fn start(url: &str, arguments: &str) -> Child {
    // The tests may have been started with SIGINT ignored, for example by `&` in a script.
    Command::new("env")
        .arg("--default-signal=INT")
        .arg(TOOL)
        .arg("load")
        .args(arguments.split_whitespace())
        .env("REDIS_URL", url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn end_of(load: Child) -> Output {
    in_time("the end of the load", load.wait_with_output()).await.unwrap()
}

async fn run(url: &str, arguments: &str) -> Output {
    end_of(start(url, arguments)).await
}

fn results(output: &Output, status: i32) -> Value {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

fn number(results: &Value, path: &str) -> f64 {
    let value = results.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {path} in {results}"))
}

/// Checks that nothing was measured, and that standard error contains the reason.
fn fails(output: &Output, status: i32, reason: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    assert!(errors.contains(reason), "{reason:?} is not in {errors:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(process as i32), signal).unwrap();
}

/// Returns the process ID of the first holder, from the holder's client name.
fn a_holder(now: &Inspection) -> u32 {
    now.holders[0].client_name().rsplit_once('.').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn a_load_of_two_processes_with_weights_has_consistent_results() {
    let name = unique_name();
    let arguments = "--json --duration 1s --processes 2 --tasks 7 --limit 4 --weight 2 --hold 2ms";
    // Statistics of the server require the right to run INFO.
    let output = run(&shared_admin_url(), &format!("{arguments} --name {name}")).await;
    let results = results(&output, 0);
    let number = |path| number(&results, path);

    let acquires = number("/acquires");
    assert_eq!(number("/elapsed_seconds"), 1.0);
    assert_eq!(number("/per_second"), acquires);
    // At most two permits of weight 2 are held at the same time, each for at least 2 ms.
    assert!((1.0..=1000.0).contains(&number("/ideal_per_second")), "{results}");
    assert!(number("/utilization") > 0.0 && number("/utilization") <= 1.0, "{results}");
    assert!(number("/wait_us/p50") <= number("/wait_us/p99"), "{results}");
    assert!(number("/wait_us/p99") <= number("/wait_us/max"), "{results}");
    assert!(number("/turns/min") * 7.0 <= acquires, "{results}");
    assert!(number("/turns/max") * 7.0 >= acquires, "{results}");
    assert!(number("/calls_per_acquire") > 0.0, "{results}");
    assert!(number("/server_us_per_acquire") > 0.0, "{results}");
    assert_eq!(number("/max_held"), 4.0);
    assert_eq!(number("/lost"), 0.0);
    assert_eq!(number("/tasks"), 7.0);
    assert_eq!(number("/hold_us"), 2000.0);
    assert_eq!((number("/lease_ms"), number("/duration_ms")), (10_000.0, 1000.0));

    Observer::new(&shared_url(), &name, 4).await.sees(0, 0).await;
}

/// `--name` without `--limit` does not change the limit for other processes.
#[tokio::test]
async fn a_load_without_a_limit_option_keeps_the_declared_limit() {
    let (url, name) = (shared_url(), unique_name());
    let arguments = format!("--json --duration 100ms --tasks 4 --name {name}");
    fails(&run(&url, &arguments).await, 2, "declare one with --limit N");
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let semaphore = client.semaphore(&name).limit(3).build().unwrap();
    drop(semaphore.acquire().await.unwrap());
    let results = results(&run(&url, &arguments).await, 0);
    assert_eq!(number(&results, "/limit"), 3.0);
    assert_eq!(semaphore.inspect().await.unwrap().declared_limit, Some(3));
    fails(&run(&url, &format!("{arguments} --weight 4")).await, 2, "exceeds the limit of 3");
}

#[tokio::test]
async fn a_load_that_holds_more_than_its_limit_exits_with_1() {
    let name = unique_name();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(&name).limit(2).build().unwrap();
    // The runtime limit overrides the limit that the load declares.
    semaphore.set_limit(6).await.unwrap();
    let arguments = "--json --duration 1s --processes 2 --tasks 8 --limit 2 --hold 20ms";
    let output = run(&shared_url(), &format!("{arguments} --name {name}")).await;
    semaphore.clear_limit().await.unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("the runtime limit 6 applies until"), "{notes}");
    let max_held = number(&results(&output, 1), "/max_held");
    assert!((3.0..=6.0).contains(&max_held), "{max_held}");
}

#[tokio::test]
async fn the_load_prints_results_to_stdout_and_progress_to_stderr() {
    let output = run(&shared_admin_url(), "--duration 2s --tasks 4").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("acquires "), "{table}");
    assert_eq!(table.lines().count(), 9, "{table}");
    let progress = String::from_utf8(output.stderr).unwrap();
    let (plan, progress) = progress.split_once('\n').unwrap();
    let reported = "measuring for 2s: --limit 10 --tasks 4 --processes 1 --hold 5ms ";
    assert!(plan.starts_with(reported), "{plan}");
    assert!(progress.lines().all(|line| line.ends_with(" waiting")), "{progress}");
    assert!(!progress.is_empty());
}

/// Returns the terminal output of a run in which more than the limit is held.
async fn too_many_in_a_terminal(environment: (&str, &str)) -> String {
    let name = unique_name();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    semaphore.set_limit(2).await.unwrap();
    let arguments = format!("load --duration 1s --limit 1 --tasks 2 --hold 20ms --name {name}");
    let load = Command::new("script")
        .args(["--quiet", "--return", "--command", &format!("$TOOL {arguments}"), "/dev/null"])
        .env("TOOL", TOOL)
        .env("REDIS_URL", shared_url())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env(environment.0, environment.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = end_of(load).await;
    semaphore.clear_limit().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn an_exceeded_limit_is_printed_in_red_in_a_terminal() {
    let shown = too_many_in_a_terminal(("COLUMNS", "80")).await;
    assert!(shown.contains("\nmost held at once  \x1b[31m2 of 1\x1b[0m\r\n"), "{shown}");
    assert!(shown.contains("\nlost permits       0\r\n"), "{shown}");
    let shown = too_many_in_a_terminal(("NO_COLOR", "1")).await;
    assert!(shown.contains("\nmost held at once  2 of 1\r\n"), "{shown}");
}

#[tokio::test]
async fn wrong_arguments_fail_with_exit_status_2() {
    let url = shared_url();
    for (arguments, reason) in [
        ("--limit 0", "must be a number from 1 to 4294967295"),
        ("--limit 2 --weight 3", "--weight 3 exceeds the limit of 2"),
        ("--tasks 1000001", "must be a number from 1 to 1000000"),
        ("--weight 0", "must be a number from 1 to 4294967295"),
        ("--processes 3 --tasks 2", "--tasks 2 is less than --processes 3"),
        ("--processes 0", "must be a number from 1 to 1000"),
        ("--lease 9ms", "lease: "),
        ("--duration 99ms", "must be 100ms or more"),
        ("--duration 8days", "must be 7days or less"),
        ("--hold soon", "invalid value 'soon' for '--hold <DURATION>'"),
        ("--url nowhere", "--url (REDIS_URL): "),
        ("--name {braces}", "no braces"),
        ("--haste", "unexpected argument '--haste'"),
    ] {
        fails(&run(&url, arguments).await, 2, reason);
    }
    fails(&run("", "").await, 2, "(REDIS_URL): it is empty");
}

#[tokio::test]
async fn an_unreachable_server_fails_with_exit_status_69() {
    let output = run("redis://127.0.0.1:1/", "").await;
    fails(&output, 69, "redis-semaphore: cannot connect to Redis at 127.0.0.1:1: ");
    assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
}

#[tokio::test]
async fn statistics_that_the_user_may_not_read_are_null() {
    let output = run(&shared_url(), "--json --duration 1s").await;
    let results = results(&output, 0);
    assert!(number(&results, "/acquires") > 0.0, "{results}");
    assert!(results["calls_per_acquire"].is_null(), "{results}");
    assert!(results["server_us_per_acquire"].is_null(), "{results}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no statistics from the server"), "{errors}");
}

/// Starts an observer and a load of two processes. The load runs much longer than the test.
async fn endless_load() -> (Child, Observer) {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 2).await;
    // The leases are so long that none expires during the test.
    let arguments = "--json --duration 600s --processes 2 --tasks 6 --limit 2 --lease 600s";
    let load = start(&shared_url(), &format!("{arguments} --hold 100ms --name {name}"));
    let first = observer.sees(2, 4).await;
    // When other requests hold the permits, the load has already recorded its first two permits.
    let is_first = |id: &String| first.holders.iter().any(|holder| holder.id == *id);
    let are_others = |now: &Inspection| {
        (now.held, now.queued) == (2, 4) && !now.holders.iter().any(|holder| is_first(&holder.id))
    };
    eventually("other holders", || observer.look(), are_others).await;
    (load, observer)
}

#[tokio::test]
async fn an_interrupted_load_prints_results_and_releases_permits_and_requests() {
    let (load, observer) = endless_load().await;
    signal(load.id().unwrap(), Signal::SIGINT);
    let results = results(&end_of(load).await, 0);
    assert!(number(&results, "/elapsed_seconds") < 600.0, "{results}");
    assert!(number(&results, "/acquires") >= 2.0, "{results}");
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn permits_and_requests_of_a_killed_load_are_released() {
    let (mut load, observer) = endless_load().await;
    load.kill().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_killed_worker_process_fails_the_load() {
    let (load, observer) = endless_load().await;
    signal(a_holder(&observer.look().await), Signal::SIGKILL);
    fails(&end_of(load).await, 69, "it ended unexpectedly (signal: 9");
}

#[tokio::test]
async fn a_lost_permit_is_counted_as_lost_and_not_as_held() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 1).await;
    let arguments = "--json --duration 600s --limit 1 --tasks 1 --hold 600s --lease 3s";
    let load = start(&shared_url(), &format!("{arguments} --name {name}"));
    let first = observer.sees(1, 0).await.holders[0].id.clone();
    // The next refresh will not find the permit.
    redis::cmd("DEL").arg(&keys_of(&name)[0]).exec(&mut connect(&shared_admin_url())).unwrap();
    let is_another = |now: &Inspection| now.holders.first().is_some_and(|next| next.id != first);
    eventually("another permit", || observer.look(), is_another).await;
    signal(load.id().unwrap(), Signal::SIGTERM);
    let results = results(&end_of(load).await, 0);
    assert!(number(&results, "/lost") >= 1.0, "{results}");
    assert_eq!(number(&results, "/max_held"), 1.0);
    assert!(results["ideal_per_second"].is_number(), "a lost hold must count as ended: {results}");
}

#[tokio::test]
async fn the_load_of_groups_reports_the_shares_that_they_reached() {
    let asked = "--json --duration 2s --processes 2 --tasks 30 --limit 2 --hold 1ms";
    let output = run(&shared_url(), &format!("{asked} --groups a=1,b=2,c=5:2")).await;
    let results = results(&output, 0);
    let groups = results["groups"].as_array().unwrap();
    let names: Vec<_> = groups.iter().map(|group| group["group"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let sum = |path: &str| groups.iter().map(|group| number(group, path)).sum::<f64>();
    assert_eq!(sum("/acquires"), number(&results, "/acquires"));
    assert!((sum("/part") - 1.0).abs() < 1e-9, "{results}");
    // 10 tasks of each group wait nearly always.
    let parts = |at: usize| number(&groups[at], "/part");
    assert!(parts(0) < parts(1) && parts(1) < parts(2), "{results}");
    assert_eq!((number(&groups[2], "/cap"), number(&groups[2], "/part_by_share")), (2.0, 0.625));
    assert!(number(&groups[0], "/wait_us/p50") > number(&groups[2], "/wait_us/p50"), "{results}");
}

#[tokio::test]
async fn invalid_groups_of_a_load_are_rejected() {
    let url = shared_url();
    for (groups, reason) in [
        ("a=0", "the share must be a number from 1 to 1000"),
        ("a=1:0", "the cap must be a number from 1"),
        ("a,b,c", "--tasks 2 is less than the number of --groups"),
        ("a!", "the name must be 1 to 64 of A-Z"),
        ("a,a", "the group a is there twice"),
        ("a=1:1", "the cap of a is below --weight 2"),
    ] {
        let asked = format!("--duration 1s --tasks 2 --weight 2 --groups {groups}");
        let output = run(&url, &asked).await;
        fails(&output, 2, reason);
    }
}
