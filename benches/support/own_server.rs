//! A server of a bench's own, with options that the one of `scripts/with-redis` has not.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::Client;

use super::Result;
use super::server::unique_name;

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

pub struct OwnServer {
    child: Child,
    folder: PathBuf,
    pub port: u16,
}

impl OwnServer {
    /// In a folder that has these files, by their names and contents.
    pub fn start(files: &[(&str, String)], options: &[&str]) -> Result<Self> {
        Self::start_with(files, options, |_| {})
    }

    /// The same, with whatever else the server's command is to have.
    pub fn start_with(
        files: &[(&str, String)],
        options: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let program = env::var("REDIS_SERVER_BIN")
            .map_err(|_| "REDIS_SERVER_BIN is not set: run scripts/with-redis cargo bench")?;
        let folder = env::temp_dir().join(unique_name("server"));
        fs::create_dir(&folder)?;
        for (name, content) in files {
            fs::write(folder.join(name), content)?;
        }
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--logfile", "log", "--unixsocket", "socket"])
            .args(options)
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        prepare(&mut command);
        let child = command.spawn()?;
        let mut server = Self { child, folder, port };
        server.answers()?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Waits until it does. Over its socket: at the port somebody else may answer.
    fn answers(&mut self) -> Result<()> {
        let socket = format!("redis+unix://{}", self.folder.join("socket").display());
        let client = Client::open(socket)?;
        let deadline = Instant::now() + PATIENCE;
        while client.get_connection().is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("a server did not start; its log: {log}").into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Nodes of a cluster also need the port that is higher by 10,000.
pub fn free_port() -> Result<u16> {
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        if port <= u16::MAX - 10_000 {
            return Ok(port);
        }
    }
}
