//! The helper process: this program again (spec: sandbox, section 12).
//!
//! | Process | Is |
//! |---|---|
//! | [`super::stem`] | started once, copies itself for each piece of work |
//! | [`super::keeper`] | outside of one cage: begun before it is needed; limits, and the end of everything |
//! | [`super::caged`] | in the cage: builds it, waits, works, or becomes the command |

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::job::ARGUMENT;
use super::stem;

/// Whether this process is a helper; then it works and exits with this. Called before anything else: a helper is one
/// thread.
#[must_use]
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let ground = arguments.next().unwrap_or_default();
    let ground = serde_json::from_slice(ground.as_encoded_bytes()).map_err(|error| error.to_string());
    Some(match ground.and_then(|ground| stem::serve(&ground)) {
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
