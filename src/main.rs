//! The binary: everything it does is in the library, so that tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A helper of a sandbox is this program again: before anything else, since it must be one thread.
    nylorun::sandbox::helper::main().unwrap_or_else(nylorun::cli::main)
}
