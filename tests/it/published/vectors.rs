//! Runs the vectors, with the scripts and with the functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use redis::Connection;
use redis_semaphore::ScriptRegistry;
use serde_json::Value as Json;

use super::expectation::{Found, Variables};
use test_support::head::{Head, folder};
use test_support::listener::Listener;
use test_support::scripts::{KEYS, Scripts, keys_of};
use test_support::server::{Server, unique_name};

#[derive(Clone, Copy)]
enum Calls {
    Scripts,
    Functions,
}

/// For each script, the errors and the reply cases that occurred in the vectors.
type Seen = BTreeSet<String>;

struct Case<'a> {
    server: &'a Server,
    calls: Calls,
    scripts: Scripts,
    variables: Variables,
    listener: Option<Listener>,
    seen: &'a mut Seen,
}

impl<'a> Case<'a> {
    fn new(server: &'a Server, calls: Calls, seen: &'a mut Seen) -> Self {
        let name = unique_name();
        let mut texts: HashMap<_, _> =
            KEYS.map(str::to_owned).into_iter().zip(keys_of(&name)).collect();
        texts.insert("channel".to_owned(), format!("sem:wake:{name}"));
        texts.insert("sharded".to_owned(), format!("sem:{{{name}}}:wake:{name}"));
        let scripts = Scripts::new(server.connect(), &name);
        texts.insert("name".to_owned(), name);
        let (variables, listener) = (Variables::new(texts), None);
        Self { server, calls, scripts, variables, listener, seen }
    }

    /// Replaces "@" in each string with the name of the semaphore.
    fn with_its_name(&self, case: &Json) -> Json {
        let name = self.variables.text(&serde_json::json!({ "is": "name" }));
        serde_json::from_str(&case.to_string().replace('@', &name)).unwrap()
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.scripts.connection
    }

    fn texts(&self, list: &Json) -> Vec<String> {
        list.as_array().unwrap().iter().map(|part| self.variables.text(part)).collect()
    }

    fn key(&self, name: &str) -> String {
        self.scripts.all_keys[KEYS.iter().position(|key| *key == name).unwrap()].clone()
    }

    fn run(&mut self, step: &Json) -> Result<(), String> {
        match step.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>() {
            has if has.contains(&"call") => self.call(step),
            has if has.contains(&"command") => self.command(step),
            has if has.contains(&"listen") => self.listen(step),
            has if has == ["keys"] => self.keys(step),
            has if has == ["expires"] => self.expires(step),
            has if has == ["until"] => self.until(step),
            has if has == ["message"] => self.message(step),
            has => panic!("no step has {has:?}"),
        }
    }

    fn call(&mut self, step: &Json) -> Result<(), String> {
        let (script, arguments) = (step["call"].as_str().unwrap(), self.texts(&step["args"]));
        let keys = match step["with_keys"].as_array() {
            Some(names) => names.iter().map(|name| self.key(name.as_str().unwrap())).collect(),
            None => self.scripts.keys.clone(),
        };
        let response = match self.calls {
            Calls::Scripts => self.scripts.call_with(script, &keys, &arguments),
            Calls::Functions => {
                let mut call = redis::cmd("FCALL");
                call.arg(format!("sem_{script}")).arg(keys.len()).arg(keys).arg(&arguments);
                call.query(self.connection())
            }
        };
        match (response, step["error"].as_str()) {
            (Err(error), Some(expected)) => {
                let said =
                    format!("{} {}", error.code().unwrap_or(""), error.detail().unwrap_or(""));
                self.seen.insert(format!("{script} {}", error.code().unwrap_or("")));
                said.starts_with(expected).then_some(()).ok_or(said)
            }
            (Ok(reply), None) => {
                let found = Found::from(reply);
                self.saw(script, &found);
                self.variables.check(&step["reply"], &found)
            }
            (response, _) => Err(format!("{response:?}")),
        }
    }

    /// Records which reply cases of the script's header occur in this reply.
    fn saw(&mut self, script: &str, reply: &Found) {
        let Found::List(parts) = reply else { return };
        let integer = |part: &Found| if let Found::Integer(n) = part { *n } else { -1 };
        let integers: Vec<_> = parts.iter().map(integer).collect();
        let head = if script == "acquire" { 3 } else { 2 };
        let (Some(wake_in), Some(responses)) = (integers.get(1), integers.get(head..)) else {
            return;
        };
        let wake_in = if *wake_in > 0 { "ms".to_owned() } else { wake_in.to_string() };
        self.seen.insert(format!("{script} wake_in {wake_in}"));
        let size = if script == "acquire" { 3 } else { 1 };
        for response in responses.iter().step_by(size) {
            self.seen.insert(format!("{script} {response}"));
            if *response > 3 {
                self.seen.insert(format!("{script} expires_at"));
            }
        }
    }

    fn command(&mut self, step: &Json) -> Result<(), String> {
        let ids = self.texts(&step["command"]);
        let mut command = redis::cmd(&ids[0]);
        let reply: redis::Value = command.arg(&ids[1..]).query(self.connection()).unwrap();
        match step.get("reply") {
            Some(expected) => self.variables.check(expected, &Found::from(reply)),
            None => Ok(()),
        }
    }

    fn keys(&mut self, step: &Json) -> Result<(), String> {
        for (name, expected) in step["keys"].as_object().unwrap() {
            let read = match name.as_str() {
                "state" => ["HGETALL"].as_slice(),
                _ => &["ZRANGE", "0", "-1", "WITHSCORES"],
            };
            let key = self.key(name);
            let mut command = redis::cmd(read[0]);
            command.arg(key).arg(&read[1..]);
            let pairs: Vec<(String, String)> = command.query(self.connection()).unwrap();
            let expected = expected.as_object().unwrap();
            if pairs.len() != expected.len() {
                return Err(format!("{name} holds {pairs:?}"));
            }
            for (member, value) in pairs {
                let found = Found::Text(value);
                let expected = expected.get(&member).ok_or(format!("{name} has {member}"))?;
                self.variables
                    .check(expected, &found)
                    .map_err(|e| format!("{name} {member}: {e}"))?;
            }
        }
        Ok(())
    }

    fn expires(&mut self, step: &Json) -> Result<(), String> {
        for (name, expected) in step["expires"].as_object().unwrap() {
            let key = self.key(name);
            let ms: i64 = redis::cmd("PTTL").arg(key).query(self.connection()).unwrap();
            let found = Found::Integer(ms);
            self.variables.check(expected, &found).map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    }

    fn until(&mut self, step: &Json) -> Result<(), String> {
        let time = self.variables.number(step["until"].as_str().unwrap());
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let (seconds, us): (i64, i64) = redis::cmd("TIME").query(self.connection()).unwrap();
            if seconds * 1000 + us / 1000 >= time {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("that time is too far ahead".to_owned());
            }
        }
    }

    fn listen(&mut self, step: &Json) -> Result<(), String> {
        let channel = self.variables.text(&serde_json::json!({ "is": step["listen"] }));
        let command = if step["sharded"] == true { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        self.listener = Some(Listener::subscribe(self.server.connect(), command, &channel));
        Ok(())
    }

    fn message(&mut self, step: &Json) -> Result<(), String> {
        let text = self.listener.as_mut().unwrap().message();
        let lines = text.split('\n').map(Found::words).collect();
        self.variables.check(&step["message"], &Found::List(lines))
    }
}

fn vectors() -> BTreeMap<String, Json> {
    let files =
        std::fs::read_dir(folder().join("vectors")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).unwrap())
    };
    files.map(read).collect()
}

/// Runs all cases. Returns the errors and the reply cases that occurred.
fn run(server: &Server, calls: Calls) -> Seen {
    let mut seen = Seen::new();
    for (file, content) in vectors() {
        for case in content["cases"].as_array().unwrap() {
            if case["needs"] == "7.0" && server.is_older_than_7() {
                continue;
            }
            let mut running = Case::new(server, calls, &mut seen);
            let case = running.with_its_name(case);
            for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
                let outcome = running.run(step);
                outcome.unwrap_or_else(|problem| {
                    panic!("{file}, {}, step {}: {step}: {problem}", case["name"], number + 1)
                });
            }
        }
    }
    seen
}

/// Returns every error and every reply case of each script.
fn all_cases() -> Seen {
    let mut all = Seen::new();
    for script in ScriptRegistry::embedded().scripts() {
        let (name, head) = (script.name(), Head::read(script.name()));
        all.extend(head.section("Errors").text.split(", ").map(|error| format!("{name} {error}")));
        for (case, text) in &head.section("Reply").parts {
            let first = case.split(' ').next().unwrap();
            if case == "wake_in" {
                let ms = text.starts_with("ms ").then_some("ms");
                all.extend(
                    ["0", "-1"].into_iter().chain(ms).map(|n| format!("{name} wake_in {n}")),
                );
            } else if first == "expires_at" || first.bytes().all(|byte| byte.is_ascii_digit()) {
                all.insert(format!("{name} {first}"));
            }
        }
    }
    all
}

#[test]
fn the_scripts_pass_the_vectors_which_cover_every_reply_and_error() {
    let server = Server::start();
    let seen = run(&server, Calls::Scripts);
    let missing: Vec<_> = all_cases().into_iter().filter(|case| !seen.contains(case)).collect();
    assert!(missing.is_empty(), "no vector has {missing:?}");
}

#[test]
fn the_functions_pass_the_vectors() {
    let server = Server::start();
    let library = std::fs::read_to_string(folder().join("functions.lua")).unwrap();
    let loaded =
        redis::cmd("FUNCTION").arg("LOAD").arg(library).query::<String>(&mut server.connect());
    if server.is_older_than_7() {
        assert!(loaded.unwrap_err().to_string().contains("unknown command"));
        return;
    }
    assert_eq!(loaded.unwrap(), "redis_semaphore");
    run(&server, Calls::Functions);
}
