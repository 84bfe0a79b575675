//! `doctor`: what endangers the semaphores on a server.

use std::io::stdout;
use std::process::ExitCode;

use clap::Args;
use redis_semaphore::{Check, Diagnosis, SemaphoreClient, ServerReport, Verdict};
use serde_json::{Value, json};

use crate::escape;
use crate::failure::Failure;
use crate::format::Format;
use crate::output::{say_json, write};
use crate::paint::Paint;
use crate::server::looking;
use crate::server::options::Server;

#[derive(Debug, Args)]
#[command(
    after_help = "Of each check: fine, a hint (which may be meant so), a danger, or unchecked, where the \
                  user may not look. What CONFIG SET mends lasts until the server restarts: CONFIG \
                  REWRITE keeps it.\n\nExit status: 0 no danger was found, 1 there is a danger, others as \
                  for all commands."
)]
pub struct Doctor {
    #[command(flatten)]
    pub format: Format,
}

pub fn run(server: &Server, asked: &Doctor) -> Result<ExitCode, Failure> {
    // A right that is lacking is a finding like others, and no reason not to look.
    let diagnosis = looking(server, async |client: &SemaphoreClient| client.doctor().await)?;
    match asked.format.json {
        true => say_json(&as_json(&diagnosis))?,
        false => write(format!("{}\n", as_text(diagnosis.clone())).as_bytes())?,
    }
    Ok(match diagnosis.worst() {
        Verdict::Critical => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn as_json(diagnosis: &Diagnosis) -> Value {
    let check = |check: &Check| {
        json!({
            "name": check.name,
            "verdict": check.verdict.to_string(),
            "finding": check.finding,
            "fix": check.fix,
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

/// As the library displays it, with the verdicts in colours where there are some.
fn as_text(mut diagnosis: Diagnosis) -> String {
    for server in &mut diagnosis.servers {
        let checks = server.checks.iter_mut();
        let told = checks.flat_map(|check| [Some(&mut check.finding), check.fix.as_mut()]);
        let told = told.flatten().chain([&mut server.address, &mut server.version]);
        told.for_each(|text| *text = escape::line(text));
    }
    let (text, paint) = (diagnosis.to_string(), Paint::on(&stdout()));
    let coloured = [
        (Verdict::Critical, paint.red(&Verdict::Critical.to_string())),
        (Verdict::Notice, paint.yellow(&Verdict::Notice.to_string())),
        (Verdict::Unchecked, paint.magenta(&Verdict::Unchecked.to_string())),
        (Verdict::Ok, paint.green(&Verdict::Ok.to_string())),
    ];
    coloured.iter().fold(text, |text, (verdict, coloured)| {
        text.replace(&format!("\n{verdict} "), &format!("\n{coloured} "))
    })
}
