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

/// The server that `scripts/with-redis` started, for tests that leave it as it is. For
/// `SemaphoreClient`: the user may do what they need, and nothing else.
pub fn shared_url() -> String {
    static USER_IS_THERE: LazyLock<()> = LazyLock::new(|| {
        let mut server = connect(&shared_admin_url());
        acl::set_user(&mut server, acl::USER, acl::documented_rules());
    });
    LazyLock::force(&USER_IS_THERE);
    acl::as_user(&shared_admin_url())
}

/// The same server, for what tests do besides.
pub fn shared_admin_url() -> String {
    std::env::var("REDIS_URL").expect("REDIS_URL is not set: run scripts/with-redis cargo test")
}

/// A name that no other test uses.
pub fn unique_name() -> String {
    format!("test-{}", Uuid::new_v4())
}

pub fn connect(url: &str) -> Connection {
    Client::open(url).unwrap().get_connection().unwrap()
}

/// A server of a test's own, which it may stop, pause and flush.
pub struct Server {
    child: Child,
    folder: Folder,
    options: Vec<String>,
    /// The user's.
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

    /// Or what the server says about why it ends at once.
    pub fn try_start_with(options: &[&str]) -> Result<Self, String> {
        let folder = Folder::create();
        let clock = Clock::create(&folder.0);
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        // Another process may take the port between our look and the server's: then another one.
        let rules = acl::documented_rules().to_vec();
        for _ in 0..20 {
            let port = free_port();
            if let Some(child) = spawn(port, &folder.0, &options, &rules, &clock) {
                let is_running = true;
                return Ok(Self { child, folder, options, rules, is_running, port, clock });
            }
        }
        // It says on its error output what it says before it has a log.
        let log = ["log", "stderr"].map(|name| std::fs::read_to_string(folder.join(name)));
        Err(log.into_iter().flatten().collect())
    }

    /// For `SemaphoreClient`: the user may do what they need, and nothing else.
    pub fn url(&self) -> String {
        acl::as_user(&self.admin_url())
    }

    /// For another of the test's users.
    pub fn url_of(&self, user: &str) -> String {
        format!("redis://{user}:{}@127.0.0.1:{}/", acl::PASSWORD, self.port)
    }

    /// Makes the user of `url` anew, also for when it is started again.
    pub fn set_user(&mut self, rules: &[String]) {
        self.rules = rules.to_vec();
        acl::set_user(&mut self.connect(), acl::USER, rules);
    }

    /// Gives that user one more right, for as long as it runs.
    pub fn grant(&self, right: &str) {
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg(acl::USER).arg(right).exec(&mut self.connect()).unwrap();
    }

    /// For what tests do besides.
    pub fn admin_url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Where it runs and saves.
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

    /// How often that command was called, also by scripts.
    pub fn calls(&self, command: &str) -> u64 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query(&mut self.connect()).unwrap();
        let start = format!("cmdstat_{command}:calls=");
        let count = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Whether that replica has all that was written here.
    pub fn is_copied_to(&self, replica: &Self) -> bool {
        // It may have got more meanwhile.
        self.field("master_repl_offset") <= replica.field("slave_repl_offset")
    }

    fn field(&self, name: &str) -> Option<u64> {
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("replication").query(&mut self.connect()).unwrap();
        info.get(name)
    }

    /// Whether it was not killed.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Stops it in its tracks, with its connections open, until it is told to go on.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.is_running = false;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, empty.
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
        // The test may have killed it already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nodes of a cluster also need the port that is higher by 10,000.
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
    // Over its socket: at the port another test's server could answer that was faster than ours.
    let socket = folder.join("socket");
    let client = Client::open(format!("redis+unix://{}", socket.display())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        let ping = |mut connection| redis::cmd("PING").query::<String>(&mut connection);
        let answer = client.get_connection().and_then(ping);
        // With a password set, or while it loads its data, an error is an answer, too.
        if !answer.is_err_and(|error| error.is_io_error()) {
            return Some(child);
        }
        std::thread::yield_now();
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
