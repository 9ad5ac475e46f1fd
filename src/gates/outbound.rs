//! Which addresses may be dialled for a URL that somebody else chose, and the one place where that is checked: at the
//! address itself (spec: security, section 8).
//!
//! A literal address is judged before anything is sent; a name when it is resolved, answer by answer, and only what was
//! judged is dialled. There is no way around it: no proxy, no redirect.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::address::{AddressClass, classify};

/// The longest URL, characters.
pub const URL_CHARS: usize = 2048;
/// One attempt to connect, TLS included.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next request. Short: most servers close an idle one after 5 s or more, and a
/// request that crosses such an end is one whose fate nobody knows.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(2);
/// Idle connections kept for one host.
pub const IDLE_CONNECTIONS: usize = 16;

/// The name under which a container finds the machine that runs it.
const DOCKER_HOST: &str = "host.docker.internal";

/// What may be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundPolicy {
    /// Whether `http:` is taken beside `https:`.
    pub http: bool,
    /// Whether addresses of this machine and of private networks are dialled.
    pub private: bool,
    /// Whether loopback in a URL means the machine that runs this container.
    pub docker_host: bool,
}

impl Default for OutboundPolicy {
    fn default() -> Self {
        Self { http: true, private: true, docker_host: false }
    }
}

/// An address that the policy does not dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is a {} address, which the outbound policy refuses", .address, .class.as_str())]
pub struct AddressRefused {
    /// The address.
    pub address: IpAddr,
    /// What it is.
    pub class: AddressClass,
}

/// A name that has no address.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved: {0}")]
pub struct NameUnknown(String);

impl OutboundPolicy {
    /// Judges an address.
    ///
    /// # Errors
    /// [`AddressRefused`]: link-local and metadata addresses always, all but public ones when private ones are refused.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let class = classify(address);
        let allowed = match class {
            AddressClass::Public => true,
            AddressClass::Private | AddressClass::Special => self.private,
            AddressClass::LinkLocal | AddressClass::Metadata => false,
        };
        if allowed { Ok(()) } else { Err(AddressRefused { address, class }) }
    }

    /// Reads a URL that somebody wants to register; the texts say what is wrong with it, without repeating it.
    ///
    /// # Errors
    /// One text for each problem.
    pub fn check_url(&self, text: &str) -> Result<(), Vec<String>> {
        let (url, mut problems) = self.parse(text);
        if let Some(refused) = url.and_then(|url| self.route(url).err()) {
            problems.push(refused.to_string());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// A URL, unless it is none, and all that is wrong with it but its address.
    pub(super) fn parse(&self, text: &str) -> (Option<Url>, Vec<String>) {
        if text.chars().count() > URL_CHARS {
            return (None, vec![format!("must have at most {URL_CHARS} characters")]);
        }
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => return (None, vec![format!("must be a URL: {error}")]),
        };
        let mut problems = Vec::new();
        match url.scheme() {
            "https" => {}
            "http" if self.http => {}
            "http" => problems.push("must be https: `endpoint-http` refuses http".to_owned()),
            _ => problems.push("must be an http or https URL".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            problems.push("must not hold credentials".to_owned());
        }
        if url.fragment().is_some() {
            problems.push("must not have a fragment".to_owned());
        }
        if problems.is_empty() && url.host_str().is_none_or(str::is_empty) {
            problems.push("must name a host".to_owned());
        }
        (Some(url), problems)
    }

    /// Whether the URL's loopback host means the machine that runs this container.
    fn is_redirected(&self, url: &Url) -> bool {
        self.docker_host && matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
    }

    /// Where a URL leads: what is dialled, and the `Host` header when it must not follow from that.
    ///
    /// # Errors
    /// The literal address is refused.
    pub fn route(&self, mut url: Url) -> Result<(Url, Option<String>), AddressRefused> {
        let Some(address) = literal(&url) else { return Ok((url, None)) };
        if !self.is_redirected(&url) {
            self.check(address)?;
            return Ok((url, None));
        }
        // The resolver knows the name alone; a literal would pass it by. The peer still sees what was registered.
        let host = url.host_str().unwrap_or_default().to_owned();
        let host = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
        let renamed = url.set_host(Some("localhost")).is_ok();
        debug_assert!(renamed, "an http URL takes any host");
        Ok((url, Some(host)))
    }

    /// A client that dials what this policy allows, and nothing on anybody's advice.
    ///
    /// # Errors
    /// The system's TLS is unusable.
    pub(super) fn client(self, lookup: Arc<Lookup>) -> reqwest::Result<Client> {
        Client::builder()
            .dns_resolver(Arc::new(Gate { policy: self, lookup }))
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_WAIT)
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build()
    }
}

/// The address that a URL names itself.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// Finds the addresses of a name.
pub type Lookup = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

pub(super) fn system_lookup(name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
    Box::pin(async move {
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    })
}

/// The resolver of a guarded client.
struct Gate {
    policy: OutboundPolicy,
    lookup: Arc<Lookup>,
}

impl Resolve for Gate {
    fn resolve(&self, name: Name) -> Resolving {
        let local = self.policy.docker_host && name.as_str() == "localhost";
        let name = if local { DOCKER_HOST.to_owned() } else { name.as_str().to_owned() };
        let (policy, found) = (self.policy, (self.lookup)(name));
        Box::pin(async move {
            let found = found.await.map_err(|error| NameUnknown(error.to_string()))?;
            let (mut allowed, mut refused) = (Vec::new(), None);
            for address in found {
                match policy.check(address) {
                    // The port is the URL's.
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(error) => refused = Some(error),
                }
            }
            match (allowed.is_empty(), refused) {
                (false, _) => Ok(Box::new(allowed.into_iter()) as Addrs),
                (true, Some(refused)) => Err(refused.into()),
                (true, None) => Err(NameUnknown("it has no address".to_owned()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
