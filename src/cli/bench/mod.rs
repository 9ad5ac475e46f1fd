//! `nylorun bench`: whole turns over HTTP, durable appends straight into the store, commands in sandboxes.

mod appends;
mod sandbox;
mod server;
mod turns;
mod wire;

use super::args::{Bench, Global};
use super::fault::Fault;
use super::out::Out;

/// `bench`.
///
/// # Errors
/// What a person reads.
pub fn run(command: &Bench, global: &Global, out: &Out) -> Result<(), Fault> {
    match command {
        Bench::Turns(bench) => super::block_on(turns::run(bench, global, out)),
        Bench::Appends(bench) => super::block_on(appends::run(bench, out)),
        Bench::Sandbox(bench) => super::block_on(sandbox::run(bench, out)),
    }
}

/// Durations in microseconds, sorted when they are asked for.
#[derive(Debug, Default)]
struct Latencies(Vec<u64>);

impl Latencies {
    fn sorted(mut self) -> Self {
        self.0.sort_unstable();
        self
    }

    /// Milliseconds that `part` of 1000 of a sorted list do not exceed.
    fn at(&self, part: usize) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0.0 };
        let micros = self.0[last * part / 1000];
        // Durations are far below 2^52 microseconds.
        round(micros as f64 / 1000.0)
    }
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
