//! What every listener of the Host shares, and what tells one listener from another (spec: http-api, section 1.1).

use std::sync::{Arc, OnceLock};

use actix_web::web::Bytes;
use nylorun_actors::model::json::encode;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::limits::READY_PROBES;
use super::protocol;
use super::slot::TenantSlot;
use super::throttle::Throttle;

/// What the Host says about itself.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Of `host.json`.
    pub host_id: String,
    /// SemVer.
    pub version: String,
    /// This process.
    pub pid: u32,
    /// The home directory, for the Tenant's status.
    pub home: String,
}

/// State of the HTTP API. Cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

struct Shared {
    facts: HostFacts,
    url: OnceLock<String>,
    health: Bytes,
    admin_key: [u8; 32],
    slot: TenantSlot,
    throttle: Throttle,
    probes: tokio::sync::Semaphore,
    stop: Box<dyn Fn() + Send + Sync>,
}

impl ApiState {
    /// A state whose Tenant is opening. `admin_key` is the text of the admin key (64 hexadecimal characters); only
    /// its hash is kept. `stop` is called once the answer of a shutdown request is written: it must return at once.
    pub fn new(facts: HostFacts, admin_key: &str, stop: impl Fn() + Send + Sync + 'static) -> Self {
        let health = encode(&json!({
            "status": "ok",
            "service": super::SERVICE,
            "version": facts.version,
            "protocol": protocol::range(),
            "coreVersion": facts.version,
            "hostId": facts.host_id,
            "pid": facts.pid,
        }));
        Self(Arc::new(Shared {
            facts,
            url: OnceLock::new(),
            health: Bytes::from(health),
            admin_key: Sha256::digest(admin_key.as_bytes()).into(),
            slot: TenantSlot::default(),
            throttle: Throttle::default(),
            probes: tokio::sync::Semaphore::new(READY_PROBES),
            stop: Box::new(stop),
        }))
    }

    /// The place of the Tenant.
    #[must_use]
    pub fn slot(&self) -> &TenantSlot {
        &self.0.slot
    }

    /// What the Host says about itself.
    #[must_use]
    pub fn facts(&self) -> &HostFacts {
        &self.0.facts
    }

    /// Tells under which URL clients reach the public listener; known once it is bound. The first call counts.
    pub fn set_url(&self, url: String) {
        let _ = self.0.url.set(url);
    }

    pub(super) fn url(&self) -> Option<&str> {
        self.0.url.get().map(String::as_str)
    }

    pub(super) fn health(&self) -> Bytes {
        self.0.health.clone()
    }

    pub(super) fn admin_key(&self) -> &[u8; 32] {
        &self.0.admin_key
    }

    pub(super) fn throttle(&self) -> &Throttle {
        &self.0.throttle
    }

    pub(super) fn probes(&self) -> &tokio::sync::Semaphore {
        &self.0.probes
    }

    pub(super) fn stop(&self) {
        (self.0.stop)();
    }
}

/// Which plane a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The Tenant API, and the operator API when no operator listener exists.
    Public {
        /// Whether an operator listener exists: then every `/v1/admin/**` here is the opaque 404.
        operator_elsewhere: bool,
    },
    /// The operator API and the Tenant API; never browsers.
    Operator,
}

/// Names under which a listener answers.
#[derive(Clone, Debug)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// The loopback names of the bound port, and the configured host (bracketed when it is IPv6) where a bind off
    /// loopback is allowed.
    #[must_use]
    pub fn of_port(port: u16, configured: Option<&str>) -> Self {
        let mut names: Vec<String> =
            ["127.0.0.1", "localhost", "[::1]"].iter().map(|name| format!("{name}:{port}")).collect();
        if let Some(host) = configured {
            let bracketed = host.contains(':') && !host.starts_with('[');
            let host = if bracketed { format!("[{host}]") } else { host.to_owned() };
            names.push(format!("{host}:{port}").to_ascii_lowercase());
        }
        Self(names)
    }

    /// Exactly these `name:port` values (container mode).
    #[must_use]
    pub fn listed<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        Self(names.into_iter().map(|name| name.as_ref().trim().to_ascii_lowercase()).collect())
    }

    /// Adds names.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    pub(crate) fn allow(&self, host: &str) -> bool {
        let host = host.trim();
        self.0.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// One bound listener.
#[derive(Clone)]
pub struct Listener {
    /// What all listeners share.
    pub state: ApiState,
    /// What this one serves.
    pub kind: ListenerKind,
    /// Under which names.
    pub names: HostNames,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_answers_under_its_own_port_only() {
        let names = HostNames::of_port(8787, Some("fe80::1"));
        for good in ["127.0.0.1:8787", "LOCALHOST:8787", " [::1]:8787 ", "[fe80::1]:8787"] {
            assert!(names.allow(good), "{good}");
        }
        for bad in ["127.0.0.1", "127.0.0.1:8788", "example.com:8787", "", "localhost:87870"] {
            assert!(!names.allow(bad), "{bad}");
        }
        let listed = HostNames::listed(["Runtime.Internal:4000"]);
        assert!(listed.allow("runtime.internal:4000") && !listed.allow("localhost:4000"));
        assert!(listed.and(HostNames::of_port(4000, None)).allow("localhost:4000"));
    }
}
