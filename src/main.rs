//! The binary: everything it does is in the library, so that tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    nylorun::cli::main()
}
