//! The CLI as the first process of a container. The first process inherits processes whose parents
//! have ended. A signal ends the first process only if that process has a handler for the signal.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::geteuid;

use super::support::server::{await_held_and_queued, connect, shared_url};
use super::support::tool::{Tool, children, run};
use crate::support::tool::{TOOL, unaware};
use crate::support::{eventually, unique_name};
use test_support::folder::Folder;

/// Returns a command that runs its arguments as the first process of a PID namespace.
fn unshare(options: &[&str]) -> Command {
    let mut unshare = unaware("unshare");
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--fork", "--kill-child"]).args(options).stdin(Stdio::null());
    unshare
}

/// The CLI runs a command that ends with status 7 when a file `end` exists. The CLI inherits two
/// processes, which end when the files `first` and `second` exist.
struct Container {
    folder: Folder,
    unshare: Tool,
    /// The process ID of the CLI.
    first: i32,
}

const SCRIPT: &str = "\
await() { while [ ! -e $1 ]; do sleep 0.02; done; }
for file in first second; do (await $file &); done
exec $TOOL run $NAME --limit 1 -- sh -c 'echo on; while [ ! -e end ]; do sleep 0.02; done; exit 7'";

impl Container {
    fn start(url: &str, name: &str) -> Self {
        let mut container = unshare(&["--mount-proc"]);
        let allowed = container.arg("true").output().expect("unshare is needed: util-linux");
        assert!(
            allowed.status.success(),
            "this machine allows no namespaces, which this test needs: run it as root, or allow \
             them (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0): {allowed:?}"
        );
        let folder = Folder::create();
        let mut command = unshare(&["--mount-proc"]);
        // Without `setsid`, the CLI would take the terminal in which the tests run.
        command.args(["setsid", "sh", "-c", SCRIPT]).current_dir(&folder.0);
        command.env("REDIS_URL", url).env("NAME", name).env("TOOL", TOOL);
        let unshare = Tool::start(&mut command);
        let first = eventually("its first process", || children(unshare.id()).first().copied());
        Self { folder, unshare, first }
    }

    fn write(&self, file: &str) {
        fs::write(self.folder.0.join(file), "").unwrap();
    }

    /// Waits until the CLI has this number of children, including ended children that the CLI has
    /// not reaped.
    fn await_children(&self, number: usize) {
        eventually(&format!("{number} children"), || {
            (children(self.first).len() == number).then_some(())
        });
    }
}

#[test]
fn the_cli_as_pid_1_reaps_orphans_and_returns_the_status_of_the_command() {
    let (url, name) = (shared_url(), unique_name());
    let holder = Tool::start(&mut run(&url, &[&name, "--limit", "1", "--", "sleep", "600"]));
    await_held_and_queued(&url, &name, (1, 0));
    let mut container = Container::start(&url, &name);
    await_held_and_queued(&url, &name, (1, 1));
    // The children are the two orphans and the guard.
    container.await_children(3);
    container.write("first");
    container.await_children(2);

    holder.signal(Signal::SIGTERM);
    assert_eq!(container.unshare.line(), "on");
    container.await_children(2);
    container.write("second");
    container.await_children(1);
    container.write("end");
    assert_eq!(container.unshare.ended().code(), Some(7));
    await_held_and_queued(&url, &name, (0, 0));
}

#[test]
fn a_signal_ends_the_cli_as_pid_1_while_it_waits_and_while_it_holds() {
    let (url, name) = (shared_url(), unique_name());
    let terminated = Some(128 + Signal::SIGTERM as i32);
    let mut holder = Container::start(&url, &name);
    assert_eq!(holder.unshare.line(), "on");
    let mut waiter = Container::start(&url, &name);
    await_held_and_queued(&url, &name, (1, 1));
    for (container, left) in [(&mut waiter, (1, 0)), (&mut holder, (0, 0))] {
        kill(Pid::from_raw(container.first), Signal::SIGTERM).unwrap();
        assert_eq!(container.unshare.ended().code(), terminated);
        await_held_and_queued(&url, &name, left);
    }
}

/// The CLI runs a process in another session. When the CLI has ended, the shell, which is the first
/// process of the namespace, writes whether the process in the other session still exists.
const FAR: &str = "\
far=$(mktemp)
$TOOL run $NAME --limit 1 --grace 1s -- sh -c 'setsid sleep 600 & echo $! >'$far'; echo on; wait'
kill -0 $(cat $far) && echo alive || echo gone
rm $far";

/// /proc belongs to the namespace of the tests, so it describes other processes under the same IDs.
#[test]
fn all_processes_end_if_proc_belongs_to_another_namespace() {
    let (url, name) = (shared_url(), unique_name());
    let mut command = unshare(&["setsid", "bash", "-c", FAR]);
    command.env("REDIS_URL", &url).env("NAME", &name).env("TOOL", TOOL);
    let mut tool = Tool::start(&mut command);
    assert_eq!(tool.line(), "on");
    let permits = format!("sem:{{{name}}}:permits");
    redis::cmd("DEL").arg(permits).exec(&mut connect(&url)).unwrap();
    assert_eq!(tool.line(), "gone");
    let stderr = tool.errors();
    assert!(!stderr.contains("could not be ended"), "{stderr}");
}
