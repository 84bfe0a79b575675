//! The job: a list of pages in Redis, which has nothing to do with the semaphore.
//!
//! A page is always in exactly one place: in the list of those that wait, in the list of the worker
//! that has taken it, or among those that are done. Every step from one to the next is atomic, so a
//! worker may be killed at any moment and no page gets lost.

use std::collections::BTreeMap;

use redis_semaphore::redis::Direction::{Left, Right};
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{Client, FromRedisValue, Pipeline, cmd, pipe};

use crate::demo::{Result, plan};
use crate::server::connection_beside;

pub struct Job {
    redis: MultiplexedConnection,
    /// What the names of all keys of this run begin with, those of the semaphore too.
    prefix: String,
    waiting: String,
    done: String,
}

pub struct Progress {
    /// Pages that nobody has taken yet.
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

    /// One command hands the page out and notes who has it.
    pub async fn take_page(&self, worker: &str) -> Result<Option<u32>> {
        let taken = self.taken_by(worker);
        let (page,) = self.run(pipe().lmove(&self.waiting, taken, Left, Right)).await?;
        Ok(page)
    }

    /// Notes the page as done, by whom, and under which permit. Answers whether that is new: a page
    /// that was done before stays as it was, so each counts once.
    ///
    /// The fencing token grows from permit to permit. A store in which a later write replaces an
    /// earlier one would refuse a token that is lower than the last one: it comes from a worker
    /// that was asleep when its permit was lost, and has not noticed yet.
    pub async fn finish_page(&self, page: u32, worker: &str, token: u64) -> Result<bool> {
        let mut steps = pipe();
        steps.atomic().hset_nx(&self.done, page, format!("{token} {worker}"));
        steps.del(self.taken_by(worker)).ignore();
        let (is_first,) = self.run(&steps).await?;
        Ok(is_first)
    }

    /// Puts the page that the worker has, if it has one, in front of those that wait.
    ///
    /// For a worker that has lost its permit, and for one that is surely dead.
    pub async fn put_page_back(&self, worker: &str) -> Result<Option<u32>> {
        let taken = self.taken_by(worker);
        let (page,) = self.run(pipe().lmove(taken, &self.waiting, Right, Left)).await?;
        Ok(page)
    }

    /// Each page that is done, and the fencing token of the permit under which it was.
    pub async fn done_pages(&self) -> Result<BTreeMap<u32, u64>> {
        let (done,): (BTreeMap<u32, String>,) = self.run(pipe().hgetall(&self.done)).await?;
        let read = |(page, note): (u32, String)| {
            let (token, _) = note.split_once(' ').ok_or("a page is done, but nobody signed")?;
            Ok((page, token.parse()?))
        };
        done.into_iter().map(read).collect()
    }

    /// Deletes all keys of this run, when all of its workers have ended.
    ///
    /// A program would not delete the keys of a semaphore: they expire when nobody uses them.
    pub async fn delete_all(&self) -> Result<()> {
        // Signs that mean something in a pattern stand for any.
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
        reply.map_err(|error| format!("the pages in Redis: {error}").into())
    }

    fn taken_by(&self, worker: &str) -> String {
        format!("{}:pages:taken-by:{worker}", self.prefix)
    }
}
