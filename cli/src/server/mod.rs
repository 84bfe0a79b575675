//! From the options to a connection.

pub mod options;
pub mod passwords;

use std::fs;
use std::path::Path;
use std::time::Duration;

use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisResult,
};
use redis_semaphore::{Credentials, Error, Semaphores, SemaphoresBuilder};
use tokio::runtime;

use crate::failure::Failure;
use options::Server;

/// For how long the server may be busy with others.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs something with a connection of its own, which is shut down afterwards.
pub fn with<T, E: Into<Failure>>(
    server: &Server,
    run: impl AsyncFnOnce(&Semaphores) -> Result<T, E>,
) -> Result<T, Failure> {
    run_with(server, Semaphores::builder(), run)
}

/// The same for what only looks: the user need not be allowed more.
pub fn looking<T, E: Into<Failure>>(
    server: &Server,
    run: impl AsyncFnOnce(&Semaphores) -> Result<T, E>,
) -> Result<T, Failure> {
    run_with(server, Semaphores::builder().read_only(), run)
}

fn run_with<T, E: Into<Failure>>(
    server: &Server,
    builder: SemaphoresBuilder,
    run: impl AsyncFnOnce(&Semaphores) -> Result<T, E>,
) -> Result<T, Failure> {
    block_on(async {
        let semaphores = connect(server, builder).await?;
        let done = run(&semaphores).await;
        semaphores.shutdown().await;
        done.map_err(Into::into)
    })?
}

/// For other things than semaphores.
pub async fn connection_beside(client: &Client) -> RedisResult<MultiplexedConnection> {
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&settings).await
}

/// On this thread.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    block_on_runtime(&mut runtime::Builder::new_current_thread(), work)
}

pub fn block_on_runtime<T>(
    builder: &mut runtime::Builder,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    let built = builder.enable_all().build();
    let runtime = built.map_err(Failure::system("the runtime cannot be started"))?;
    let done = runtime.block_on(work);
    // A name of a host that is still being looked up must not hold this up, nor must a call that
    // has no answer yet.
    runtime.shutdown_background();
    Ok(done)
}

pub async fn connect(server: &Server, builder: SemaphoresBuilder) -> Result<Semaphores, Failure> {
    let builder = builder.prefix(&server.prefix).response_timeout(server.response_timeout);
    let builder = with_credentials(server, builder)?;
    let mut servers = Vec::new();
    for url in &server.url {
        match open(server, url)? {
            Ok(client) => servers.push(client.get_connection_info().clone()),
            // The library knows best what is wrong with it.
            Err(_) => return Ok(builder.connect(url).await?),
        }
    }
    Ok(match &server.sentinel {
        Some(service) => {
            let primary = primary(&servers)?;
            builder.connect_sentinels(servers, service, primary).await?
        }
        None if server.cluster => builder.connect_cluster(servers).await?,
        None => match <[ConnectionInfo; 1]>::try_from(servers) {
            Ok([one]) => match one.addr() {
                ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
                    builder.connect_client(Client::open(one).map_err(Error::from)?).await?
                }
                // All is said by the URL, and the library sees best what is wrong with that.
                _ => builder.connect(&server.url[0]).await?,
            },
            Err(servers) => builder.connect_primary_of(servers).await?,
        },
    })
}

/// For commands beside those of semaphores: where there is one server, and no more.
pub fn single(server: &Server) -> Result<Option<Client>, Failure> {
    let [url] = &server.url[..] else { return Ok(None) };
    if server.cluster || server.sentinel.is_some() {
        return Ok(None);
    }
    let client = open(server, url)?
        .map_err(|error| Failure::usage(format!("--url (REDIS_URL): {error}")))?;
    let Some((user, password)) = credentials(server)? else { return Ok(Some(client)) };
    let info = client.get_connection_info();
    let user = user.unwrap_or_else(|| "default".to_owned()); // also where the URL has another one
    let settings = info.redis_settings().clone().set_username(user).set_password(password);
    Ok(Some(Client::open(info.clone().set_redis_settings(settings)).map_err(Error::from)?))
}

/// How to reach the primary: it speaks TLS where its sentinels do. User and password of the URLs are
/// for the sentinels.
fn primary(sentinels: &[ConnectionInfo]) -> Result<ConnectionInfo, Failure> {
    let first = sentinels.first().ok_or_else(|| Failure::usage("--sentinel: no URL"))?;
    let settings = RedisConnectionInfo::default().set_db(first.redis_settings().db());
    Ok(first.clone().set_redis_settings(settings))
}

/// Before each connection, since a password in a file may change.
fn with_credentials(
    server: &Server,
    builder: SemaphoresBuilder,
) -> Result<SemaphoresBuilder, Failure> {
    if credentials(server)?.is_none() {
        return Ok(builder);
    }
    let server = server.clone();
    Ok(builder.credentials_provider(move || {
        let found = credentials(&server);
        async move {
            match found {
                Ok(Some((Some(user), password))) => Ok(Credentials::new(password).username(user)),
                Ok(Some((None, password))) => Ok(Credentials::new(password)),
                Ok(None) => Err("the password has gone".into()),
                Err(failure) => Err(failure.reason),
            }
        }
    }))
}

/// User and password, where they are not in the URL.
fn credentials(server: &Server) -> Result<Option<(Option<String>, String)>, Failure> {
    let password = match &server.password_file {
        Some(file) => Some(String::from_utf8_lossy(&read("--password-file", file)?).into_owned()),
        None => std::env::var("REDIS_PASSWORD").ok(),
    };
    let password = password.map(|password| password.trim_end_matches(['\n', '\r']).to_owned());
    match password.filter(|password| !password.is_empty()) {
        Some(password) => Ok(Some((server.user.clone(), password))),
        None if server.user.is_some() || server.password_file.is_some() => Err(Failure::usage(
            "no password: --password-file names a file that has one, or REDIS_PASSWORD in the \
             environment is one",
        )),
        None => Ok(None),
    }
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::usage(format!("{option}: {}: {error}", file.display())))
}

type Opened = Result<Client, redis_semaphore::redis::RedisError>;

#[cfg_attr(not(feature = "tls"), expect(unused_variables))]
fn open(server: &Server, url: &str) -> Result<Opened, Failure> {
    check(url)?;
    let opened = Client::open(url);
    #[cfg(feature = "tls")]
    if let (Ok(client), Some(certificates)) = (&opened, certificates(server)?) {
        let info = client.get_connection_info().clone();
        let wrong = |error| Failure::usage(format!("--tls-ca, --tls-cert, --tls-key: {error}"));
        return Client::build_with_tls(info, certificates).map(Ok).map_err(wrong);
    }
    Ok(opened)
}

/// Another database is another semaphore. The library refuses this, too, where it sees the URL.
fn check(url: &str) -> Result<(), Failure> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let counts = |pair: &str| !pair.contains('=') || pair.starts_with("protocol=");
    match url.contains("unix://") || query.split('&').all(counts) {
        true => Ok(()),
        false => Err(Failure::usage(
            "--url (REDIS_URL): what is behind \"?\" does not count: a database is told like \
             redis://host:6379/3",
        )),
    }
}

#[cfg(feature = "tls")]
fn certificates(
    server: &Server,
) -> Result<Option<redis_semaphore::redis::TlsCertificates>, Failure> {
    use redis_semaphore::redis::{ClientTlsConfig, TlsCertificates};

    let read_if =
        |option, file: &Option<_>| file.as_deref().map(|file| read(option, file)).transpose();
    let root_cert = read_if("--tls-ca", &server.tls_ca)?;
    let client_cert = read_if("--tls-cert", &server.tls_cert)?;
    let client_key = read_if("--tls-key", &server.tls_key)?;
    let client_tls = client_cert
        .zip(client_key)
        .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let is_any = root_cert.is_some() || client_tls.is_some();
    Ok(is_any.then_some(TlsCertificates { client_tls, root_cert }))
}
