use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::{Client, Connection};
use uuid::Uuid;

use super::acl;
use super::clock::Clock;
use super::folder::Folder;
use super::observer::until;

/// Returns the URL of the server that `scripts/with-redis` started, for tests that do not change
/// the server. The URL is for `SemaphoreClient`: its user has only the required rights.
pub fn shared_url() -> String {
    static USER_IS_THERE: LazyLock<()> = LazyLock::new(|| {
        let mut server = connect(&shared_admin_url());
        acl::set_user(&mut server, acl::USER, acl::documented_rules());
    });
    LazyLock::force(&USER_IS_THERE);
    acl::as_user(&shared_admin_url())
}

/// Returns the administrator's URL of the shared server, for other commands of tests.
pub fn shared_admin_url() -> String {
    std::env::var("REDIS_URL").expect("REDIS_URL is not set: run scripts/with-redis cargo test")
}

/// Returns a name that no other test uses.
pub fn unique_name() -> String {
    format!("test-{}", Uuid::new_v4())
}

pub fn connect(url: &str) -> Connection {
    Client::open(url).unwrap().get_connection().unwrap()
}

/// A private server of one test. The test may stop, pause and flush the server.
pub struct Server {
    child: Child,
    folder: Folder,
    options: Vec<String>,
    rules: Vec<String>,
    is_running: bool,
    pub port: u16,
    pub clock: Clock,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        Self::try_start_with(options)
            .unwrap_or_else(|log| panic!("no server could be started: {log}"))
    }

    /// Starts a server, or returns its log if it ends immediately.
    pub fn try_start_with(options: &[&str]) -> Result<Self, String> {
        let folder = Folder::create();
        let clock = Clock::create(&folder.0);
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        // Another process may take the port first, so several ports are tried.
        let rules = acl::documented_rules().to_vec();
        for _ in 0..20 {
            let port = free_port();
            if let Some(child) = spawn(port, &folder.0, &options, &rules, &clock) {
                let is_running = true;
                return Ok(Self { child, folder, options, rules, is_running, port, clock });
            }
        }
        // Before a server opens its log, it writes to its standard error.
        let log = ["log", "stderr"].map(|name| std::fs::read_to_string(folder.join(name)));
        Err(log.into_iter().flatten().collect())
    }

    /// Returns the URL for `SemaphoreClient`: its user has only the required rights.
    pub fn url(&self) -> String {
        acl::as_user(&self.admin_url())
    }

    /// Returns the URL for another user of the test.
    pub fn url_of(&self, user: &str) -> String {
        format!("redis://{user}:{}@127.0.0.1:{}/", acl::PASSWORD, self.port)
    }

    /// Replaces the user of `url`. The rules also apply after a restart.
    pub fn set_user(&mut self, rules: &[String]) {
        self.rules = rules.to_vec();
        acl::set_user(&mut self.connect(), acl::USER, rules);
    }

    /// Gives the user of `url` one more right, until the server ends.
    pub fn grant(&self, right: &str) {
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg(acl::USER).arg(right).exec(&mut self.connect()).unwrap();
    }

    /// Returns the administrator's URL, for other commands of tests.
    pub fn admin_url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns the folder in which the server runs and saves.
    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub fn connect(&self) -> Connection {
        connect(&self.admin_url())
    }

    pub fn is_older_than_7(&self) -> bool {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.connect()).unwrap();
        info.contains("redis_version:6.")
    }

    /// Returns how often a command was called, including calls by scripts.
    pub fn calls(&self, command: &str) -> u64 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query(&mut self.connect()).unwrap();
        let start = format!("cmdstat_{command}:calls=");
        let count = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Returns whether this replica has all writes of the server.
    pub fn is_copied_to(&self, replica: &Self) -> bool {
        // The replica may have received more writes since the offset of the server was read.
        self.field("master_repl_offset") <= replica.field("slave_repl_offset")
    }

    fn field(&self, name: &str) -> Option<u64> {
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("replication").query(&mut self.connect()).unwrap();
        info.get(name)
    }

    /// Returns whether the server was not killed.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Sends a signal. A stopped server keeps its connections open until it continues.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.is_running = false;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Brings the server into a state in which it accepts no writes (MISCONF).
    pub fn fail_to_save(&self) {
        let run = |words: &[&str]| -> String {
            redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connect()).unwrap()
        };
        // The server cannot rename its snapshot to a directory.
        std::fs::create_dir(self.folder().join("dump.rdb")).unwrap();
        run(&["CONFIG", "SET", "save", "3600 1"]);
        run(&["BGSAVE"]);
        until("a failed save", || run(&["INFO"]).contains("rdb_last_bgsave_status:err"));
    }

    /// Starts the server again on the same port, with the data that it kept on disk.
    pub fn start_again(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            let Self { port, folder, options, rules, clock, .. } = self;
            if let Some(child) = spawn(*port, &folder.0, options, rules, clock) {
                self.child = child;
                self.is_running = true;
                return;
            }
        }
        panic!("the server did not start again; its log is in {}", self.folder.0.display());
    }

    pub fn restart_empty(&mut self) {
        self.kill();
        self.start_again();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The test may have killed the server already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a free port. Cluster nodes also need the port that is higher by 10,000.
pub fn free_port() -> u16 {
    const HIGHEST: u16 = u16::MAX - 10_000;
    let look = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    std::iter::repeat_with(look).find(|port| *port <= HIGHEST).unwrap()
}

pub fn binary() -> String {
    if let Ok(binary) = std::env::var("REDIS_SERVER_BIN") {
        return binary;
    }
    let found = ["redis-server", "valkey-server"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok());
    found.expect("no redis-server: run scripts/with-redis cargo test").to_owned()
}

fn spawn(
    port: u16,
    folder: &Path,
    options: &[String],
    rules: &[String],
    clock: &Clock,
) -> Option<Child> {
    let mut command = Command::new(binary());
    clock.preload(&mut command);
    let mut child = command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "no", "--logfile", "log", "--unixsocket", "socket", "--dir"])
        .arg(folder)
        .args(["--user", acl::USER])
        .args(rules)
        .args(options)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("stderr")).unwrap())
        .spawn()
        .unwrap();
    // The socket identifies this server. Another test's server might reply at the port.
    let socket = folder.join("socket");
    let client = Client::open(format!("redis+unix://{}", socket.display())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        let ping = |mut connection| redis::cmd("PING").query::<String>(&mut connection);
        let response = client.get_connection().and_then(ping);
        // An error is a reply, too: the server may require a password, or may still load its data.
        if !response.is_err_and(|error| error.is_io_error()) {
            return Some(child);
        }
        std::thread::yield_now();
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
