//! The helper process: this program again (spec: sandbox, section 12).
//!
//! | Process | Is |
//! |---|---|
//! | [`super::stem`] | started once, copies itself for each piece of work |
//! | [`super::keeper`] | outside of one cage: limits, and the end of everything |
//! | [`super::caged`] | in the cage: builds it, works, or becomes the command |

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::job::ARGUMENT;
use super::stem;

/// Whether this process is a helper; then it works and exits with this. Called before anything else: a helper is one
/// thread.
#[must_use]
pub fn main() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ARGUMENT {
        return None;
    }
    Some(match stem::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Only a person who has started it by hand reads it.
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    })
}

/// Where the helper's program is: this one.
///
/// # Errors
/// The system's.
pub fn program() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}
