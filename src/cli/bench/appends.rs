//! a
use crate::cli::args::BenchAppends;
use crate::cli::fault::Fault;
use crate::cli::out::Out;
/// a
pub async fn run(_b: &BenchAppends, _out: &Out) -> Result<(), Fault> { Ok(()) }
