//! Tests the CLI with a server that does not reply, and with a server that rejects writes.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::eventually;
use crate::support::process::Process;
use crate::support::server::Server;
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

#[tokio::test]
async fn reading_subcommands_work_while_the_server_rejects_writes() {
    for begin in ["", "CONFIG SET maxmemory 1", "CONFIG SET min-replicas-to-write 1"] {
        let server = Server::start();
        let client = server.semaphores().await;
        let jobs = client.semaphore("jobs").limit(3).build().unwrap();
        let _held = jobs.acquire().await.unwrap();
        match begin {
            "" => server.fail_to_save(),
            begin => server.run(begin),
        }
        for (arguments, expected) in [
            (&["ls"][..], "\njobs  1/3"),
            (
                &["inspect", "jobs"],
                "jobs: limit 3 (declared: 3, runtime: none), held 1, queued 0\n",
            ),
            (&["limit", "jobs"], "jobs: limit 3 (declared)\n"),
        ] {
            let outcome = server.tool(arguments);
            assert_eq!(outcome.status, Some(0), "{begin}: {outcome:?}");
            assert!(outcome.stdout.contains(expected), "{begin}: {outcome:?}");
        }
        let outcome = server.tool(&["doctor"]);
        assert!(outcome.stdout.contains("critical"), "{begin}: {outcome:?}");
        assert_eq!((outcome.status, &*outcome.stderr), (Some(1), ""), "{begin}: {outcome:?}");
    }
}
