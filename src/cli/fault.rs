//! What a command says when it fails: a code, words, what to do, and the exit code (spec: engine, section 11).

use std::process::ExitCode;

use serde_json::json;

use super::out::Out;
use crate::host::home::HomeError;
use crate::host::settings::SettingsError;

/// Exit codes of this program.
pub mod exit {
    /// Done.
    pub const OK: u8 = 0;
    /// It did not work, or the turn did not complete.
    pub const FAILED: u8 = 1;
    /// The command line, or a setting, makes no sense.
    pub const USAGE: u8 = 2;
    /// No Runtime runs for this home or Project.
    pub const NOT_RUNNING: u8 = 3;
    /// Another Host answers on the port.
    pub const OTHER_HOST: u8 = 4;
    /// The Runtime is older than what is asked of it, or than its data.
    pub const TOO_OLD: u8 = 5;
    /// Nobody answers at the URL that was given.
    pub const NO_RUNTIME: u8 = 6;
    /// The Runtime runs and is not ready.
    pub const NOT_READY: u8 = 7;
    /// `serve`: the port is taken.
    pub const PORT_IN_USE: u8 = 98;
    /// `serve`: listening beyond this machine was not permitted.
    pub const NOT_LOOPBACK: u8 = 99;
    /// Stopped by SIGTERM, twice.
    pub const TERMINATED: u8 = 143;
    /// Stopped by SIGINT.
    pub const INTERRUPTED: u8 = 130;
}

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Exit code of the process.
    pub exit: u8,
    /// Code that the documents explain (`docs/errors/`).
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Fault {
    /// A failure.
    #[must_use]
    pub fn new(exit: u8, code: &str, message: impl Into<String>) -> Self {
        Self { exit, code: code.to_owned(), message: message.into(), fix: None }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The reader of our output has gone: nothing to tell and nobody to tell it to.
    #[must_use]
    pub fn closed_pipe() -> Self {
        Self::new(exit::OK, CLOSED_PIPE, "")
    }

    /// Tells the person, or with `--json` the program, on standard error.
    pub fn report(&self, out: &Out) -> ExitCode {
        if self.code == CLOSED_PIPE {
            return ExitCode::from(self.exit);
        }
        if out.is_json() {
            out.note(
                &json!({
                    "status": "error", "code": self.code, "message": self.message,
                    "fix": self.fix, "exitCode": self.exit,
                })
                .to_string(),
            );
        } else {
            out.note(&format!("error[{}]: {}", self.code, self.message));
            if let Some(fix) = &self.fix {
                out.note(&format!("  what to do: {fix}"));
            }
        }
        ExitCode::from(self.exit)
    }
}

const CLOSED_PIPE: &str = "closed-pipe";

impl From<SettingsError> for Fault {
    fn from(error: SettingsError) -> Self {
        let code = match &error {
            SettingsError::Malformed { .. } => "setting-malformed",
            SettingsError::UnknownKey { .. } => "setting-unknown",
            SettingsError::File { .. } => "settings-file",
            SettingsError::NoHome => "no-home",
            SettingsError::Database { .. } => "database-unsupported",
        };
        Self::new(exit::USAGE, code, error.to_string())
            .fix("`nylorun config` shows every setting with its origin; the README has the table")
    }
}

impl From<HomeError> for Fault {
    fn from(error: HomeError) -> Self {
        Self::new(exit::FAILED, error.code(), error.to_string()).fix(error.repair())
    }
}
