//! A Redis server of a test's own, which it may kill and stop.

use std::process::{Command, Stdio};

use redis_semaphore::redis::{Client, Connection};
use redis_semaphore::{Semaphore, Semaphores};
use rustix::process::Signal;

use super::eventually;
use super::process::{Folder, Process, free_port};

pub struct Server {
    process: Process,
    folder: Folder,
    port: u16,
}

impl Server {
    pub async fn start() -> Self {
        let (folder, port) = (Folder::create(), free_port());
        let process = start(&folder, port);
        let server = Self { process, folder, port };
        server.answers().await;
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn connect(&self) -> Connection {
        Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    pub async fn semaphores(&self) -> Semaphores {
        Semaphores::connect(&self.url()).await.unwrap()
    }

    /// Semaphores that were used.
    pub async fn use_all(&self, names: impl IntoIterator<Item = impl Into<String>>) {
        let semaphores = self.semaphores().await;
        for name in names {
            let semaphore = semaphores.semaphore(name).limit(1).build().unwrap();
            semaphore.acquire().await.unwrap().release().await.unwrap();
        }
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// On the same port, and empty.
    pub async fn start_again(&mut self) {
        self.process = start(&self.folder, self.port);
        self.answers().await;
    }

    async fn answers(&self) {
        let client = Client::open(self.url()).unwrap();
        eventually("the server", async || client.get_connection().ok()).await;
    }
}

fn start(folder: &Folder, port: u16) -> Process {
    let program = std::env::var("REDIS_SERVER_BIN").expect("scripts/with-redis sets it");
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]);
    Process::start(command.arg(&folder.0).stdout(Stdio::null()))
}

/// Waits until so many are in the queue.
pub async fn queued(semaphore: &Semaphore, number: u64) {
    let is_so = async || (semaphore.inspect().await.unwrap().queued == number).then_some(());
    eventually("the queue", is_so).await;
}
