//! The processes of an example: this program, started again with other arguments.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::start::Result;

/// Starts a process for each list of arguments, and returns when all have ended well. What they
/// print goes to `hear`, line by line. When one fails, the others are killed.
pub async fn run(
    roles: impl IntoIterator<Item = Vec<String>>,
    mut hear: impl FnMut(&str),
) -> Result<()> {
    let program = std::env::current_exe()?;
    let (sender, mut lines) = unbounded_channel();
    let mut processes = JoinSet::new();
    for role in roles {
        let child = Command::new(&program)
            .args(&role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let sender = sender.clone();
        processes.spawn(async move {
            if let Err(error) = pass_on_lines(child, &sender).await {
                let error = format!("{}: {error}", role.join(" "));
                // Nobody listens any more after the first failure.
                let _ = sender.send(Err(error.into()));
            }
        });
    }
    drop(sender);
    while let Some(line) = lines.recv().await {
        hear(&line?);
    }
    Ok(())
}

async fn pass_on_lines(mut child: Child, sender: &UnboundedSender<Result<String>>) -> Result<()> {
    // Open until the process has ended: see end_with_parent.
    let _life = child.stdin.take();
    let mut lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    while let Some(line) = lines.next_line().await? {
        sender.send(Ok(line))?;
    }
    match child.wait().await? {
        status if status.success() => Ok(()),
        status => Err(status.to_string().into()),
    }
}

/// In a process of the crew: ends it when the one that started it is gone, however that ended.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        // Nothing is ever written to it. An error is an end, too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}
