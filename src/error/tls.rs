//! What it means that TLS fails, by what rustls says: on which side, and what to do there. The tool
//! puts the names of its options into that: see `cli/src/failure.rs`.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// What was found, and what to do.
type Trouble = (&'static str, &'static str);

const SET_CLOCKS: &str = "see until when it is valid, and set the clock of this machine or of the \
                          server if one is wrong";
const GIVE_SIGNED: &str = "give the client one that an authority of the server has signed";
const SEE_BOTH: &str = "look at the certificates, and whether both sides use TLS";

/// Where it is rustls that failed.
pub(super) fn trouble(error: &io::Error) -> Option<Trouble> {
    Some(match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidCertificate(error) => of_server(error),
        Error::AlertReceived(alert) => told_by_server(*alert),
        Error::NoCertificatesPresented => {
            ("the server shows no certificate", "give it one (tls-cert-file, tls-key-file)")
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            ("it answers without TLS", "try redis:// instead of rediss://")
        }
        Error::PeerIncompatible(_) => (
            "the two sides have no version or cipher of TLS in common",
            "let the server speak TLS 1.2 or 1.3 (tls-protocols, tls-ciphers)",
        ),
        _ => ("the two sides do not agree on TLS", SEE_BOTH),
    })
}

/// What this side has against the server's certificate.
fn of_server(error: &CertificateError) -> Trouble {
    use CertificateError as Its;

    match error {
        Its::Expired | Its::ExpiredContext { .. } => (
            "the server's certificate has expired",
            "renew that one at the server, or set the clock of this machine if that is wrong",
        ),
        Its::NotValidYet | Its::NotValidYetContext { .. } => (
            "the server's certificate is not valid yet",
            "set the clock of this machine, or wait until it is valid",
        ),
        Its::NotValidForName | Its::NotValidForNameContext { .. } => (
            "the server's certificate is for another host",
            "connect to a name that stands in the certificate",
        ),
        Its::UnknownIssuer => (
            "nobody whom this machine trusts has signed the server's certificate",
            "name the authority to the client, or in SSL_CERT_FILE",
        ),
        Its::Revoked => ("the server's certificate was revoked", "give the server another one"),
        Its::InvalidPurpose | Its::InvalidPurposeContext { .. } => (
            "the server's certificate is not for servers",
            "give the server one with the purpose serverAuth",
        ),
        Its::Other(other) if is_authority_itself(other) => (
            "the server shows the certificate of an authority as its own",
            "give the server one that it has signed, or one that is signed by itself and no authority \
             (openssl req -x509 -addext basicConstraints=critical,CA:FALSE), with the host in its \
             subjectAltName",
        ),
        _ => (
            "the server's certificate cannot be used",
            "see below why, and give the server another",
        ),
    }
}

/// What `openssl req -x509` makes unless told otherwise.
fn is_authority_itself(other: &rustls::OtherError) -> bool {
    let error = other.0.downcast_ref::<webpki::Error>();
    matches!(error, Some(webpki::Error::CaUsedAsEndEntity))
}

/// What the server has against us.
fn told_by_server(alert: AlertDescription) -> Trouble {
    use AlertDescription as Its;

    match alert {
        Its::CertificateRequired => {
            ("the server wants a certificate of its clients", "give the client one")
        }
        Its::CertificateExpired => (
            "the server says that the certificate of this client has expired",
            "renew that one, or set the clock of the server if that is wrong",
        ),
        Its::UnknownCA | Its::DecryptError => {
            ("the server does not trust the certificate of this client", GIVE_SIGNED)
        }
        // So does OpenSSL call one that is not valid yet.
        Its::BadCertificate => {
            ("the server refuses the certificate of this client as it is", SET_CLOCKS)
        }
        Its::CertificateRevoked => {
            ("the server says that the certificate of this client was revoked", GIVE_SIGNED)
        }
        Its::CertificateUnknown | Its::UnsupportedCertificate | Its::AccessDenied => {
            ("the server refuses the certificate of this client", GIVE_SIGNED)
        }
        Its::UnrecognisedName => (
            "the server does not go by that name",
            "connect to a name that stands in its certificate",
        ),
        Its::ProtocolVersion | Its::HandshakeFailure | Its::InsufficientSecurity => (
            "the server has no version or cipher of TLS in common with this client",
            "let the server speak TLS 1.2 or 1.3 (tls-protocols, tls-ciphers)",
        ),
        _ => ("the server ends the connection over TLS", "its log may say why"),
    }
}
