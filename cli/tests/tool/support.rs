//! The tool, and servers of a test's own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use redis::{Client, Connection};
use redis_semaphore::{Semaphore, Semaphores};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

/// With nothing in its environment that says where a server is.
pub fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis-semaphore"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDIS_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What the tool has said, and its exit status.
#[derive(Debug)]
pub struct Outcome {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(mut command: Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn fails(&self, status: i32, reason: &str) {
        assert_eq!((self.status, &*self.stdout), (Some(status), ""), "{self:?}");
        assert!(self.stderr.contains(reason), "{reason:?} is not in {self:?}");
    }
}

pub struct Server {
    child: Child,
    folder: PathBuf,
    pub port: u16,
}

impl Server {
    pub fn start(options: &[&str]) -> Self {
        // Another process may take the port between our look and the server's: then another one.
        for _ in 0..20 {
            let folder = std::env::temp_dir().join(format!("sem-tool-{}", uuid::Uuid::new_v4()));
            fs::create_dir(&folder).unwrap();
            let port = free_port();
            let child =
                Command::new(std::env::var("REDIS_SERVER_BIN").expect("scripts/with-redis"))
                    .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                    .args(["--appendonly", "no", "--unixsocket", "socket", "--dir"])
                    .arg(&folder)
                    .args(options)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
            let mut server = Self { child, folder, port };
            if server.comes_up() {
                return server;
            }
        }
        panic!("no server could be started");
    }

    /// One node with all slots.
    pub fn start_cluster() -> Self {
        let server = Self::start(&["--cluster-enabled", "yes"]);
        let mut add = redis::cmd("CLUSTER");
        add.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<_>>()).exec(&mut server.admin()).unwrap();
        server.until("the cluster is well", |admin| {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(admin).unwrap();
            info.contains("cluster_state:ok")
        });
        server
    }

    /// Over its socket: at the port another server could answer that was faster than ours.
    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline && self.child.try_wait().unwrap().is_none() {
            let pong = self
                .client()
                .get_connection()
                .and_then(|mut server| redis::cmd("PING").query::<String>(&mut server));
            if pong.is_ok_and(|pong| pong == "PONG") {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn client(&self) -> Client {
        let socket = self.folder.join("socket");
        Client::open(format!("redis+unix://{}", socket.display())).unwrap()
    }

    pub fn admin(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    pub fn run(&self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut self.admin()).unwrap();
    }

    pub fn until(&self, what: &str, holds: impl Fn(&mut Connection) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(&mut self.admin()) {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::yield_now();
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/", self.port)
    }

    pub async fn semaphores(&self) -> Semaphores {
        Semaphores::builder().owner("web-7").connect(&self.url()).await.unwrap()
    }

    pub fn tool(&self, arguments: &[&str]) -> Outcome {
        let mut command = tool(arguments);
        command.env("REDIS_URL", self.url());
        Outcome::of(command)
    }

    /// As a user, whose name and password stand in the environment.
    pub fn tool_as(&self, user: &str, password: &str, arguments: &[&str]) -> Outcome {
        let mut command = tool(arguments);
        command.env("REDIS_URL", self.url_of(user, password));
        Outcome::of(command)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub async fn until_queued(semaphore: &Semaphore, number: u64) {
    let deadline = Instant::now() + DEADLINE;
    while semaphore.inspect().await.unwrap().queued != number {
        assert!(Instant::now() < deadline, "never: {number} are queued");
    }
}

fn free_port() -> u16 {
    // A node of a cluster also needs the port that is higher by 10,000.
    let look = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    std::iter::repeat_with(look).find(|port| *port <= u16::MAX - 10_000).unwrap()
}

/// The rules of a user in `docs/protocol.md`: the first line for it.
pub fn documented_rules(user: &str) -> String {
    let page = include_str!("../../../docs/protocol.md");
    let (_, line) = page.split_once(&format!("ACL SETUSER {user} ")).unwrap();
    line.split_once("```").unwrap().0.to_owned()
}
