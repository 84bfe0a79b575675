//! Tests of errors during the login. A server may return an error to the login or to a later
//! command. The client reports the same error in both cases.

use redis_semaphore::{Error, SemaphoreClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{assert_says, kind_of, peer, refusal};
use redis_semaphore::ConnectErrorKind as Kind;
use test_support::errors::chain;
use test_support::observer::in_time;
use test_support::server::Server;

const ERRORS: [&str; 10] = [
    "-ERR AUTH <password> called without any password configured for the default user.\r\n",
    "-ERR max number of clients reached\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL\r\n",
    "-MASTERDOWN Link with MASTER is down\r\n",
    "-MISCONF Redis is configured to save RDB snapshots, but it cannot persist on disk\r\n",
    "-DENIED Redis is running in protected mode\r\n",
    "-NOAUTH Authentication required.\r\n",
    "-NOPERM User x has no permissions to run the 'ping' command\r\n",
    "-ERR something new\r\n",
];
const LOGINS: [(&str, &str); 7] = [
    ("", "3"),
    ("user:password@", ""),
    (":password@", ""),
    ("user:password@", "3"),
    ("", "?protocol=3"),
    ("", "3?protocol=3"),
    ("user:password@", "3?protocol=3"),
];

/// Replies to a client's first commands with `error`, and closes the connection.
async fn replies(mut stream: TcpStream, error: &str) {
    let mut asked = [0; 4096];
    if stream.read(&mut asked).await.is_ok_and(|length| length > 0) {
        let _ = stream.write_all(error.as_bytes()).await;
    }
}

/// Sends `error` without reading a command, like a server without free connections.
async fn rejects(mut stream: TcpStream, error: &str) {
    let _ = stream.write_all(error.as_bytes()).await;
}

/// Returns the error's kind, which programs read, and its reason, which people read.
fn reported(error: &Error) -> (Kind, String) {
    let Error::Connect { kind, reason, .. } = error else { panic!("{error:?}") };
    (*kind, reason.clone())
}

async fn are_all_alike(url: &str, error: &str) {
    let expected = reported(&refusal(url).await);
    for (user, rest) in LOGINS {
        let url = url.replace("redis://", &format!("redis://{user}")) + rest;
        let refused = refusal(&url).await;
        assert_eq!(reported(&refused), expected, "{error} to {user:?} and {rest:?}");
    }
}

#[tokio::test]
async fn an_error_in_reply_to_the_first_commands_is_the_same_for_every_login() {
    for error in ERRORS {
        are_all_alike(&peer(move |stream| replies(stream, error)).await, error).await;
    }
}

#[tokio::test]
async fn an_error_sent_before_any_command_is_the_same_for_every_login() {
    for error in ERRORS {
        are_all_alike(&peer(move |stream| rejects(stream, error)).await, error).await;
    }
}

/// A peer that does not know the command of the login may quote its arguments. A token of a cloud
/// provider has more than 1,000 characters.
#[tokio::test]
async fn an_error_that_quotes_the_login_does_not_reveal_the_password() {
    let quote = |password: &str| {
        [
            format!("-ERR unsupported command: AUTH {password}\r\n"),
            format!("-ERR unknown command 'AUTH', with args beginning with: '{password}'\r\n"),
            format!(
                "-ERR unknown command 'AUTH', with args beginning with: '{:.128}'\r\n",
                password
            ),
            format!("-{password} is not a command\r\n"),
        ]
    };
    for password in ["Xq7Zw9".to_owned(), "Xq7Zw9".repeat(300)] {
        for error in quote(&password) {
            let error: &str = error.leak();
            let url = peer(move |stream| replies(stream, error)).await;
            for login in
                [format!(":{password}@"), format!("user:{password}@"), format!("{password}@")]
            {
                let refused = refusal(&url.replace("redis://", &format!("redis://{login}"))).await;
                let texts = format!("{refused:?} {:?}", chain(&refused));
                assert!(!texts.contains("Xq7Zw9"), "{error} {login}: {texts}");
            }
        }
    }
}

fn limit_connections(server: &Server, number: u32) -> redis::Connection {
    let mut admin = server.connect();
    let number = number.to_string();
    redis::cmd("CONFIG").arg(&["SET", "maxclients", &number]).exec(&mut admin).unwrap();
    admin
}

/// A client makes two connections. The server rejects either the first connection or the second
/// connection.
#[tokio::test]
async fn connecting_reports_a_server_without_free_connections() {
    for free in [0, 1] {
        let server = Server::start();
        server.grant("+select");
        let _admin = limit_connections(&server, 1 + free);
        let anybody = server.admin_url();
        for url in [&anybody, &server.url(), &format!("{anybody}3"), &(server.url() + "3")] {
            let refused = refusal(url).await;
            assert_says(&refused, Kind::NotReady, &["its maximum number of connections"]);
            assert!(refused.is_transient(), "{free} {url}");
        }
        let all = [server.admin_url()];
        let connecting = SemaphoreClient::builder().connect_primary_of(all);
        let refused = in_time("a reply", connecting).await.unwrap_err();
        assert!(refused.to_string().contains("its maximum number of connections"), "{refused}");
        assert!(refused.is_transient(), "{:?}", kind_of(&refused));
    }
}
