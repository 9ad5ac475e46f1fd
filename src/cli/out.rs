//! Output of commands: answers on standard output, everything else on standard error. A reader that goes away ends
//! the command quietly; it never panics.

use std::io::{self, ErrorKind, IsTerminal, Write};

use nylorun_actors::model::json::{self, Json};

use super::fault::{Fault, exit};

/// Where and how a command answers.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    json: bool,
}

impl Out {
    /// For people, or with `json` for programs.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether a program reads.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether standard output is a terminal.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Writes text as it is and flushes.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn text(&self, text: &str) -> Result<(), Fault> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
            if error.kind() == ErrorKind::BrokenPipe {
                Fault::closed_pipe()
            } else {
                Fault::new(exit::FAILED, "output", format!("cannot write the answer: {error}"))
            }
        })
    }

    /// Writes one line.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn line(&self, line: &str) -> Result<(), Fault> {
        self.text(&format!("{line}\n"))
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn json(&self, value: &Json) -> Result<(), Fault> {
        self.line(&json::encode(value))
    }

    /// Writes rows as columns, headings first.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn table(&self, heading: &[&str], rows: &[Vec<String>]) -> Result<(), Fault> {
        let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
        for row in std::iter::once(&heading).chain(rows) {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()) + 2));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        self.text(&text)
    }

    /// Writes a line for the person on standard error. Nothing happens when nobody reads.
    pub fn note(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}

/// A string as it is, anything else as JSON.
#[must_use]
pub fn plain(value: &Json) -> String {
    match value {
        // Kept surrogates are turned back by the writer of JSON only; in plain text they have no other form.
        Json::String(text) => text.clone(),
        other => json::encode(other),
    }
}
