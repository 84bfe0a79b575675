//! Redis servers for one test, and the CLI with them.

use std::ops::{Deref, DerefMut};

use redis_semaphore::{Semaphore, SemaphoreClient};
use test_support::cluster::Cluster;

use super::eventually_async;
use super::tool::{Outcome, tool};

/// A server whose users have all rights.
pub struct Server {
    server: test_support::server::Server,
    pub url: String,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        Self::of(test_support::server::Server::start_with(options))
    }

    /// Starts a cluster of one node, which has all slots.
    pub fn start_cluster() -> Self {
        Self::of(Cluster::form(1, false, &[]).nodes.remove(0))
    }

    fn of(server: test_support::server::Server) -> Self {
        Self { url: server.admin_url(), server }
    }

    pub fn run(&self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut self.connect()).unwrap();
    }

    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/", self.port)
    }

    pub async fn semaphores(&self) -> SemaphoreClient {
        SemaphoreClient::builder().client_name("web-1").connect(&self.url).await.unwrap()
    }

    pub fn tool(&self, arguments: &[&str]) -> Outcome {
        let mut command = tool(arguments);
        command.env("REDIS_URL", &self.url);
        Outcome::of(command)
    }

    /// Runs the CLI as a user. The environment contains the user's name and password.
    pub fn tool_as(&self, user: &str, password: &str, arguments: &[&str]) -> Outcome {
        let mut command = tool(arguments);
        command.env("REDIS_URL", self.url_of(user, password));
        Outcome::of(command)
    }
}

impl Deref for Server {
    type Target = test_support::server::Server;

    fn deref(&self) -> &Self::Target {
        &self.server
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.server
    }
}

/// Waits until this many requests are in the queue.
pub async fn until_queued(semaphore: &Semaphore, number: u64) {
    let is_so = async || (semaphore.inspect().await.unwrap().queued == number).then_some(());
    eventually_async("the queue", is_so).await;
}
