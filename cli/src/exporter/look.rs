//! A look at all semaphores.

use redis_semaphore::{Error, SemaphoreClient};

use crate::exporter::options::Exporter;
use crate::survey::{Summaries, Summary, survey};

#[derive(Debug)]
pub struct Picture {
    pub summaries: Summaries,
    /// The number of keys in the database. `None` if the user may not run DBSIZE.
    pub keys: Option<u64>,
    /// How many semaphores were not read, because --max-semaphores was reached.
    pub over_max: usize,
}

impl Picture {
    pub fn reported(&self) -> impl Iterator<Item = (&str, &Summary)> {
        self.summaries.iter().filter_map(|(name, found)| Some((&**name, found.as_ref().ok()?)))
    }

    /// Returns the number of semaphores for which the server rejected the call.
    pub fn refused(&self) -> usize {
        self.summaries.values().filter(|found| found.is_err()).count()
    }
}

pub async fn look(semaphores: &SemaphoreClient, asked: &Exporter) -> Result<Picture, Error> {
    let found = semaphores.names().await?;
    let is_wanted = |name: &String| asked.only.as_ref().is_none_or(|only| only.fits(name));
    let mut names: Vec<_> = found.names.into_iter().filter(is_wanted).collect();
    let max = asked.max_semaphores as usize;
    let over_max = names.len().saturating_sub(max);
    names.truncate(max);
    let summaries = survey(semaphores, names).await?;
    Ok(Picture { summaries, keys: found.keys, over_max })
}
