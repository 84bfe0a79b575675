//! Redis servers of a test's own, which it may stop and kill.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use redis::{Client, Connection};
use redis_semaphore::{Semaphore, Semaphores};

use super::folder::Folder;
use super::process::Process;
use super::tool::{Outcome, tool};
use super::{DEADLINE, eventually, eventually_async};

pub struct Server {
    process: Process,
    /// What starts it.
    command: Command,
    folder: Folder,
    pub port: u16,
    pub url: String,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        // Another process may take the port between our look and the server's: then another one.
        for _ in 0..20 {
            let (folder, port) = (Folder::create(), free_port());
            let mut command = command(&folder, port, options);
            let process = Process::start(&mut command);
            let url = format!("redis://127.0.0.1:{port}/");
            let mut server = Self { process, command, folder, port, url };
            if server.comes_up() {
                return server;
            }
        }
        panic!("no server could be started");
    }

    /// One node with all slots.
    pub fn start_cluster() -> Self {
        let server = Self::start_with(&["--cluster-enabled", "yes"]);
        let mut add = redis::cmd("CLUSTER");
        let slots: Vec<u32> = (0..16_384).collect();
        add.arg("ADDSLOTS").arg(slots).exec(&mut server.connect()).unwrap();
        eventually("a cluster that is well", || {
            let info: String =
                redis::cmd("CLUSTER").arg("INFO").query(&mut server.connect()).unwrap();
            info.contains("cluster_state:ok").then_some(())
        });
        server
    }

    fn comes_up(&mut self) -> bool {
        let client = self.client();
        let is_up = || {
            let has_ended = self.process.0.try_wait().unwrap().is_some();
            let pong = || redis::cmd("PING").query(&mut client.get_connection().ok()?).ok();
            if has_ended { Some(false) } else { pong().map(|pong: String| pong == "PONG") }
        };
        eventually("the server", is_up)
    }

    /// Over its socket: at the port another server could answer that was faster than ours.
    fn client(&self) -> Client {
        let socket = self.folder.0.join("socket");
        Client::open(format!("redis+unix://{}", socket.display())).unwrap()
    }

    pub fn connect(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    pub fn run(&self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut self.connect()).unwrap();
    }

    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/", self.port)
    }

    pub async fn semaphores(&self) -> Semaphores {
        Semaphores::builder().owner("web-1").connect(&self.url).await.unwrap()
    }

    pub fn tool(&self, arguments: &[&str]) -> Outcome {
        let mut command = tool(arguments);
        command.env("REDIS_URL", &self.url);
        Outcome::of(command)
    }

    /// As a user, whose name and password stand in the environment.
    pub fn tool_as(&self, user: &str, password: &str, arguments: &[&str]) -> Outcome {
        let mut command = tool(arguments);
        command.env("REDIS_URL", self.url_of(user, password));
        Outcome::of(command)
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

#[allow(dead_code, reason = "only commands that are features outlast a server")]
impl Server {
    pub fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// On the same port, empty.
    pub fn start_again(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            self.process = Process::start(&mut self.command);
            if self.comes_up() {
                return;
            }
            assert!(Instant::now() < deadline, "the server did not start again");
        }
    }
}

fn command(folder: &Folder, port: u16, options: &[&str]) -> Command {
    let program = std::env::var("REDIS_SERVER_BIN").expect("run scripts/with-redis cargo test");
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "no", "--unixsocket", "socket", "--dir"]).arg(&folder.0);
    command.args(options).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn free_port() -> u16 {
    // A node of a cluster also needs the port that is higher by 10,000.
    let look = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    std::iter::repeat_with(look).find(|port| *port <= u16::MAX - 10_000).unwrap()
}

/// Waits until so many are in the queue.
pub async fn until_queued(semaphore: &Semaphore, number: u64) {
    let is_so = async || (semaphore.inspect().await.unwrap().queued == number).then_some(());
    eventually_async("the queue", is_so).await;
}

/// The rules of a user in `docs/protocol.md`: the first line for it.
pub fn documented_rules(user: &str) -> String {
    let page = include_str!("../../../../docs/protocol.md");
    let (_, line) = page.split_once(&format!("ACL SETUSER {user} ")).unwrap();
    line.split_once("```").unwrap().0.to_owned()
}
