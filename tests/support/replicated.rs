use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::{Connection, Value};
use redis_semaphore::redis::sentinel::{SentinelClient, SentinelServerType};

use super::folder::Folder;
use super::observer::until;
use super::server::{Server, binary, connect, free_port};

const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
const SENTINELS: usize = 3;
pub const SERVICE: &str = "jobs";

/// A primary (number 0 at first) and its replica.
pub struct Pair {
    pub servers: [Server; 2],
}

impl Pair {
    pub fn start() -> Self {
        let options = ["--repl-diskless-sync-delay", "0"];
        let pair = Self { servers: [0; 2].map(|_| Server::start_with(&options)) };
        pair.servers.iter().for_each(|server| server.grant("+role"));
        pair.demote(1, 0);
        pair
    }

    pub fn connect(&self, server: usize) -> Connection {
        self.servers[server].connect()
    }

    pub fn urls(&self) -> [String; 2] {
        [self.servers[0].url(), self.servers[1].url()]
    }

    /// Waits until a failover would lose nothing.
    pub fn is_in_step(&self) {
        let [primary, replica] = &self.servers;
        until("the replica has all writes", || primary.is_copied_to(replica));
    }

    pub fn promote(&self, server: usize) {
        let mut command = redis::cmd("REPLICAOF");
        command.arg("NO").arg("ONE").exec(&mut self.connect(server)).unwrap();
    }

    /// Makes `server` the replica of `primary`, and waits until the replica has the primary's data.
    pub fn demote(&self, server: usize, primary: usize) {
        let mut command = redis::cmd("REPLICAOF");
        command.arg("127.0.0.1").arg(self.servers[primary].port);
        command.exec(&mut self.connect(server)).unwrap();
        until("the replica has all data", || self.role(server) == "slave connected");
    }

    /// Returns "master", or returns "slave" and the state of the connection to the primary. If the
    /// call fails, returns the error: a demoted server cuts its connections.
    pub fn role(&self, server: usize) -> String {
        let client = redis::Client::open(self.servers[server].admin_url()).unwrap();
        let ask = |mut server: Connection| redis::cmd("ROLE").query::<Vec<Value>>(&mut server);
        let role = match client.get_connection().and_then(ask) {
            Ok(role) => role,
            Err(error) => return error.to_string(),
        };
        let text = |value| redis::from_redis_value_ref::<String>(value).unwrap();
        match text(&role[0]).as_str() {
            "slave" => format!("slave {}", text(&role[3])),
            other => other.to_owned(),
        }
    }
}

/// Three sentinels that watch a pair.
pub struct Sentinels {
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    child: Child,
    _folder: Folder,
    url: String,
}

impl Sentinels {
    pub fn watch(pair: &Pair) -> Self {
        let start = |_| Sentinel::start(pair.servers[0].port);
        let sentinels = Self { sentinels: (0..SENTINELS).map(start).collect() };
        until("the sentinels know each other and the replica", || {
            sentinels.sentinels.iter().all(|sentinel| {
                let known: Vec<String> = sentinel.ask(&["MASTER", SERVICE]);
                field(&known, "num-other-sentinels") == "2" && field(&known, "num-slaves") == "1"
            })
        });
        sentinels
    }

    pub fn client(&self) -> SentinelClient {
        self.client_of(SERVICE)
    }

    pub fn client_of(&self, service: &str) -> SentinelClient {
        let urls: Vec<&str> = self.sentinels.iter().map(|sentinel| &*sentinel.url).collect();
        let service = String::from(service);
        SentinelClient::build(urls, service, None, SentinelServerType::Master).unwrap()
    }

    /// Stops the first sentinel. The stopped sentinel accepts connections and never replies. The
    /// other sentinels can still agree.
    pub fn silence_first(&self) {
        kill(Pid::from_raw(self.sentinels[0].child.id() as i32), Signal::SIGSTOP).unwrap();
    }

    /// Sets a password, so that the sentinels reject URLs without it.
    pub fn want_password(&self, password: &str) {
        for sentinel in &self.sentinels {
            let rules = ["SETUSER", "default", "resetpass", &format!(">{password}")];
            redis::cmd("ACL").arg(&rules).exec(&mut connect(&sentinel.url)).unwrap();
        }
    }

    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| sentinel.url.clone()).collect()
    }

    /// Sets the time without a reply after which all sentinels consider a server failed. The
    /// initial value is a minute.
    pub fn be_patient(&self, patience: Duration) {
        let time = patience.as_millis().to_string();
        for sentinel in &self.sentinels {
            let () = sentinel.ask(&["SET", SERVICE, "down-after-milliseconds", &time]);
        }
    }

    /// Returns whether all sentinels consider the server at this port the primary.
    pub fn all_name(&self, port: u16) -> bool {
        self.sentinels.iter().all(|sentinel| {
            let address: [String; 2] = sentinel.ask(&["GET-MASTER-ADDR-BY-NAME", SERVICE]);
            address[1] == port.to_string()
        })
    }

    /// Returns whether all sentinels see a working primary and a working replica.
    pub fn are_content(&self, pair: &Pair) -> bool {
        let primaries = [0, 1].into_iter().filter(|server| pair.role(*server) == "master");
        let [primary] = primaries.collect::<Vec<_>>()[..] else { return false };
        self.all_name(pair.servers[primary].port)
            && self.sentinels.iter().all(|sentinel| {
                let primary: Vec<String> = sentinel.ask(&["MASTER", SERVICE]);
                let replicas: Vec<Vec<String>> = sentinel.ask(&["REPLICAS", SERVICE]);
                let [replica] = &replicas[..] else { return false };
                field(&primary, "flags") == "master"
                    && field(replica, "flags") == "slave"
                    && field(replica, "master-link-status") == "ok"
            })
    }

    /// Starts a failover while the primary works.
    pub fn fail_over(&self) {
        let response: String = self.sentinels[0].ask(&["FAILOVER", SERVICE]);
        assert_eq!(response, "OK");
    }
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        // Another process may take the port first, so several ports are tried.
        for _ in 0..20 {
            let folder = Folder::create();
            let port = free_port();
            let config = folder.join("config");
            let lines = [
                format!("port {port}\nbind 127.0.0.1\nlogfile log\ndir ."),
                format!("sentinel monitor {SERVICE} 127.0.0.1 {primary} 2"),
                // This time is longer than any pause of a server on a busy machine.
                format!("sentinel down-after-milliseconds {SERVICE} 60000"),
                format!("sentinel failover-timeout {SERVICE} 5000\n"),
            ];
            fs::write(&config, lines.join("\n")).unwrap();
            let mut command = Command::new(binary());
            command.arg(&config).arg("--sentinel").current_dir(&folder.0);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let url = format!("redis://127.0.0.1:{port}/");
            let mut sentinel = Self { child, _folder: folder, url };
            if sentinel.comes_up() {
                return sentinel;
            }
        }
        panic!("no sentinel could be started");
    }

    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + DEADLINE;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            let connection = redis::Client::open(&*self.url).unwrap().get_connection();
            if connection.is_ok_and(|mut connection| {
                redis::cmd("PING").query::<String>(&mut connection).is_ok()
            }) {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    fn ask<T: redis::FromRedisValue>(&self, arguments: &[&str]) -> T {
        redis::cmd("SENTINEL").arg(arguments).query(&mut connect(&self.url)).unwrap()
    }
}

/// Returns a field of a reply in which names and values alternate.
fn field<'a>(response: &'a [String], name: &str) -> &'a str {
    &response[response.iter().position(|id| id == name).unwrap() + 1]
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // A sentinel that did not start has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
