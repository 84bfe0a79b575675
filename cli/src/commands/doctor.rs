//! `doctor`: checks the server for problems that endanger semaphores.

use std::io::stdout;
use std::process::ExitCode;

use clap::Args;
use redis_semaphore::{Check, Diagnosis, SemaphoreClient, ServerReport, Verdict};
use serde_json::{Value, json};

use crate::escape;
use crate::failure::{Failure, with_options};
use crate::format::Format;
use crate::output::{note, say_json, write};
use crate::paint::Paint;
use crate::server::options::Server;
use crate::server::run_with;

#[derive(Debug, Args)]
#[command(
    after_help = "Verdicts: ok, notice (may be intended), critical, or unchecked (the user lacks \
                  a right). Changes made with CONFIG SET are lost when the server restarts: run \
                  CONFIG REWRITE to keep them.\n\nExit status: 0 if nothing is critical, 1 if \
                  something is."
)]
pub struct Doctor {
    /// Require only the rights of a read-only user.
    #[arg(long)]
    pub read_only: bool,
    #[command(flatten)]
    pub format: Format,
}

pub fn run(server: &Server, asked: &Doctor) -> Result<ExitCode, Failure> {
    let builder = match asked.read_only {
        true => SemaphoreClient::builder().read_only(),
        // A missing right is a finding, and no reason to skip the other checks.
        false => SemaphoreClient::builder().for_doctor(),
    };
    let diagnosis = run_with(server, builder, async |client| client.doctor().await)?;
    if !asked.read_only && lacks_right(&diagnosis) {
        note("an application needs these rights; for a user that only reads, add --read-only");
    }
    match asked.format.json {
        true => say_json(&as_json(&diagnosis))?,
        false => write(format!("{}\n", as_text(diagnosis.clone())).as_bytes())?,
    }
    Ok(match diagnosis.worst() {
        Verdict::Critical => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Returns whether the user lacks a right that semaphores need.
fn lacks_right(diagnosis: &Diagnosis) -> bool {
    let mut checks = diagnosis.servers.iter().flat_map(|server| &server.checks);
    checks.any(|check| {
        check.verdict == Verdict::Critical
            && check.fix.as_ref().is_some_and(|fix| fix.starts_with("ACL SETUSER"))
    })
}

fn as_json(diagnosis: &Diagnosis) -> Value {
    let check = |check: &Check| {
        json!({
            "name": check.name,
            "verdict": check.verdict.to_string(),
            "finding": check.finding,
            "fix": check.fix.as_deref().map(with_options),
        })
    };
    let server = |server: &ServerReport| {
        json!({
            "address": server.address,
            "version": server.version,
            "checks": server.checks.iter().map(check).collect::<Vec<_>>(),
        })
    };
    json!({
        "worst": diagnosis.worst().to_string(),
        "servers": diagnosis.servers.iter().map(server).collect::<Vec<_>>(),
    })
}

/// Formats the diagnosis as the library does, with colored verdicts if the output has colors.
fn as_text(mut diagnosis: Diagnosis) -> String {
    for server in &mut diagnosis.servers {
        let checks = server.checks.iter_mut();
        let texts = checks.flat_map(|check| [Some(&mut check.finding), check.fix.as_mut()]);
        let texts = texts.flatten().chain([&mut server.address, &mut server.version]);
        texts.for_each(|text| *text = escape::line(&with_options(text)));
    }
    let (text, paint) = (diagnosis.to_string(), Paint::on(&stdout()));
    let colored = [
        (Verdict::Critical, paint.red(&Verdict::Critical.to_string())),
        (Verdict::Notice, paint.yellow(&Verdict::Notice.to_string())),
        (Verdict::Unchecked, paint.magenta(&Verdict::Unchecked.to_string())),
        (Verdict::Ok, paint.green(&Verdict::Ok.to_string())),
    ];
    colored.iter().fold(text, |text, (verdict, colored)| {
        text.replace(&format!("\n{verdict} "), &format!("\n{colored} "))
    })
}
