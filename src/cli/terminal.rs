//! Lines that a person types while something else goes on. One thread reads; a question that was dropped leaves no reader
//! behind that would take the next answer.

use std::io::BufRead as _;

use tokio::sync::mpsc;

/// Lines of standard input.
pub struct Lines {
    lines: mpsc::Receiver<String>,
}

impl Lines {
    /// Begins to read. Once in a process.
    #[must_use]
    pub fn of_stdin() -> Self {
        let (sender, lines) = mpsc::channel(16);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                // An unreadable terminal is one that was closed.
                let Ok(line) = line else { return };
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// The next line; `None` when there will be none.
    pub async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Drops what was typed before it was asked for: it was no answer to this question.
    pub fn forget(&mut self) {
        while self.lines.try_recv().is_ok() {}
    }
}
