//! What TLS needs, and what it looks like when the two sides do not agree on it.

use redis::RedisError;

/// rustls panics when it must choose between several crates for cryptography, which other parts of
/// a program may bring in. Whatever the program has chosen before stays.
pub(crate) fn choose_cryptography() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails where somebody else has chosen in this moment.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// What is looked for in the texts of rustls, what it means, and what to do. The tool puts the names
/// of its options into that: see `cli/src/failure.rs`.
const TROUBLES: [(&str, &str, &str); 8] = [
    (
        "UnknownIssuer",
        "nobody whom this machine trusts has signed its certificate",
        "name the authority to the client, or in SSL_CERT_FILE",
    ),
    (
        "not valid for name",
        "its certificate is for another host",
        "connect to a name that stands in the certificate",
    ),
    ("Expired", "its certificate has expired", "renew it, or set the clock of this machine"),
    ("NotValidYet", "its certificate is not valid yet", "set the clock of this machine"),
    ("CertificateRequired", "it wants a certificate of its clients", "give the client one"),
    (
        "UnknownCA",
        "it does not trust the certificate of this client",
        "give the client one that an authority of the server has signed",
    ),
    (
        "DecryptError",
        "it does not trust the certificate of this client",
        "give the client one that an authority of the server has signed",
    ),
    ("InvalidContentType", "it answers without TLS", "try redis:// instead of rediss://"),
];

/// What was found, and what to do.
pub(crate) fn trouble(error: &RedisError) -> Option<(&'static str, &'static str)> {
    let text = error.to_string();
    let trouble = TROUBLES.iter().find(|(words, ..)| text.contains(words));
    trouble.map(|(_, found, advice)| (*found, *advice))
}
