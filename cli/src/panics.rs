//! Reports a missing system resource as one line. Libraries panic if a resource is missing. For
//! example, tokio panics if it cannot open a file, and the standard library panics if it cannot
//! start a thread.

use std::io;
use std::panic::{self, PanicHookInfo, UnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::failure::{Failure, SYSTEM, remedy};
use crate::output::note;

static LACKS: AtomicBool = AtomicBool::new(false);

/// Sets a panic hook. If a resource is missing, the hook prints one line instead of a backtrace,
/// and prints it only once.
pub fn report_lacks() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| match lack(info) {
        Some((error, remedy)) => {
            if !LACKS.swap(true, Relaxed) {
                note(format_args!("the system refused a resource: {error}: {remedy}"));
            }
        }
        None => usual(info),
    }));
}

/// Runs the work. If it panics because a resource is missing, the hook of `report_lacks` has printed
/// the reason.
pub fn caught(
    run: impl FnOnce() -> Result<ExitCode, Failure> + UnwindSafe,
) -> Result<ExitCode, Failure> {
    panic::catch_unwind(run).unwrap_or_else(|panicked| match LACKS.load(Relaxed) {
        true => Err(Failure::new(SYSTEM, "")),
        false => panic::resume_unwind(panicked),
    })
}

/// Returns the error and the advice if a missing resource caused the panic. A panic contains the
/// error only as text: `Os { code: 24, ... }`.
fn lack(info: &PanicHookInfo<'_>) -> Option<(io::Error, &'static str)> {
    let payload = info.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or(payload.downcast_ref::<&str>().copied())?;
    let number = text.split_once("Os { code: ")?.1.split(',').next()?.parse().ok()?;
    let error = io::Error::from_raw_os_error(number);
    let remedy = remedy(&error)?;
    Some((error, remedy))
}
