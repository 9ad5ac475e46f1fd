//! What every way of keeping workspaces apart has in common (spec: sandbox, section 12; DESIGN.md, section 8).
//!
//! The manager knows this trait and nothing else of a backend. On the wire every one of ours is `virtual`: clients and
//! harnesses know no other names. The real name is in the reasons of the report, which operators read.
//!
//! | To have | Change |
//! |---|---|
//! | another backend | implement [`Backend`], add a [`Kind`](super::choice::Kind) and its arm in `Kind::make` |
//! | a network with an allow list | answer `unmet` with `None`, and give the cage its way out where the backend starts one |

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::manifest::{parse_duration_ms, parse_size_bytes};

use super::choice::Kind;
use super::job::{Answer, Limits, Work};
use super::limits::IDLE_MS;
use super::run::{Cancelled, Ran, RunError};

/// The user on the host whom helpers of root become. Nobody else should have it.
pub const HOST_UID: u32 = 64_533;

/// What clients are told of how a workspace is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Processes of this machine.
    Process,
    /// A container.
    Container,
}

impl Isolation {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
        }
    }
}

/// A workspace as backends see it. Its folders are there, whoever runs commands in it.
#[derive(Clone, Debug)]
pub struct Space {
    /// Its key: a prefix and hexadecimal digits.
    pub key: String,
    /// The folder on the host with `workspace` and `tmp` in it.
    pub folder: PathBuf,
    /// What its sandbox asks for.
    pub spec: Json,
    /// What its commands may use, all together.
    pub limits: Limits,
}

/// What a probe of a backend that works has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Works {
    /// The version of what does the work, where it has one.
    pub version: Option<String>,
    /// Each limit and what enforces it, for operators: `("memory", "cgroup v1")`.
    pub limits: Vec<(&'static str, String)>,
}

impl Works {
    /// The limits in one line; those that are enforced in the same way together.
    #[must_use]
    pub fn limits_in_words(&self) -> String {
        let mut ways: Vec<(&str, Vec<&str>)> = Vec::new();
        for (what, how) in &self.limits {
            match ways.iter_mut().find(|(way, _)| way == how) {
                Some((_, all)) => all.push(what),
                None => ways.push((how, vec![what])),
            }
        }
        let ways: Vec<String> =
            ways.iter().map(|(how, all)| format!("{} by {how}", all.join(", "))).collect();
        ways.join("; ")
    }
}

/// A way to keep commands apart. Futures end whatever becomes of their caller: a command's processes are gone when its
/// future is done, and soon after it was dropped.
pub trait Backend: Send + Sync + 'static {
    /// Which one.
    fn kind(&self) -> Kind;

    /// How clients are told that it keeps apart.
    fn isolation(&self) -> Isolation {
        Isolation::Process
    }

    /// Whether it works here, or in words why not. Tried once; it may take seconds.
    fn probe(&self) -> BoxFuture<'_, Result<Works, String>>;

    /// Why a spec cannot be had with it.
    fn unmet(&self, spec: &Json) -> Option<String>;

    /// Makes a workspace ready, or in words why it cannot be. The folders are there already; `new`: and empty.
    fn open<'a>(&'a self, _space: &'a Space, _new: bool) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }

    /// Runs a command with the shell, in `/workspace`.
    fn command<'a>(
        &'a self,
        space: &'a Space,
        command: &'a str,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Ran, RunError>>;

    /// Does other work: a tool, a listing, the bytes of a file.
    fn work<'a>(
        &'a self,
        space: &'a Space,
        work: Work,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Answer, RunError>>;

    /// Lets go of what it holds of a workspace; its files stay. Nothing runs in it. Also before it is removed.
    fn stop<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }

    /// Lets go of everything. Nothing runs any more.
    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

/// Why a spec cannot be had where there is no network.
#[must_use]
pub fn needs_network(spec: &Json) -> Option<String> {
    let network = &spec["network"];
    let allows = network["allow"].as_array().is_some_and(|hosts| !hosts.is_empty());
    let preset = network["preset"].as_str().is_some_and(|preset| preset != "none");
    (allows || preset).then(|| "The sandbox asks for a network, and this backend has none.".to_owned())
}

/// What commands of a spec may use: what it says, else the defaults.
#[must_use]
pub fn limits(spec: &Json, defaults: &Limits) -> Limits {
    let resources = &spec["resources"];
    let cpus = resources["cpus"].as_u64().and_then(|cpus| u32::try_from(cpus).ok()).filter(|cpus| *cpus > 0);
    Limits {
        cpus: cpus.unwrap_or(defaults.cpus),
        memory_bytes: resources["memory"]
            .as_str()
            .and_then(parse_size_bytes)
            .unwrap_or(defaults.memory_bytes),
        ..*defaults
    }
}

/// Milliseconds without use after which a workspace of a spec stops.
#[must_use]
pub fn idle_ms(spec: &Json) -> u64 {
    spec["idle"].as_str().and_then(parse_duration_ms).unwrap_or(IDLE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_spec_with_a_network_is_not_met_and_limits_are_its_own_or_the_defaults() {
        for met in [json!({}), json!(null), json!({"network": {"preset": "none", "allow": []}})] {
            assert_eq!(needs_network(&met), None, "{met}");
        }
        for not in [json!({"network": {"preset": "dev"}}), json!({"network": {"allow": ["a.example"]}})] {
            assert!(needs_network(&not).is_some(), "{not}");
        }
        let spec = json!({"resources": {"cpus": 3, "memory": "256MiB"}, "idle": "1m"});
        let defaults = Limits { processes: 7, ..Limits::default() };
        let of = limits(&spec, &defaults);
        assert_eq!((of.cpus, of.memory_bytes, of.processes, idle_ms(&spec)), (3, 256 << 20, 7, 60_000));
        assert_eq!((limits(&json!({}), &defaults), idle_ms(&json!({}))), (defaults, IDLE_MS));
    }

    #[test]
    fn limits_that_are_enforced_alike_are_told_together() {
        let limits =
            vec![("memory", "cgroup v1".into()), ("CPUs", "x".into()), ("processes", "cgroup v1".into())];
        let works = Works { version: None, limits };
        assert_eq!(works.limits_in_words(), "memory, processes by cgroup v1; CPUs by x");
    }
}
