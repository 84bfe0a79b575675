//! A server of a test's own.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis_semaphore::redis::{Client, Connection};
use redis_semaphore::{Semaphore, Semaphores};

use crate::pane::{Folder, Pane};

pub struct Server {
    child: Child,
    folder: Folder,
    port: u16,
}

impl Server {
    pub fn start() -> Self {
        let folder = Folder::create();
        // Another process may take the port between our look and the server's: then another one.
        for _ in 0..20 {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            drop(listener);
            if let Some(child) = spawn(port, &folder) {
                return Self { child, folder, port };
            }
        }
        panic!("no server could be started");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn connect(&self) -> Connection {
        Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    pub async fn semaphores(&self) -> Semaphores {
        Semaphores::builder().owner("web-1").connect(&self.url()).await.unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// On the same port, empty.
    pub fn start_again(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(child) = spawn(self.port, &self.folder) {
                self.child = child;
                return;
            }
        }
        panic!("the server did not start again");
    }

    /// Our tool, which looks often.
    pub fn top(&self) -> String {
        let program = env!("CARGO_BIN_EXE_redis-semaphore");
        format!("{program} --url {} --response-timeout 500ms top --every 100ms", self.url())
    }

    pub fn watch(&self) -> Pane {
        Pane::start(&self.top())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, folder: &Folder) -> Option<Child> {
    let program = std::env::var("REDIS_SERVER_BIN").expect("run scripts/with-redis cargo test");
    let socket = folder.0.join("socket");
    let mut child = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "no", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(&folder.0)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // At the port another server could answer, which was faster.
    let client = Client::open(format!("redis+unix://{}", socket.display())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        if client.get_connection().is_ok() {
            return Some(child);
        }
        std::thread::yield_now();
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Waits, and then holds, on a task of its own until the test ends.
pub async fn queue(semaphore: &Semaphore, ahead: Duration) {
    let before = semaphore.inspect().await.unwrap().queued;
    let request = semaphore.request().ahead(ahead).acquire();
    tokio::spawn(async {
        let _permit = request.await;
        std::future::pending::<()>().await;
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while semaphore.inspect().await.unwrap().queued == before {
        assert!(Instant::now() < deadline, "it was not queued");
    }
}
