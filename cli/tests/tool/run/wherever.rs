//! If the command must end, all processes that it has started end, too, wherever they are: in their
//! own process group (as under `timeout`), in their own session, or without their parent.

use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::geteuid;

use super::support::server::{await_held_and_queued, connect, held_and_queued, shared_url};
use super::support::tool::{Tool, children, is_alive, run};
use crate::support::tool::{TOOL, unaware};
use crate::support::{eventually, unique_name};

/// A process that prints its ID, and ends only with SIGKILL.
const FAR: &str = "trap '' TERM HUP INT; echo $$; while :; do sleep 0.02; done";

/// Scripts for `bash` that start the program `$FAR` outside the process group of the command.
const WAYS: [&str; 9] = [
    r#"timeout 100 sh -c "$FAR"; true"#,
    r#"setsid -w sh -c "$FAR"; true"#,
    r#"set -m; sh -c "$FAR" & wait"#,
    // This way creates an orphan, whose environment does not contain the name of the semaphore.
    r#"env -i setsid -f sh -c "$FAR"; sleep 600"#,
    r#"echo x | xargs -P2 -I{} setsid -w sh -c "$FAR"; true"#,
    r#"printf 'all:\n\t@timeout 100 sh -c "$$FAR"\n' | make -s -j2 -f -; true"#,
    r#"python3 -c 'import os, subprocess
subprocess.call(["sh", "-c", os.environ["FAR"]], start_new_session=True)'; true"#,
    // The program has its own terminal, as with `ssh -t`.
    r#"script -qec 'sh -c "$FAR"' /dev/null; true"#,
    // The program has a parent that does not wait for its children.
    r#"setsid python3 -c 'import os, signal
if not os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if not os.fork():
    os.execlp("sh", "sh", "-c", os.environ["FAR"])
while True:
    signal.pause()'; true"#,
];

fn command(name: &str, way: &str) -> Command {
    let head = ["--limit", "1", "--lease", "15s", "--grace", "300ms", "--", "bash", "-c", way];
    let mut command = run(&shared_url(), &[&[name], &head[..]].concat());
    command.env("FAR", FAR);
    command
}

fn start(name: &str, way: &str) -> (Tool, i32) {
    let tool = Tool::start(&mut command(name, way));
    let far = tool.line().parse().unwrap();
    (tool, far)
}

/// Tests each way to escape in its own thread, because most of the time is spent waiting.
fn in_each_way(test: impl Fn(&str, Tool, i32) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for way in WAYS {
            scope.spawn(move || {
                let name = unique_name();
                let (tool, far) = start(&name, way);
                test(&name, tool, far);
                assert!(!is_alive(far), "{way}");
            });
        }
    });
}

fn name_of(process: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn await_end(process: i32) {
    eventually("the end of the far process", || (!is_alive(process)).then_some(()));
}

fn lose(name: &str) {
    let permits = format!("sem:{{{name}}}:permits");
    redis::cmd("DEL").arg(permits).exec(&mut connect(&shared_url())).unwrap();
}

#[test]
fn a_lost_permit_ends_all_processes_of_the_command() {
    in_each_way(|name, mut tool, far| {
        lose(name);
        assert_eq!(tool.ended().code(), Some(70));
        // The process must have ended already.
        assert!(!is_alive(far));
    });
}

#[test]
fn killing_the_cli_ends_all_processes_of_the_command() {
    in_each_way(|_, mut tool, far| {
        tool.signal(Signal::SIGKILL);
        tool.ended();
        await_end(far);
    });
}

/// The signal ends the shell, but not the process that the shell waited for.
#[test]
fn sigterm_releases_the_permit_after_all_processes_have_ended() {
    in_each_way(|name, mut tool, far| {
        tool.signal(Signal::SIGTERM);
        let mut redis = connect(&shared_url());
        eventually("the permit", || (held_and_queued(&mut redis, name) == (0, 0)).then_some(()));
        assert!(!is_alive(far));
        assert_eq!(tool.ended().code(), Some(128 + 15));
        let reported = tool.errors();
        assert!(!reported.contains("redis-semaphore"), "{reported}");
    });
}

/// After the guard was killed, the CLI inherits the processes of the command, and another guard
/// ends them.
#[test]
fn all_processes_of_the_command_end_after_the_guard_was_killed() {
    for way in [WAYS[0], WAYS[3]] {
        after_the_guard_was_killed_all_ends(way);
    }
}

fn after_the_guard_was_killed_all_ends(way: &str) {
    let name = unique_name();
    let (mut tool, far) = start(&name, way);
    let [guard] = *children(tool.id()) else { panic!("not one guard") };
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    let guards = || {
        let names = children(tool.id()).into_iter().map(name_of);
        names.filter(|name| name == "semaphore-guard").count()
    };
    eventually("another guard", || {
        (!children(tool.id()).contains(&guard) && guards() == 1).then_some(())
    });
    lose(&name);
    assert_eq!(tool.ended().code(), Some(70));
    assert!(!is_alive(far));
}

/// The first process of a container may be a parent that does not wait for its children.
#[test]
fn all_processes_end_below_a_parent_that_does_not_reap_children() {
    let text = r#"$TOOL run "$@" & echo $!; exec sleep 600"#;
    for signal in [None, Some(Signal::SIGKILL)] {
        let name = unique_name();
        let inner = command(&name, WAYS[3]);
        let mut outer = unaware("sh");
        outer.args(["-c", text, "sh"]).args(inner.get_args().skip_while(|word| *word != &*name));
        for (name, value) in inner.get_envs() {
            value.map(|value| outer.env(name, value));
        }
        let mut parent = Tool::start(outer.stdin(Stdio::null()));
        let [tool, far] = [(); 2].map(|()| parent.line().parse().unwrap());
        match signal {
            Some(signal) => kill(Pid::from_raw(tool), signal).unwrap(),
            None => lose(&name),
        }
        eventually("the end of the tool", || (!is_alive(tool)).then_some(()));
        await_end(far);
        parent.signal(Signal::SIGKILL);
        parent.ended();
    }
}

/// The CLI in a folder, and a copy of `setpriv` that may become root. The CLI runs as an ordinary user,
/// so it cannot end processes that `setpriv` starts.
struct OrdinaryUser {
    folder: String,
    tool: String,
    script: String,
}

impl OrdinaryUser {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(unique_name()).to_str().unwrap().to_owned();
        let [tool, other] = [TOOL, "/usr/bin/setpriv"].map(|program| {
            let name = std::path::Path::new(program).file_name().unwrap().to_str().unwrap();
            as_root(&["install", "-D", "-m", "4755", program, &format!("{folder}/{name}")]);
            format!("{folder}/{name}")
        });
        as_root(&["chmod", "755", &tool]);
        let script = format!("{other} --reuid 0 --clear-groups sh -c \"$FAR\"; true");
        Self { folder, tool, script }
    }
}

impl Drop for OrdinaryUser {
    fn drop(&mut self) {
        as_root(&["rm", "-r", &self.folder]);
    }
}

/// The CLI may not end processes of another user, but prints them so that an operator can end them.
#[test]
fn processes_that_could_not_be_ended_are_reported() {
    let (user, name) = (OrdinaryUser::new(), unique_name());
    let inner = command(&name, &user.script);
    let mut command = unaware(if geteuid().is_root() { "setpriv" } else { "env" });
    if geteuid().is_root() {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    command.args([&user.tool, "run"]).args(inner.get_args().skip_while(|word| *word != &*name));
    for (name, value) in inner.get_envs() {
        value.map(|value| command.env(name, value));
    }
    let mut tool = Tool::start(command.stdin(Stdio::null()));
    let far: i32 = tool.line().parse().unwrap();
    lose(&name);
    assert_eq!(tool.ended().code(), Some(70));
    tool.reports(&format!(
        "these processes could not be ended, and continue without a permit: process {far} (sh)"
    ));
    assert!(is_alive(far));
    as_root(&["kill", "-9", &far.to_string()]);
}

/// With the option hidepid, /proc hides the processes of other users. The test has a /proc of its
/// own.
#[test]
fn processes_that_proc_hides_are_reported_without_names() {
    let (user, name) = (OrdinaryUser::new(), unique_name());
    let inner = command(&name, &user.script);
    let mut command = unaware("env");
    command.args(by_root());
    for (name, value) in inner.get_envs() {
        value.map(|value| command.arg(format!("{}={}", name.display(), value.display())));
    }
    let hide = "mount -o remount,hidepid=2 /proc; exec setpriv --reuid 65534 --regid 65534 \
                --clear-groups \"$@\"";
    command.args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", hide]);
    command.args(["sh", &user.tool, "run"]);
    command.args(inner.get_args().skip_while(|word| *word != &*name));
    let mut tool = Tool::start(command.stdin(Stdio::null()));
    tool.line();
    lose(&name);
    assert_eq!(tool.ended().code(), Some(70));
    tool.reports(
        "these processes could not be ended, and continue without a permit: /proc does not show \
         them",
    );
}

/// Returns the beginning of a command that root runs.
fn by_root() -> &'static [&'static str] {
    if geteuid().is_root() { &["env"] } else { &["sudo", "-n", "env"] }
}

fn as_root(words: &[&str]) {
    let words = [by_root(), words].concat();
    let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
}

/// An operator may stop the guard, because its name is unfamiliar. The CLI still ends the command.
#[test]
fn a_stopped_guard_does_not_prevent_the_end_of_the_command() {
    let name = unique_name();
    let arguments = [&*name, "--limit", "1", "--", "sh", "-c", "echo on; exec sleep 600"];
    let mut tool = Tool::start(&mut run(&shared_url(), &arguments));
    assert_eq!(tool.line(), "on");
    let [guard] = *children(tool.id()) else { panic!("not one guard") };
    kill(Pid::from_raw(guard), Signal::SIGSTOP).unwrap();
    tool.signal(Signal::SIGTERM);
    assert_eq!(tool.ended().code(), Some(128 + 15));
}

#[test]
fn processes_may_survive_a_command_that_ends_by_itself() {
    let name = unique_name();
    let way = r#"setsid -f sh -c "$FAR"; sleep 0.1; exit 4"#;
    let (mut tool, far) = start(&name, way);
    assert_eq!(tool.ended().code(), Some(4));
    await_held_and_queued(&shared_url(), &name, (0, 0));
    assert!(is_alive(far));
    kill(Pid::from_raw(far), Signal::SIGKILL).unwrap();
}

/// Without /proc, the guard tries every process ID to find its children.
#[test]
fn all_processes_of_the_command_end_without_a_proc_file_system() {
    // Process IDs soon wrap around, so the guard has to try every possible ID.
    let mount = r#"
        if [ "$(id -u)" = 0 ] && [ -w /proc/sys/kernel/ns_last_pid ]; then
            echo "$(($(cat /proc/sys/kernel/pid_max) - 9))" >/proc/sys/kernel/ns_last_pid
        fi
        mount -t tmpfs none /proc && exec "$@""#;
    let hidden = |command: &Command| {
        let mut unshare = unaware("unshare");
        if !geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "sh", "-c", mount, "sh"]).arg(command.get_program());
        unshare.args(command.get_args()).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            value.map(|value| unshare.env(name, value));
        }
        unshare
    };
    let allowed = hidden(&Command::new("true")).output().expect("unshare is needed: util-linux");
    assert!(allowed.status.success(), "this machine allows no namespaces: {allowed:?}");
    for way in [WAYS[0], WAYS[3]] {
        let name = unique_name();
        let mut tool = Tool::start(&mut hidden(&command(&name, way)));
        let far = tool.line().parse().unwrap();
        lose(&name);
        assert_eq!(tool.ended().code(), Some(70));
        assert!(!is_alive(far), "{way}");
    }
}

/// The processes may catch SIGTERM and clean up. The CLI ends as soon as they have ended, before
/// the grace is over.
#[test]
fn background_processes_of_a_killed_command_get_sigterm() {
    let script = r#"bash -c 'trap "echo cleaned up; exit" TERM; echo $PPID; while :; do sleep 0.02; done' &
        wait"#;
    let head = ["--limit", "1", "--lease", "10min", "--grace", "3min", "--", "bash", "-c", script];
    let mut tool = Tool::start(&mut run(&shared_url(), &[&[&*unique_name()], &head[..]].concat()));
    let command = tool.line().parse().unwrap();
    kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
    assert_eq!(tool.line(), "cleaned up");
    assert_eq!(tool.ended().code(), Some(128 + Signal::SIGKILL as i32));
}
