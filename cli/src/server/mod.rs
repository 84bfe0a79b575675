//! Connects according to the server options.

mod files;
pub mod options;
pub mod passwords;

use std::time::Duration;

#[cfg(feature = "tls")]
use redis_semaphore::redis::TlsCertificates;
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisResult,
};
use redis_semaphore::{Credentials, Error, IntoServer, SemaphoreClient, SemaphoreClientBuilder};
use tokio::runtime;

use crate::failure::Failure;
pub use files::kept as kept_files;
use options::Server;

/// The timeout for commands that are not part of semaphores.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs work with a client, which is shut down afterwards.
pub fn with<T, E: Into<Failure>>(
    server: &Server,
    run: impl AsyncFnOnce(&SemaphoreClient) -> Result<T, E>,
) -> Result<T, Failure> {
    run_with(server, SemaphoreClient::builder(), run)
}

/// Runs work like `with`, for a read-only user.
pub fn looking<T, E: Into<Failure>>(
    server: &Server,
    run: impl AsyncFnOnce(&SemaphoreClient) -> Result<T, E>,
) -> Result<T, Failure> {
    run_with(server, SemaphoreClient::builder().read_only(), run)
}

/// Runs work like `with`, with a client from this builder.
pub fn run_with<T, E: Into<Failure>>(
    server: &Server,
    builder: SemaphoreClientBuilder,
    run: impl AsyncFnOnce(&SemaphoreClient) -> Result<T, E>,
) -> Result<T, Failure> {
    block_on(async {
        let client = connect(server, builder).await?;
        let done = run(&client).await;
        client.shutdown().await;
        done.map_err(Into::into)
    })?
}

/// Opens a connection for commands that are not part of semaphores.
pub async fn connection_beside(client: &Client) -> RedisResult<MultiplexedConnection> {
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&settings).await
}

/// Runs work on this thread.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    block_on_runtime(&mut runtime::Builder::new_current_thread(), work)
}

pub fn block_on_runtime<T>(
    builder: &mut runtime::Builder,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    let built = builder.enable_all().build();
    let runtime = built.map_err(Failure::system("cannot start the async runtime"))?;
    let done = runtime.block_on(work);
    // This process ends soon. Dropping the runtime would block on a host name lookup that is still
    // running, and on calls that the library still makes.
    std::mem::forget(runtime);
    Ok(done)
}

/// Reads the files that the options name, and keeps input that cannot be read twice. This blocks, for
/// example if a FIFO has no writer yet. Call it before signal handlers are installed, so that a
/// signal ends the process.
pub fn read_files(server: &Server) -> Result<(), Failure> {
    passwords::check_places(server)?;
    passwords::read(server)?;
    #[cfg(feature = "tls")]
    certificates(server)?;
    Ok(())
}

pub async fn connect(
    server: &Server,
    builder: SemaphoreClientBuilder,
) -> Result<SemaphoreClient, Failure> {
    let connected = connected(server, builder).await;
    connected.map_err(|Failure { status, reason }| match &server.user {
        // The library does not show a user without a password, because the name may be a password
        // by mistake.
        Some(user) => {
            let named = format!("the user {user:?} without a password");
            let reason = reason.replace("the user of the URL without a password", &named);
            Failure { status, reason }
        }
        None => Failure { status, reason },
    })
}

async fn connected(
    server: &Server,
    builder: SemaphoreClientBuilder,
) -> Result<SemaphoreClient, Failure> {
    let builder = builder.prefix(&server.prefix).response_timeout(server.response_timeout);
    passwords::check_places(server)?;
    let servers = servers(server)?;
    check_user(server, &servers)?;
    if server.sentinel.is_some() {
        check_alike(&servers)?;
    }
    let builder = with_certificates(server, with_credentials(server, builder)?)?;
    if let Some(service) = &server.sentinel {
        let primary = primary(&servers)?;
        return Ok(builder.connect_sentinels(servers, service, primary).await?);
    }
    let servers = servers.into_iter().map(|info| with_login(server, info));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    Ok(match <[ConnectionInfo; 1]>::try_from(servers) {
        Ok(one) if server.cluster => builder.connect_cluster(one).await?,
        Ok([one]) => builder.connect_client(Client::open(one).map_err(Error::from)?).await?,
        Err(several) if server.cluster => builder.connect_cluster(several).await?,
        Err(several) => builder.connect_primary_of(several).await?,
    })
}

/// Returns a client for commands that are not part of semaphores, if the options name a single
/// server.
pub fn single(server: &Server) -> Result<Option<Client>, Failure> {
    let [url] = &server.url[..] else { return Ok(None) };
    if server.cluster || server.sentinel.is_some() {
        return Ok(None);
    }
    let info = with_login(server, url.into_server()?)?;
    // The user may lack the right to run CLIENT SETINFO.
    let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
    if let Some(password) = passwords::read(server)? {
        settings = settings.set_password(password);
    }
    open(server, info.set_redis_settings(settings)).map(Some)
}

fn servers(server: &Server) -> Result<Vec<ConnectionInfo>, Failure> {
    Ok(server.url.iter().map(IntoServer::into_server).collect::<Result<_, _>>()?)
}

/// Rejects a user name with a colon if no password is given. A password may follow the colon, and
/// an error message would show it.
fn check_user(server: &Server, servers: &[ConnectionInfo]) -> Result<(), Failure> {
    let is_suspect = server.user.as_ref().is_some_and(|user| user.contains(':'));
    let of_url = |info: &ConnectionInfo| info.redis_settings().password().unwrap_or_default() != "";
    if !is_suspect || passwords::read(server)?.is_some() || servers.iter().any(of_url) {
        return Ok(());
    }
    Err(Failure::usage(
        "--user (REDIS_USER) contains a colon, but no password was given: if the password is \
         behind the colon, put it into REDIS_PASSWORD or --password-file",
    ))
}

/// Combines the user and password of the URL with those from other sources. A value from two
/// sources must be the same in both.
fn with_login(server: &Server, info: ConnectionInfo) -> Result<ConnectionInfo, Failure> {
    let mut settings = info.redis_settings().clone();
    let of_url = settings.password().filter(|password| !password.is_empty()).map(str::to_owned);
    let elsewhere = passwords::read(server)?;
    match (&server.user, settings.username()) {
        (Some(user), Some(other)) if user != other => {
            return Err(Failure::usage(
                "--user (REDIS_USER) and the URL name different users: remove one of them",
            ));
        }
        (Some(user), _) => {
            settings = settings.set_username(user);
            // redis-rs does not authenticate without a password, so a user without a password gets
            // an empty password.
            if of_url.is_none() {
                settings = settings.set_password("");
            }
        }
        (None, _) => {}
    }
    match (&elsewhere, &of_url) {
        (Some(password), Some(other)) if password != other => {
            return Err(Failure::usage(
                "the password in the URL differs from --password-file or REDIS_PASSWORD: remove \
                 one of them",
            ));
        }
        // The credentials provider supplies the password before each connection, so it is not
        // needed here.
        (Some(_), Some(_)) => settings = settings.set_password(""),
        _ => {}
    }
    Ok(info.set_redis_settings(settings))
}

/// Returns how to reach the primary: over TLS if its sentinels use TLS. The users and passwords of
/// the URLs are for the sentinels.
fn primary(sentinels: &[ConnectionInfo]) -> Result<ConnectionInfo, Failure> {
    let first = sentinels.first().ok_or_else(|| Failure::usage("--sentinel needs a URL"))?;
    let settings = RedisConnectionInfo::default().set_db(first.redis_settings().db());
    Ok(first.clone().set_redis_settings(settings))
}

fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Fails if the URLs differ in user, password, database or TLS, because the first URL decides for
/// all sentinels.
fn check_alike(sentinels: &[ConnectionInfo]) -> Result<(), Failure> {
    let given = |info: &ConnectionInfo| {
        let its = info.redis_settings();
        let user = its.username().zip(its.password()).map(|(user, _)| user.to_owned());
        (is_tls(info), its.db(), user, its.password().map(str::to_owned))
    };
    match sentinels.windows(2).all(|pair| given(&pair[0]) == given(&pair[1])) {
        true => Ok(()),
        false => Err(Failure::usage(
            "--url (REDIS_URL): the URLs of all sentinels must have the same user, password and \
             database, and either all or none of them must use TLS",
        )),
    }
}

/// Returns the user and password from sources other than the URL.
fn login_elsewhere(server: &Server) -> Result<Option<(Option<String>, String)>, Failure> {
    match passwords::read(server)? {
        Some(password) => Ok(Some((server.user.clone(), password))),
        None if server.sentinel.is_some() => {
            Ok(server.user.clone().map(|user| (Some(user), String::new())))
        }
        None => Ok(None),
    }
}

/// Supplies the credentials before each connection, because a password in a file may change.
fn with_credentials(
    server: &Server,
    builder: SemaphoreClientBuilder,
) -> Result<SemaphoreClientBuilder, Failure> {
    if login_elsewhere(server)?.is_none() {
        return Ok(builder);
    }
    let server = server.clone();
    Ok(builder.credentials_provider(move || {
        let server = server.clone();
        async move {
            // Reading the file may block, for example on a network file system.
            match tokio::task::spawn_blocking(move || login_elsewhere(&server)).await {
                Ok(Ok(Some((Some(user), password)))) => {
                    Ok(Credentials::new(password).username(user))
                }
                Ok(Ok(Some((None, password)))) => Ok(Credentials::new(password)),
                Ok(Ok(None)) => Err("the password was removed".into()),
                Ok(Err(failure)) => Err(failure.reason),
                Err(ended) => Err(ended.to_string()),
            }
        }
    }))
}

#[cfg(feature = "tls")]
fn with_certificates(
    server: &Server,
    builder: SemaphoreClientBuilder,
) -> Result<SemaphoreClientBuilder, Failure> {
    Ok(match certificates(server)? {
        Some(certificates) => builder.certificates(certificates),
        None => builder,
    })
}

#[cfg(not(feature = "tls"))]
fn with_certificates(
    _: &Server,
    builder: SemaphoreClientBuilder,
) -> Result<SemaphoreClientBuilder, Failure> {
    Ok(builder)
}

#[cfg_attr(not(feature = "tls"), expect(unused_variables))]
fn open(server: &Server, info: ConnectionInfo) -> Result<Client, Failure> {
    #[cfg(feature = "tls")]
    if let Some(certificates) = certificates(server)? {
        let wrong = |error| Failure::usage(format!("--tls-ca, --tls-cert, --tls-key: {error}"));
        return Client::build_with_tls(info, certificates).map_err(wrong);
    }
    Ok(Client::open(info).map_err(Error::from)?)
}

#[cfg(feature = "tls")]
fn certificates(server: &Server) -> Result<Option<TlsCertificates>, Failure> {
    use std::path::PathBuf;

    use redis_semaphore::redis::ClientTlsConfig;

    let read_if = |option, file: &Option<PathBuf>| {
        file.as_deref().map(|file| files::read(option, file)).transpose()
    };
    let root_cert = read_if("--tls-ca", &server.tls_ca)?;
    let client_cert = read_if("--tls-cert", &server.tls_cert)?;
    let client_key = read_if("--tls-key", &server.tls_key)?;
    let client_tls = client_cert
        .zip(client_key)
        .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let is_any = root_cert.is_some() || client_tls.is_some();
    Ok(is_any.then_some(TlsCertificates { client_tls, root_cert }))
}
