//! What TLS needs, and what it looks like when only one side speaks it.

use redis::{ConnectionAddr, RedisError};

/// rustls panics when it must choose between several crates for cryptography, which other parts of
/// a program may bring in. Whatever the program has chosen before stays.
pub(crate) fn choose_cryptography() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails where somebody else has chosen in this moment.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// What is wrong with a URL.
pub(crate) fn explain_url(error: &RedisError) -> String {
    match error.to_string().contains("feature is not enabled") {
        true => "it asks for TLS: build with the feature \"tls\" of redis-semaphore".to_owned(),
        false => error.to_string(),
    }
}

/// What went wrong on the way to a server. It is no TLS error when the other side does not know TLS.
pub(crate) fn explain(address: &ConnectionAddr, error: &RedisError) -> String {
    let reason = error.to_string();
    match address {
        ConnectionAddr::Tcp(..) if error.is_connection_dropped() => {
            format!("{reason}; a server that wants TLS at this port does so, too: try rediss://")
        }
        ConnectionAddr::TcpTls { .. }
            if error.is_timeout() || reason.contains("InvalidContentType") =>
        {
            format!("{reason}; a server without TLS at this port does so, too: try redis://")
        }
        _ => reason,
    }
}
