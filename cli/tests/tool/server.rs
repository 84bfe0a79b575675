//! Tests of the server options, and of passwords, which are never printed.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::folder::Folder;

use crate::support::process::writer_of;
use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

const PASSWORD: &str = "geheim-4711";

fn server() -> Server {
    let server = Server::start_with(&["--appendonly", "yes"]);
    server.run(&format!("ACL SETUSER importer on >{PASSWORD} ~* &* +@all"));
    server.run("ACL SETUSER guest on nopass ~* &* +@all");
    server.run("ACL SETUSER default resetpass >another-one");
    server
}

/// Returns the command `doctor` with a user, and without a password.
fn doctor(server: &Server) -> Command {
    let mut command = tool(&["doctor", "--user", "importer"]);
    command.env("REDIS_URL", &server.url);
    command
}

#[track_caller]
fn is_silent(outcome: &Outcome, secret: &str) {
    assert!(!outcome.stdout.contains(secret) && !outcome.stderr.contains(secret), "{outcome:?}");
}

#[test]
fn a_password_in_an_argument_is_rejected_and_not_repeated() {
    for url in [
        format!("redis://importer:{PASSWORD}@127.0.0.1:1/"),
        format!("redis://127.0.0.1:1/,redis://:{PASSWORD}@127.0.0.1:2/"),
        format!("redis+unix:///socket?pass={PASSWORD}"),
        // This text cannot be parsed as a URL.
        format!("redis://:{PASSWORD}#,/@://@127.0.0.1:1/"),
        format!("redis://h:1/,redis://:a,{PASSWORD}@127.0.0.1:1/"),
        format!("other://:{PASSWORD}@127.0.0.1:1/"),
        // The CLI would reject the following forms even without the check for passwords.
        format!("redis://127.0.0.1:1/?password={PASSWORD}"),
        format!("redis://127.0.0.1:1/?p%61ss={PASSWORD}"),
        format!("unix:/socket?db=1&pass={PASSWORD}"),
        format!("unix:///:{PASSWORD}@/socket"),
        format!("unix://:{PASSWORD}@/socket"),
        // Text before the URL.
        format!(" redis://:{PASSWORD}@127.0.0.1:1/"),
        format!("\nredis://:{PASSWORD}@127.0.0.1:1/"),
        format!("\u{a0}redis://:{PASSWORD}@127.0.0.1:1/"),
        format!("redis://127.0.0.1:1/, redis://:{PASSWORD}@127.0.0.1:1/"),
        format!("'redis://:{PASSWORD}@127.0.0.1:1/'"),
        format!("\u{feff}unix:/socket?pass={PASSWORD}"),
    ] {
        let option = format!("--url={url}");
        for arguments in [
            &["--url", &url, "ls"][..],
            &[&option, "ls"],
            // The URL is in the place of a command, a name or another argument.
            &[&url, "ls"],
            &["ls", "jobs", &url],
            &["run", "jobs", &url, "true"],
            &["run", "jobs", &url, "--", "true"],
        ] {
            let outcome = Outcome::of(tool(arguments));
            outcome.fails(2, "an argument contains a URL with a password");
            outcome.fails(2, "put the URL of Redis into the environment variable REDIS_URL");
            is_silent(&outcome, PASSWORD);
        }
    }
}

/// The help appears in logs. A variable may contain a secret by mistake, for example the password
/// instead of the path of its file.
#[test]
fn the_help_shows_no_value_of_a_variable() {
    for arguments in [&["--help"][..], &["help"], &["run", "--help"], &["-h"]] {
        let help = Outcome::of(tool(arguments)).stdout;
        let mut command = tool(arguments);
        for name in help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next()) {
            command.env(name, PASSWORD);
        }
        let outcome = Outcome::of(command);
        assert!(outcome.stdout.contains("Usage: "), "{outcome:?}");
        is_silent(&outcome, PASSWORD);
    }
}

/// The user in a URL may be a password whose colon is missing.
#[test]
fn a_misplaced_url_with_a_user_is_rejected_and_not_repeated() {
    let help = Outcome::of(tool(&["--help"])).stdout;
    let variables = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    let variables: Vec<_> = variables.filter(|variable| *variable != "REDIS_URL").collect();
    assert!(variables.contains(&"REDIS_CLUSTER"), "{help}");
    let bare = format!("redis://{PASSWORD}@127.0.0.1:1/");
    for url in [&bare, &format!("redis://importer:{PASSWORD}@127.0.0.1:1/")] {
        for (variable, command) in variables.iter().flat_map(|it| [(it, "ls"), (it, "--help")]) {
            let mut command = tool(&[command]);
            command.env(variable, url);
            let outcome = Outcome::of(command);
            outcome.fails(2, &format!("{variable}: it contains a URL with a user or a password"));
            is_silent(&outcome, PASSWORD);
        }
    }
    for arguments in [
        &["ls", "--response-timeout", &bare][..],
        &["ls", &format!("--cluster={bare}")],
        &["ls", &format!("--{bare}")],
        &["ls", "--tls-ca", &bare],
        &["ls", "--password-file", &bare],
        &["ls", "jobs", &bare],
        &["run", "jobs", "--limit", &bare, "--", "true"],
        &[&bare],
    ] {
        let outcome = Outcome::of(tool(arguments));
        outcome.fails(2, "[a URL with a user or a password]");
        is_silent(&outcome, PASSWORD);
    }
}

#[test]
fn a_user_name_or_command_argument_is_not_mistaken_for_a_password() {
    let server = Server::start();
    let nodes = format!("redis://importer@127.0.0.1:{0}/,{1}", server.port, server.url);
    // If `importer` were considered a password, the CLI would reject the URL with another error.
    let outcome = Outcome::of(tool(&["--url", &nodes, "--user", "importer", "ls"]));
    outcome.fails(69, "importer");
    let url = format!("redis://:{PASSWORD}@127.0.0.1:1/");
    let run = server.tool(&["run", "jobs", "--limit", "1", "--", "echo", &url]);
    assert_eq!((run.status, run.stdout.trim_end()), (Some(0), &*url), "{run:?}");
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let server = server();
    let file = std::env::temp_dir().join(format!("password-{}", uuid::Uuid::new_v4()));
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let mut by_file = doctor(&server);
    by_file.arg("--password-file").arg(&file);
    let mut by_environment = doctor(&server);
    by_environment.env("REDIS_PASSWORD", PASSWORD);
    let mut by_url = tool(&["doctor"]);
    by_url.env("REDIS_URL", server.url_of("importer", PASSWORD));
    for command in [by_file, by_environment, by_url] {
        let outcome = Outcome::of(command);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        is_silent(&outcome, PASSWORD);
    }
    std::fs::remove_file(&file).unwrap();
    let mut lacking = doctor(&server);
    lacking.arg("--password-file").arg(&file);
    Outcome::of(lacking).fails(2, "--password-file: ");
}

/// `load` connects both for its semaphores and for the server's statistics.
#[test]
fn user_and_password_may_come_from_different_sources() {
    let server = server();
    let mut load = tool(&["load", "--duration", "100ms", "--hold", "0s", "--json"]);
    load.env("REDIS_URL", format!("redis://importer@127.0.0.1:{}/", server.port));
    let measured = Outcome::of({
        load.env("REDIS_PASSWORD", PASSWORD);
        load
    });
    assert_eq!(measured.status, Some(0), "{measured:?}");
    assert!(!measured.stderr.contains("no statistics from the server"), "{measured:?}");

    let mut of_url = tool(&["ls", "--user", "importer"]);
    of_url.env("REDIS_URL", format!("redis://:{PASSWORD}@127.0.0.1:{}/", server.port));
    assert_eq!(Outcome::of(of_url).status, Some(0));
    // Two equal values are allowed.
    let mut twice = tool(&["ls", "--user", "importer"]);
    twice.env("REDIS_URL", server.url_of("importer", PASSWORD)).env("REDIS_PASSWORD", PASSWORD);
    assert_eq!(Outcome::of(twice).status, Some(0));
}

#[test]
fn contradictory_users_or_passwords_are_rejected() {
    let server = Server::start();
    let folder = Folder::create();
    let file = folder.join("password");
    std::fs::write(&file, PASSWORD).unwrap();
    let ls = |url: &str, arguments: &[&str], password: Option<&str>| {
        let mut command = tool(&[&["ls"], arguments].concat());
        command.env("REDIS_URL", url).envs(password.map(|password| ("REDIS_PASSWORD", password)));
        Outcome::of(command)
    };
    let (both, by_file) = (server.url_of("importer", PASSWORD), file.to_str().unwrap());
    let refused = ls(&both, &["--user", "another"], None);
    refused.fails(2, "--user (REDIS_USER) and the URL name different users");
    let refused = ls(&both, &[], Some("another-0815"));
    refused.fails(2, "the password in the URL differs from --password-file or REDIS_PASSWORD");
    is_silent(&refused, PASSWORD);
    is_silent(&refused, "another-0815");
    let refused = ls(&server.url, &["--password-file", by_file], Some("another-0815"));
    refused.fails(2, "--password-file and REDIS_PASSWORD have different passwords");
    is_silent(&refused, PASSWORD);
    let two = format!("{both},{}", server.url);
    ls(&two, &["--sentinel", "jobs"], None)
        .fails(2, "the URLs of all sentinels must have the same user");
}

/// The input of `--password-file <(vault read ...)` is a pipe, which can be read only once.
#[test]
fn a_password_file_may_be_a_pipe_that_can_be_read_only_once() {
    let server = server();
    for (command, file) in [("ls", "/dev/stdin"), ("ls", "/dev/fd/0"), ("doctor", "/dev/stdin")] {
        let mut command = doctor_or(command, &server, file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{PASSWORD}").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    // The worker processes get the password, too.
    let folder = Folder::create();
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut load = tool(&["load", "--duration", "100ms", "--hold", "0s", "--user", "importer"]);
    load.env("REDIS_URL", &server.url).arg("--password-file").arg(&fifo);
    let loading = std::thread::spawn(|| Outcome::of(load));
    std::fs::write(&fifo, PASSWORD).unwrap();
    let loaded = loading.join().unwrap();
    assert_eq!(loaded.status, Some(0), "{loaded:?}");
}

fn doctor_or(command: &str, server: &Server, file: &str) -> Command {
    let mut command = tool(&[command, "--user", "importer", "--password-file", file]);
    command.env("REDIS_URL", &server.url);
    command
}

#[test]
fn errors_for_unusable_password_files_give_the_reason() {
    let folder = Folder::create();
    let file = folder.join("password");
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let ls = |option: &str, file: &Path| {
        let mut command = tool(&["ls", "--url", "redis://importer@127.0.0.1:1/", option]);
        command.arg(file);
        Outcome::of(command)
    };
    for (content, words) in [
        (&b""[..], "it is empty: write the password into it"),
        (b"\n", "it is empty: write the password into it"),
        (b"\xef\xbb\xbfgeheim", "it begins with a byte-order mark"),
        (b"\xff\xfeg\0e\0", "it is UTF-16: save it as UTF-8"),
        (b"gehe\xffim", "it is not UTF-8"),
        (b"geheim\nand more\n", "it has more than one line"),
        (b"geheim\r\nand more", "it has more than one line"),
        (b"gehe\0im", "it contains a control character"),
        (&[b'x'; (1 << 20) + 1], "it is larger than 1 MiB"),
    ] {
        std::fs::write(&file, content).unwrap();
        let outcome = ls("--password-file", &file);
        outcome.fails(2, "--password-file: ");
        outcome.fails(2, words);
        assert!(!outcome.stderr.contains("gehe"), "{outcome:?}");
    }
    ls("--password-file", &folder.0).fails(2, "Is a directory");
    ls("--password-file", Path::new("/dev/zero")).fails(2, "it is larger than 1 MiB");
    // No process writes to this FIFO.
    let unwritten = "it is a FIFO, and no process has written to it and closed it";
    ls("--password-file", &fifo).fails(2, unwritten);
    ls("--tls-ca", &fifo).fails(2, unwritten);
    let mut command = tool(&["ls", "--url", "redis://importer@127.0.0.1:1/"]);
    command.env("REDIS_PASSWORD", OsStr::from_bytes(b"gehe\xffim"));
    Outcome::of(command).fails(2, "REDIS_PASSWORD: it is not UTF-8");
}

#[test]
fn a_signal_ends_a_command_that_waits_for_its_password() {
    let folder = Folder::create();
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for command in [&["run", "jobs", "--", "true"][..], &["exporter", "--listen", "127.0.0.1:0"]] {
        for option in ["--password-file", "--tls-ca"] {
            let mut waiting = tool(&["--url", "redis://importer@127.0.0.1:1/", option]);
            let mut waiting = waiting.arg(&fifo).args(command).spawn().unwrap();
            let _writer = writer_of(&fifo);
            kill(Pid::from_raw(waiting.id() as i32), Signal::SIGTERM).unwrap();
            let ended = waiting.wait().unwrap();
            assert_eq!(ended.signal(), Some(Signal::SIGTERM as i32), "{command:?} {option}");
        }
    }
}

/// If the parameter were ignored, the CLI would use database 0, which has other semaphores.
#[test]
fn a_db_parameter_in_any_url_is_rejected() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/?protocol=resp3&db=3", server.port);
    let several = format!("{},{url}", server.url);
    for given in [&url, &several] {
        Outcome::of(tool(&["--url", given, "ls"])).fails(2, "\"db\" after \"?\" is not supported");
    }
}

#[test]
fn a_wrong_password_is_not_shown() {
    let server = server();
    let mut command = doctor(&server);
    command.env("REDIS_PASSWORD", "wrong-0815");
    let outcome = Outcome::of(command);
    outcome.fails(69, "WRONGPASS");
    outcome.fails(69, "rejects the user \"importer\" with this password");
    is_silent(&outcome, "wrong-0815");
    let outcome = server.tool_as("importer", "wrong-0815", &["ls"]);
    outcome.fails(69, "WRONGPASS");
    is_silent(&outcome, "wrong-0815");
    server.tool(&["ls"]).fails(69, "NOAUTH");
    let needed = "rejects the user \"importer\" without a password";
    Outcome::of(doctor(&server)).fails(69, needed);
    // A user may have no password.
    let mut command = tool(&["ls", "--user", "guest"]);
    command.env("REDIS_URL", &server.url);
    assert_eq!(Outcome::of(command).status, Some(0));
}

#[tokio::test]
async fn a_cluster_requires_the_cluster_option() {
    let server = Server::start_cluster();
    let version: String = redis::cmd("INFO").arg("server").query(&mut server.connect()).unwrap();
    if version.contains("redis_version:6.") {
        return;
    }
    server.tool(&["ls"]).fails(69, "the server is a cluster node");
    let change = server.tool(&["--cluster", "limit", "jobs", "3"]);
    assert_eq!(
        &*change.stdout,
        "jobs: limit changed from none to 3 (runtime limit; declared: none)\n"
    );
    let list = server.tool(&["ls", "--cluster"]);
    assert_eq!(list.status, Some(0), "{list:?}");
    assert!(list.stdout.contains("\njobs  0/3"), "{list:?}");
}

/// Some scripts set an unused variable to an empty text.
#[test]
fn empty_environment_variables_except_redis_url_count_as_unset() {
    let server = Server::start();
    let mut command = tool(&["ls"]);
    for name in ["CLUSTER", "SENTINEL", "USER", "PASSWORD", "PASSWORD_FILE", "SEMAPHORE_PREFIX"] {
        command.env(format!("REDIS_{name}"), "");
    }
    command.env("REDIS_URL", &server.url);
    let listed = Outcome::of(command);
    assert_eq!(listed.status, Some(0), "{listed:?}");
    let mut command = tool(&["ls"]);
    Outcome::of({
        command.env("REDIS_URL", "");
        command
    })
    .fails(2, "(REDIS_URL): it is empty");
}

#[test]
fn the_variable_redis_cluster_accepts_several_boolean_values() {
    let server = Server::start();
    let ls = |value, arguments: &[&str]| {
        let mut command = tool(&[&["ls"], arguments].concat());
        command.env("REDIS_URL", &server.url).env("REDIS_CLUSTER", value);
        Outcome::of(command)
    };
    for no in ["0", "no", "false", "off"] {
        assert_eq!(ls(no, &[]).status, Some(0), "{no}");
        // With these arguments, the CLI expects a sentinel, but the server is no sentinel.
        ls(no, &["--sentinel", "jobs"]).fails(69, "");
    }
    for yes in ["1", "yes", "true"] {
        ls(yes, &[]).fails(69, "cluster");
        ls(yes, &["--sentinel", "jobs"]).fails(2, "--cluster and --sentinel exclude each other");
    }
}

#[test]
fn a_file_argument_need_not_be_utf_8() {
    let mut command = tool(&["ls", "--url", "redis://127.0.0.1:1/", "--password-file"]);
    command.arg(OsStr::from_bytes(b"/nowhere/\xff"));
    Outcome::of(command).fails(2, "--password-file: ");
}
