//! Tests for several commands that neither their output nor their log contains a secret from an
//! option or a variable.

use test_support::folder::Folder;

use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};
use crate::support::unique_name;

const SECRET: &str = "Xq7Zw9";
/// The secret, as it is escaped in a URL.
const ENCODED: &str = "%58q7Zw9";

/// The server at `@PORT` accepts the secret as the password of `importer`. No server listens at
/// port 1.
const URLS: [&str; 12] = [
    "redis://importer:SECRET@127.0.0.1:@PORT/",
    "redis://importer:ENCODED@127.0.0.1:@PORT/",
    "redis://stranger:SECRET@127.0.0.1:@PORT/",
    "redis://:SECRET@127.0.0.1:@PORT/",
    "redis://:SECRET@127.0.0.1:1/,redis://:SECRET@127.0.0.1:1/",
    "rediss://:SECRET@127.0.0.1:@PORT/",
    "redis://:SECRET@127.0.0.1:1/#fragment",
    "redis://127.0.0.1:1/?password=SECRET",
    "unix:///nowhere.sock?user=importer&pass=SECRET",
    "unix:///:SECRET@/nowhere.sock",
    "redis+unix:/nowhere.sock?pass=ENCODED",
    "redis//:SECRET@127.0.0.1:1/",
];

const COMMANDS: [&[&str]; 5] = [
    &["ls", "--json"],
    &["doctor", "--json"],
    &["inspect", "NAME", "--json"],
    &["limit", "NAME", "3"],
    &["run", "NAME", "--limit", "1", "--timeout", "100ms", "--", "true"],
];

/// Options into which a user may write the password by mistake.
const MISPLACED: [&[&str]; 4] = [
    &["--user", "importer:SECRET"],
    &["--password-file", "SECRET"],
    &["--password-file=ab/SECRET"],
    &["--cacert", "SECRET"],
];

fn server() -> Server {
    let server = Server::start();
    server.run(&format!("ACL SETUSER importer on >{SECRET} ~* &* +@all"));
    server.run("ACL SETUSER default resetpass >another-one");
    server
}

/// Returns the output of each command, with its whole log.
fn outcomes(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<Outcome> {
    let name = unique_name();
    let outcome = |command: &&[&str]| {
        let words = command.iter().map(|word| if *word == "NAME" { &*name } else { word });
        let mut tool = tool(&words.collect::<Vec<_>>());
        // The options for the server precede the command of `run`.
        if command[0] == "run" {
            tool = self::tool(&[&["run"], arguments, &[&*name], &command[2..]].concat());
        } else {
            tool.args(arguments);
        }
        tool.env("RUST_LOG", "trace").envs(variables.iter().copied());
        Outcome::of(tool)
    };
    COMMANDS.iter().map(outcome).collect()
}

#[track_caller]
fn are_silent(outcomes: &[Outcome], written: &str) {
    for outcome in outcomes {
        for text in [&outcome.stdout, &outcome.stderr] {
            let shown = [SECRET, ENCODED].into_iter().find(|secret| text.contains(secret));
            assert_eq!(shown, None, "{written}: {outcome:?}");
        }
    }
}

#[test]
fn a_secret_in_a_url_does_not_appear_in_the_output() {
    let server = server();
    let mut served = 0;
    for url in URLS {
        let url = url.replace("SECRET", SECRET).replace("ENCODED", ENCODED);
        let url = url.replace("@PORT", &server.port.to_string());
        let by_variable = outcomes(&[], &[("REDIS_URL", &url)]);
        // `run` may not connect within its timeout on a busy machine.
        let [others @ .., _run] = &by_variable[..] else { panic!("no command") };
        served += others.iter().filter(|outcome| outcome.status == Some(0)).count();
        are_silent(&by_variable, &url);
        are_silent(&outcomes(&["--url", &url], &[]), &url);
    }
    // `ls` and `limit` succeed with both forms of the correct password.
    assert_eq!(served, 4);
}

#[test]
fn a_secret_from_a_file_or_variable_does_not_appear_in_the_output() {
    let server = server();
    let folder = Folder::create();
    for (number, content) in [
        SECRET.to_owned(),
        format!("{SECRET}\n"),
        format!("\u{feff}{SECRET}\n"),
        format!("{SECRET}\nsecond line {SECRET}\n"),
    ]
    .iter()
    .enumerate()
    {
        let file = folder.join(&number.to_string());
        std::fs::write(&file, content).unwrap();
        let options = ["--user", "importer", "--password-file", file.to_str().unwrap()];
        are_silent(&outcomes(&options, &[("REDIS_URL", &server.url)]), content);
    }
    for user in ["importer", "stranger"] {
        let variables = [("REDIS_URL", &*server.url), ("REDIS_PASSWORD", SECRET)];
        let outcomes = outcomes(&["--user", user], &variables);
        assert_eq!(outcomes[0].status == Some(0), user == "importer", "{outcomes:?}");
        are_silent(&outcomes, user);
    }
}

#[test]
fn a_secret_in_the_value_of_another_option_does_not_appear_in_the_output() {
    let server = server();
    for arguments in MISPLACED {
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument.replace("SECRET", SECRET)).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let outcomes = outcomes(&arguments, &[("REDIS_URL", &server.url)]);
        assert!(outcomes.iter().all(|outcome| outcome.status == Some(2)), "{outcomes:?}");
        are_silent(&outcomes, &arguments.join(" "));
    }
}
