//! The job: a list of pages in Redis, which is independent of the semaphore.
//!
//! Each page is always in exactly one group: waiting pages, the page of a worker, or finished
//! pages. Each step from one group to the next is atomic. So no page is lost, no matter when a
//! worker is killed.

use std::collections::BTreeMap;

use redis_semaphore::redis::Direction::{Left, Right};
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{Client, FromRedisValue, Pipeline, cmd, pipe};

use crate::demo::{Result, plan};
use crate::server::connection_beside;

pub struct Job {
    redis: MultiplexedConnection,
    /// The prefix of all keys of this run, including those of the semaphore.
    prefix: String,
    waiting: String,
    done: String,
}

pub struct Progress {
    /// Pages that wait for a worker.
    pub waiting: u32,
    pub done: u32,
}

impl Job {
    pub async fn open(client: Client, prefix: &str) -> Result<Self> {
        let redis = connection_beside(&client).await?;
        let (waiting, done) = (format!("{prefix}:pages:waiting"), format!("{prefix}:pages:done"));
        Ok(Self { redis, prefix: prefix.to_owned(), waiting, done })
    }

    pub async fn add_pages(&self) -> Result<()> {
        let pages: Vec<u32> = (1..=plan::PAGES).collect();
        self.run(pipe().rpush(&self.waiting, pages).ignore()).await
    }

    pub async fn progress(&self) -> Result<Progress> {
        let (waiting, done) = self.run(pipe().llen(&self.waiting).hlen(&self.done)).await?;
        Ok(Progress { waiting, done })
    }

    /// Takes a page for a worker. One command removes the page from the list and records its
    /// worker.
    pub async fn take_page(&self, worker: &str) -> Result<Option<u32>> {
        let taken = self.taken_by(worker);
        let (page,) = self.run(pipe().lmove(&self.waiting, taken, Left, Right)).await?;
        Ok(page)
    }

    /// Records that the page is finished, with the worker and the token of its permit. Returns
    /// `false` if the page was finished before. The earlier record then stays, so each page counts
    /// once.
    ///
    /// Fencing tokens grow from permit to permit. If a store replaces earlier writes with later
    /// writes, it must reject a token that is lower than the page's last token. Such a token
    /// belongs to a worker that was suspended when its permit was lost, and has not found out about
    /// the loss yet.
    pub async fn finish_page(&self, page: u32, worker: &str, token: u64) -> Result<bool> {
        let mut steps = pipe();
        steps.atomic().hset_nx(&self.done, page, format!("{token} {worker}"));
        steps.del(self.taken_by(worker)).ignore();
        let (is_first,) = self.run(&steps).await?;
        Ok(is_first)
    }

    /// Puts the page of the worker, if the worker has one, at the front of the waiting pages.
    ///
    /// The caller must know that the worker has lost its permit, or is dead.
    pub async fn put_page_back(&self, worker: &str) -> Result<Option<u32>> {
        let taken = self.taken_by(worker);
        let (page,) = self.run(pipe().lmove(taken, &self.waiting, Right, Left)).await?;
        Ok(page)
    }

    /// Returns the finished pages, with the fencing tokens of their permits.
    pub async fn done_pages(&self) -> Result<BTreeMap<u32, u64>> {
        let (done,): (BTreeMap<u32, String>,) = self.run(pipe().hgetall(&self.done)).await?;
        let read = |(page, note): (u32, String)| {
            let (token, _) =
                note.split_once(' ').ok_or("a finished page in Redis has no worker")?;
            Ok((page, token.parse()?))
        };
        done.into_iter().map(read).collect()
    }

    /// Deletes all keys of this run. All workers must have ended.
    ///
    /// A program need not delete the keys of a semaphore, because they expire when they are not
    /// used.
    pub async fn delete_all(&self) -> Result<()> {
        // Characters with a meaning in patterns become ?.
        let pattern = self.prefix.replace(['*', '?', '[', ']', '\\'], "?") + ":*";
        let mut cursor = 0;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let ((next, mut keys),): ((u64, Vec<String>),) =
                self.run(pipe().add_command(scan)).await?;
            keys.retain(|key| key.starts_with(&self.prefix));
            if !keys.is_empty() {
                let () = self.run(pipe().unlink(keys).ignore()).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn run<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T> {
        let reply = commands.query_async(&mut self.redis.clone()).await;
        reply.map_err(|error| format!("cannot read or write the pages in Redis: {error}").into())
    }

    fn taken_by(&self, worker: &str) -> String {
        format!("{}:pages:taken-by:{worker}", self.prefix)
    }
}
