//! `doctor`: what endangers the semaphores on a server.

use std::process::ExitCode;

use redis_semaphore::{Diagnosis, Semaphores, Verdict};
use serde_json::json;

use crate::failure::Failure;
use crate::options::{Doctor, Server};
use crate::server::with;

pub fn run(server: &Server, asked: &Doctor) -> Result<ExitCode, Failure> {
    let diagnosis = with(server, async |semaphores: &Semaphores| semaphores.doctor().await)?;
    match asked.json {
        true => println!("{}", as_json(&diagnosis)),
        false => println!("{diagnosis}"),
    }
    Ok(match diagnosis.worst() {
        Verdict::Danger => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn as_json(diagnosis: &Diagnosis) -> serde_json::Value {
    json!({ "worst": format!("{:?}", diagnosis.worst()).to_lowercase() })
}
