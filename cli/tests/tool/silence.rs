//! Tests the CLI with a server that does not reply.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::eventually;
use crate::support::process::Process;
use crate::support::tool::tool;

/// A response timeout that is longer than the test.
const PATIENT: [&str; 2] = ["--response-timeout", "10min"];

#[test]
fn sigterm_ends_a_cli_that_is_connecting() {
    for command in ["ls", "load", "demo"] {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", silent.local_addr().unwrap());
        let mut command = tool(&[&PATIENT[..], &[command]].concat());
        command.env("REDIS_URL", url).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tool = Process::start(&mut command);
        let _connection = silent.accept().unwrap();
        tool.signal(Signal::SIGTERM);
        let ended = eventually("its end", || tool.0.try_wait().unwrap());
        assert_eq!(ended.signal(), Some(Signal::SIGTERM as i32), "{command:?}");
    }
}
