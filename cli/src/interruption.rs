//! The end by a signal.

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// Ends with the number of the first signal that asks this program to end.
pub fn interruption() -> Result<impl Future<Output = u8>, Failure> {
    let listen = |kind| signal(kind).map_err(Failure::system("signals cannot be listened to"));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        let kind = tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hangup.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value() as u8
    })
}
