//! Takes and restores the terminal, and reads its input.

use std::io::stdout;
use std::mem::ManuallyDrop;
use std::thread;

use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, disable_raw_mode, enable_raw_mode, is_raw_mode_enabled,
};
use ratatui::layout::Size;
use ratatui::{DefaultTerminal, Frame};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::{Failure, SOFTWARE};
use crate::interruption::interruptions;
use crate::output::unwritable;
use crate::top::event::Event;

const UNUSABLE: &str = "the terminal cannot be used";

/// The terminal, which is restored when this value is dropped. After a panic in any thread,
/// ratatui's hook restores the terminal before the message is printed.
pub struct Screen {
    /// Ratatui's own `drop` prints its errors, which panics if the terminal is gone.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    pub fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init().inspect_err(|_| restore());
        let terminal = terminal.map_err(Failure::system(UNUSABLE))?;
        Ok(Self { terminal: ManuallyDrop::new(terminal) })
    }

    pub fn size(&self) -> Result<Size, Failure> {
        self.terminal.size().map_err(Failure::system(UNUSABLE))
    }

    /// Takes the terminal again. While this process was stopped, the shell has restored the
    /// terminal.
    pub fn resume(&mut self) -> Result<(), Failure> {
        // The library changes the mode only if it does not count as raw.
        disable_raw_mode()
            .and_then(|()| enable_raw_mode())
            .and_then(|()| execute!(stdout(), EnterAlternateScreen))
            .and_then(|()| self.terminal.clear())
            .map_err(Failure::system(UNUSABLE))
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> Result<(), Failure> {
        // A task has panicked, so the terminal is already restored.
        if !is_raw_mode_enabled().map_err(Failure::system(UNUSABLE))? {
            return Err(Failure::new(
                SOFTWARE,
                "top ended because of a bug: please report the message above",
            ));
        }
        self.terminal.draw(draw).map_err(unwritable)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        if is_raw_mode_enabled().unwrap_or(true) {
            restore();
        }
    }
}

/// Ignores errors. `ratatui::restore` prints them, which panics if the terminal is gone.
fn restore() {
    let _ = ratatui::try_restore();
}

/// Reads keys in a thread of its own, because reading blocks. The thread ends with the process.
pub fn send_keys(events: UnboundedSender<Event>) {
    thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
                Ok(event::Event::Resize(width, height)) => Event::Resized(Size::new(width, height)),
                Ok(_) => continue,
                // No more keys will arrive, so the user could not leave.
                Err(_) => Event::Leave,
            };
            let is_last = matches!(event, Event::Leave);
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    });
}

pub fn send_signals(events: UnboundedSender<Event>) -> Result<(), Failure> {
    let mut interruptions = interruptions()?;
    let continued = signal(SignalKind::from_raw(Signal::SIGCONT as i32));
    let mut continued = continued.map_err(Failure::system("cannot install signal handlers"))?;
    let resumed = events.clone();
    tokio::spawn(async move {
        while continued.recv().await.is_some() && resumed.send(Event::Continued).is_ok() {}
    });
    tokio::spawn(async move {
        while interruptions.recv().await.is_some() && events.send(Event::Leave).is_ok() {}
    });
    Ok(())
}

#[cfg(test)]
#[path = "../../tests/tool/top/pane.rs"]
#[allow(dead_code, reason = "the tests in tests/tool/top need more of it")]
mod pane;

#[cfg(test)]
mod tests {
    use std::env;

    use test_support::folder::Folder;

    use super::pane::Pane;
    use super::*;

    /// The environment variable that selects where to panic. The test starts itself in a terminal
    /// with this variable.
    const PANICS: &str = "REDIS_SEMAPHORE_PANICS";

    fn panic_on(spawn: impl FnOnce(fn())) {
        let mut screen = Screen::open().unwrap();
        screen.draw(|frame| frame.render_widget("HELD/LIMIT", frame.area())).unwrap();
        spawn(|| panic!("as was planned"));
        // The next picture is not drawn, because the hook has restored the terminal.
        assert_eq!(screen.draw(|_| ()).unwrap_err().status, SOFTWARE);
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        match env::var(PANICS).as_deref() {
            Ok("here") => return panic_on(|panic| panic()),
            Ok(_) => return panic_on(|panic| assert!(thread::spawn(panic).join().is_err())),
            Err(_) => {}
        }
        let program = env::current_exe().unwrap().display().to_string();
        let test = "top::screen::tests::a_panic_restores_the_terminal";
        for (place, status) in [("here", 101), ("beside", 0)] {
            let folder = Folder::create();
            // A backtrace would be longer than the screen.
            let command =
                format!("{PANICS}={place} RUST_BACKTRACE=0 {program} --exact --nocapture {test}");
            let text = Pane::start_between_looks(&command, &folder.0).must_be_as_before(&folder.0);
            assert!(text.contains("as was planned"), "{text}");
            assert!(text.contains(&format!("left: {status}")), "{text}");
        }
    }
}
