//! Explains TLS failures from the errors of rustls: which side failed, and how to fix the failure.
//! The CLI inserts the names of its options: see `cli/src/failure.rs`.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// The finding, and advice.
type Trouble = (&'static str, &'static str);

const SET_CLOCKS: &str = "check its period of validity, and the clocks of this machine and the \
                          server";
const GIVE_SIGNED: &str = "use a certificate signed by an authority that the server trusts";
const NOTHING_IN_COMMON: Trouble = (
    "client and server have no TLS version, cipher or type of key in common",
    "enable TLS 1.2 or 1.3 on the server (tls-protocols, tls-ciphers), with a certificate whose key \
     is of the type RSA, ECDSA (P-256 or P-384) or Ed25519",
);
const SEE_BOTH: &str = "check the certificates, and that both sides use TLS";

/// Explains an error of rustls.
pub(super) fn trouble(error: &io::Error) -> Option<Trouble> {
    Some(match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidCertificate(error) => of_server(error),
        Error::AlertReceived(alert) => reported_by_server(*alert),
        Error::NoCertificatesPresented => {
            ("the server has no certificate", "configure one (tls-cert-file, tls-key-file)")
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            ("it does not use TLS", "try redis:// instead of rediss://")
        }
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON,
        _ => ("the TLS handshake failed", SEE_BOTH),
    })
}

/// Explains why this client rejected the server's certificate.
fn of_server(error: &CertificateError) -> Trouble {
    use CertificateError as Its;

    match error {
        Its::Expired | Its::ExpiredContext { .. } => (
            "the server's certificate has expired",
            "replace it on the server, or correct the clock of this machine",
        ),
        Its::NotValidYet | Its::NotValidYetContext { .. } => (
            "the server's certificate is not valid yet",
            "correct the clock of this machine, or wait until the certificate is valid",
        ),
        Its::NotValidForNameContext { presented, .. } if presented.is_empty() => (
            "the server's certificate names no host",
            "create one that contains the host as a subjectAltName; the common name (CN) is ignored",
        ),
        Its::NotValidForName | Its::NotValidForNameContext { .. } => (
            "the server's certificate is for another host",
            "connect to a name that the certificate contains",
        ),
        Its::UnknownIssuer => (
            "the server's certificate is not signed by an authority that this client trusts",
            "pass the authority to the client, or name it in SSL_CERT_FILE if none is passed",
        ),
        Its::BadSignature => (
            "a signature of the server's certificate is wrong",
            "if its authority has a new key, pass the authority to the client",
        ),
        Its::Revoked => {
            ("the server's certificate was revoked", "install another certificate on the server")
        }
        Its::InvalidPurpose | Its::InvalidPurposeContext { .. } => (
            "the server's certificate is not for servers",
            "give the server one with the purpose serverAuth",
        ),
        Its::Other(other) if is_authority_itself(other) => (
            "the server's certificate is that of an authority",
            "give the server one that it has signed, or one that is signed by itself and no \
             authority (openssl req -x509 -addext basicConstraints=critical,CA:FALSE), with the \
             host in its subjectAltName",
        ),
        _ => (
            "the server's certificate cannot be used",
            "see the cause below, and install another certificate on the server",
        ),
    }
}

/// Whether the server uses the certificate of an authority as its own. `openssl req -x509` creates
/// such a certificate by default.
fn is_authority_itself(other: &rustls::OtherError) -> bool {
    let error = other.0.downcast_ref::<webpki::Error>();
    matches!(error, Some(webpki::Error::CaUsedAsEndEntity))
}

/// Explains why the server rejected this client.
fn reported_by_server(alert: AlertDescription) -> Trouble {
    use AlertDescription as Its;

    match alert {
        Its::CertificateRequired => {
            ("the server requires a client certificate", "pass one to the client")
        }
        Its::CertificateExpired => (
            "the server reports that this client's certificate has expired",
            "replace it, or correct the server's clock",
        ),
        Its::UnknownCA | Its::DecryptError => {
            ("the server does not trust this client's certificate", GIVE_SIGNED)
        }
        // OpenSSL also sends this alert for a certificate that is not valid yet.
        Its::BadCertificate => {
            ("the server rejects this client's certificate as malformed", SET_CLOCKS)
        }
        Its::CertificateRevoked => {
            ("the server reports that this client's certificate was revoked", GIVE_SIGNED)
        }
        Its::CertificateUnknown | Its::UnsupportedCertificate | Its::AccessDenied => {
            ("the server rejects this client's certificate", GIVE_SIGNED)
        }
        Its::UnrecognisedName => (
            "the server does not know that host name",
            "connect to a name that its certificate contains",
        ),
        Its::ProtocolVersion | Its::HandshakeFailure | Its::InsufficientSecurity => {
            NOTHING_IN_COMMON
        }
        _ => ("the server closes the TLS connection", "its log may show the cause"),
    }
}
