//! A database with a table of sales: SQLite.

use rusqlite::{Connection, OpenFlags};

use crate::start::Result;

const PAGE: u32 = 800;

const CREATE: &str = "
    CREATE TABLE sales (id INTEGER PRIMARY KEY, amount INTEGER);
    INSERT INTO sales WITH RECURSIVE numbers (i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 9500)
        SELECT i, i * 7919 % 1000 FROM numbers;";

pub struct Database {
    path: String,
    is_ours: bool,
}

impl Database {
    /// A new one, which is deleted in the end.
    pub fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pages-{}.sqlite", std::process::id()));
        let path = path.into_os_string().into_string().map_err(|_| "a path that is not UTF-8")?;
        let database = Self { path, is_ours: true };
        Connection::open(&database.path)?.execute_batch(CREATE)?;
        Ok(database)
    }

    pub fn at(path: String) -> Self {
        Self { path, is_ours: false }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn pages(&self) -> Result<u32> {
        let count = Connection::open(&self.path)?;
        let rows: u32 = count.query_row("SELECT count(*) FROM sales", [], |row| row.get(0))?;
        Ok(rows.div_ceil(PAGE))
    }

    /// The sum of a page. As real queries take a while, it looks at all pairs of its rows, too.
    pub async fn sum_of(&self, page: u32) -> Result<i64> {
        let query = format!(
            "WITH page AS (SELECT amount FROM sales ORDER BY id LIMIT {PAGE} OFFSET {})
             SELECT sum(amount) FROM page
             WHERE (SELECT count(*) FROM page a, page b WHERE abs(a.amount - b.amount) < 1) > 0",
            page * PAGE
        );
        let database = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        // Whoever stops waiting for the sum stops the query.
        let stop = Stop(database.get_interrupt_handle());
        let sum =
            tokio::task::spawn_blocking(move || database.query_row(&query, [], |row| row.get(0)));
        let sum = sum.await??;
        drop(stop);
        Ok(sum)
    }
}

struct Stop(rusqlite::InterruptHandle);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.is_ours {
            // There is none if it could not be created.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
