//! A database with a table of sales: SQLite, through its command line program.

use std::io;
use std::process::Output;

use tokio::process::Command;

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
        answer(std::process::Command::new("sqlite3").arg(&database.path).arg(CREATE).output())?;
        Ok(database)
    }

    pub fn at(path: String) -> Self {
        Self { path, is_ours: false }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn pages(&self) -> Result<u32> {
        let query = "SELECT count(*) FROM sales";
        let output = std::process::Command::new("sqlite3").arg(&self.path).arg(query).output();
        Ok(answer(output)?.parse::<u32>()?.div_ceil(PAGE))
    }

    /// The sum of a page. As real queries take a while, it looks at all pairs of its rows, too.
    pub async fn sum_of(&self, page: u32) -> Result<i64> {
        let query = format!(
            "WITH page AS (SELECT amount FROM sales ORDER BY id LIMIT {PAGE} OFFSET {})
             SELECT sum(amount) FROM page
             WHERE (SELECT count(*) FROM page a, page b WHERE abs(a.amount - b.amount) < 1) > 0",
            page * PAGE
        );
        let mut command = Command::new("sqlite3");
        command.arg("-readonly").arg(&self.path).arg(query).kill_on_drop(true);
        Ok(answer(command.output().await)?.parse()?)
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

fn answer(output: io::Result<Output>) -> Result<String> {
    let output = output
        .map_err(|error| format!("sqlite3: {error}; Debian has it in the package sqlite3"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("sqlite3: {}, {}", output.status, reason.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
