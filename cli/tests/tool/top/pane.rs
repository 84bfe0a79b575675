//! A terminal: a pane of a separate tmux.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Pane {
    socket: PathBuf,
}

impl Pane {
    /// Starts a pane of 80 columns and 24 lines, with a shell that runs this script. The pane stays
    /// after the command has ended.
    pub fn start(script: &str) -> Self {
        let socket = std::env::temp_dir().join(format!("top-{}", Uuid::new_v4()));
        let pane = Self { socket };
        let script = format!("{script}\nexec cat");
        pane.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", &script]);
        pane
    }

    /// Runs the command between two commands that save the terminal's settings, and prints the exit
    /// status of the command.
    pub fn start_between_looks(command: &str, folder: &Path) -> Self {
        let folder = folder.display();
        let look = |name| format!("stty -g > {folder}/{name}");
        let (before, after) = (look("before"), look("after"));
        Self::start(&format!(
            "echo here before; {before}; {command}; echo left: $?; {after}; echo end"
        ))
    }

    /// Checks that the screen and the settings are as before. Returns the text on the screen.
    pub fn must_be_as_before(&self, folder: &Path) -> String {
        let shown =
            self.wait_for("the end", |text| text.contains("here before") && text.contains("\nend"));
        let settings =
            ["before", "after"].map(|name| fs::read_to_string(folder.join(name)).unwrap());
        assert_eq!(settings[0], settings[1]);
        assert!(!shown.contains("HELD/LIMIT"), "{shown}");
        // The normal screen and the cursor are visible again.
        assert_eq!(self.ask("#{alternate_on} #{cursor_flag}"), "0 1");
        shown
    }

    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    pub fn resize(&self, width: u16, height: u16) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    pub fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if is_there(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "no {what} in:\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn wait_for_text(&self, wanted: &str) -> String {
        self.wait_for(wanted, |text| text.contains(wanted))
    }

    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    pub fn text_with_codes(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Records everything that is written to the terminal from now on.
    pub fn copy_output(&self, file: &Path) {
        self.tmux(&["pipe-pane", &format!("cat > {}", file.display())]);
    }

    pub fn ask(&self, format: &str) -> String {
        self.tmux(&["display-message", "-p", format]).trim().to_owned()
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&self.socket).args(["-u", "-f", "/dev/null"]).args(arguments);
        tmux.env_remove("TMUX").env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color");
        tmux.output().expect("tmux must be installed")
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
        let _ = fs::remove_file(&self.socket);
    }
}
