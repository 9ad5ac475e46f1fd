//! Logs: text for a person on a terminal, JSON for everything else, always on standard error so that standard output
//! stays what a command answers. Which lines are written is the setting `log-filter` (`NYLORUN_LOG`), in the syntax of
//! `tracing_subscriber::EnvFilter`.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One line for a person.
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("`{other}` is not a log format; use `text` or `json`")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("the log filter `{filter}` is malformed: {cause}")]
    Filter {
        /// As it was given.
        filter: String,
        /// What the parser says.
        cause: String,
    },
}

/// Checks a filter without installing anything.
///
/// # Errors
/// [`TelemetryError::Filter`].
pub fn check_filter(filter: &str) -> Result<(), TelemetryError> {
    parse(filter).map(|_| ())
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(filter)
        .map_err(|cause| TelemetryError::Filter { filter: filter.to_owned(), cause: cause.to_string() })
}

/// Installs the subscriber of this process. A second call changes nothing.
///
/// # Errors
/// [`TelemetryError::Filter`].
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let builder = tracing_subscriber::fmt().with_env_filter(parse(filter)?).with_writer(Stderr);
    // `try_init` fails only when a subscriber is there already: tests start several servers in one process.
    let _ = match format {
        LogFormat::Json => {
            builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
        }
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
    };
    Ok(())
}

/// Standard error whose reader may go away: a lost log line never ends the process.
struct Stderr;

impl MakeWriter<'_> for Stderr {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match io::stderr().write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_text_and_json_only() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert_eq!("text".parse(), Ok(LogFormat::Text));
        assert!("xml".parse::<LogFormat>().is_err());
    }

    #[test]
    fn a_malformed_filter_is_told_and_a_good_one_passes() {
        assert!(check_filter("info,nylorun=debug").is_ok());
        assert!(check_filter("nylorun=loud").is_err());
    }
}
