//! Who calls, and what they may do (spec: http-api, section 3; security, section 1).

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use nylorun_actors::model::ids::is_subject;
use nylorun_actors::tenant::Reach;

use crate::identity::delivery::DeliveryClaims;

use super::headers::{SCOPES, SUBJECT, single};
use super::rejection::{Code, Rejection};
use super::routes::Credential;

/// What a person may be allowed to do, in the order in which they are always listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `agents:read`
    AgentsRead,
    /// `agents:write`
    AgentsWrite,
    /// `sessions:own`
    SessionsOwn,
    /// `tenant:settings`
    TenantSettings,
    /// `sandboxes:write`
    SandboxesWrite,
}

impl Scope {
    /// All that an application may grant.
    pub const ALL: [Self; 5] =
        [Self::AgentsRead, Self::AgentsWrite, Self::SessionsOwn, Self::TenantSettings, Self::SandboxesWrite];

    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentsRead => "agents:read",
            Self::AgentsWrite => "agents:write",
            Self::SessionsOwn => "sessions:own",
            Self::TenantSettings => "tenant:settings",
            Self::SandboxesWrite => "sandboxes:write",
        }
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScopeSet(u8);

impl ScopeSet {
    /// Whether a scope is in it.
    #[must_use]
    pub fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// The names, in their fixed order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope)).map(Scope::as_str)
    }

    fn add(&mut self, scope: Scope) {
        self.0 |= 1 << scope as u8;
    }
}

/// What a route asks of callers who act for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// One of these scopes.
    OneOf(&'static [Scope]),
    /// Closed to persons.
    Never,
    /// Any of them.
    Any,
}

/// Who calls the Tenant API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Nobody that is known: only where a route is open to all.
    Anonymous,
    /// An operator key acting as itself.
    Application {
        /// The key's name.
        principal: Arc<str>,
    },
    /// An operator key acting for a person.
    Subject {
        /// The key's name.
        principal: Arc<str>,
        /// The person.
        subject: Arc<str>,
        /// What the application lets them do.
        scopes: ScopeSet,
    },
    /// An Action endpoint, calling back with the token of a delivery: one Action, one generation.
    Delivery(Arc<DeliveryClaims>),
}

impl Caller {
    /// Whether the route takes this caller, decided from the route alone.
    ///
    /// # Errors
    /// 403 `scope_required`.
    pub fn pass(&self, gate: Gate) -> Result<(), Rejection> {
        let Self::Subject { scopes, .. } = self else { return Ok(()) };
        match gate {
            Gate::Any => Ok(()),
            Gate::Never => Err(Rejection::scope("Not available when acting for a subject", &[])),
            Gate::OneOf(needed) if needed.iter().any(|scope| scopes.has(*scope)) => Ok(()),
            Gate::OneOf(needed) => {
                let names: Vec<&str> = needed.iter().map(|scope| scope.as_str()).collect();
                Err(Rejection::scope(format!("Scope {} required", names.join(" or ")), &names))
            }
        }
    }

    /// Whether the route takes delivery tokens where this is one, and only them where this is an application.
    ///
    /// # Errors
    /// 403 `request_rejected`.
    pub fn fits(&self, takes: &[Credential]) -> Result<(), Rejection> {
        match self {
            Self::Delivery(_) if !takes.contains(&Credential::Delivery) => {
                Err(Rejection::not_for_deliveries())
            }
            Self::Application { .. } if takes == [Credential::Delivery] => {
                let message = "Only the token of the Action's delivery is taken here";
                Err(Rejection::new(StatusCode::FORBIDDEN, Code::RequestRejected, message))
            }
            _ => Ok(()),
        }
    }

    /// Which sessions this caller reaches; nobody anonymous and no delivery reaches any.
    ///
    /// # Errors
    /// The opaque 404.
    pub fn reach(&self) -> Result<Reach, Rejection> {
        match self {
            Self::Anonymous | Self::Delivery(_) => Err(Rejection::opaque()),
            Self::Application { .. } => Ok(Reach::All),
            Self::Subject { subject, .. } => Ok(Reach::Person {
                subject: subject.to_string(),
                agents: None,
                token: false,
                sandboxes: None,
            }),
        }
    }

    /// The person, if one is acted for.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::Subject { subject, .. } => Some(subject),
            Self::Anonymous | Self::Application { .. } | Self::Delivery(_) => None,
        }
    }

    /// For the audit.
    #[must_use]
    pub fn audit_name(&self) -> String {
        match self {
            Self::Anonymous => "anonymous".to_owned(),
            Self::Delivery(claims) => format!("delivery:{}", claims.action_id),
            Self::Application { principal } => format!("application:{principal}"),
            Self::Subject { principal, subject, .. } => format!("application:{principal} for {subject}"),
        }
    }

    /// The caller behind a known key, from its subject headers.
    ///
    /// # Errors
    /// 400 `subject_invalid`.
    pub fn of_key(principal: Arc<str>, headers: &HeaderMap) -> Result<Self, Rejection> {
        let subject = single(headers, &SUBJECT)?;
        let scopes = single(headers, &SCOPES)?;
        let Some(subject) = subject else {
            return match scopes {
                None => Ok(Self::Application { principal }),
                Some(_) => Err(invalid("Nylorun-Scopes without Nylorun-Subject")),
            };
        };
        if !is_subject(subject) {
            return Err(invalid(
                "Nylorun-Subject must be 1 to 200 visible characters and not a reserved word",
            ));
        }
        let mut set = ScopeSet::default();
        let mut named = false;
        for name in scopes.unwrap_or_default().split(' ').filter(|name| !name.is_empty()) {
            named = true;
            match Scope::ALL.into_iter().find(|scope| scope.as_str() == name) {
                Some(scope) => set.add(scope),
                // Retired: still a name, grants nothing.
                None if name == "vaults:own" => {}
                None => return Err(invalid("Nylorun-Scopes names an unknown scope")),
            }
        }
        if !named {
            return Err(invalid("Nylorun-Scopes must name at least one scope"));
        }
        Ok(Self::Subject { principal, subject: Arc::from(subject), scopes: set })
    }
}

fn invalid(message: &'static str) -> Rejection {
    Rejection::new(StatusCode::BAD_REQUEST, Code::SubjectInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn read(pairs: &[(&str, &str)]) -> Result<Caller, Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = if *name == "s" { &SUBJECT } else { &SCOPES };
            headers.append(name.clone(), HeaderValue::from_str(value).expect("a value"));
        }
        Caller::of_key("ci".into(), &headers).map_err(|r| r.code())
    }

    #[test]
    fn subject_headers_follow_the_table() {
        assert_eq!(read(&[]), Ok(Caller::Application { principal: "ci".into() }));
        let Ok(Caller::Subject { subject, scopes, .. }) =
            read(&[("s", "ada l"), ("c", "sessions:own  agents:read vaults:own")])
        else {
            panic!("a subject")
        };
        assert_eq!(&*subject, "ada l");
        assert_eq!(scopes.names().collect::<Vec<_>>(), ["agents:read", "sessions:own"]);
        for bad in [
            &[("c", "sessions:own")][..],
            &[("s", "host"), ("c", "sessions:own")],
            &[("s", ""), ("c", "sessions:own")],
            &[("s", "ada")],
            &[("s", "ada"), ("c", " ")],
            &[("s", "ada"), ("c", "studio")],
            &[("s", "ada"), ("s", "bob"), ("c", "sessions:own")],
            &[("s", "ada"), ("c", "sessions:own"), ("c", "agents:read")],
        ] {
            assert_eq!(read(bad), Err(Code::SubjectInvalid), "{bad:?}");
        }
    }

    #[test]
    fn a_gate_is_for_persons_only_and_any_one_scope_opens_it() {
        let gate = Gate::OneOf(&[Scope::AgentsRead, Scope::AgentsWrite]);
        let app = Caller::Application { principal: "ci".into() };
        let ada = read(&[("s", "ada"), ("c", "agents:write")]).expect("a subject");
        let bob = read(&[("s", "bob"), ("c", "vaults:own")]).expect("a subject");
        assert!(app.pass(gate).is_ok() && app.pass(Gate::Never).is_ok());
        assert!(ada.pass(gate).is_ok() && ada.pass(Gate::Any).is_ok() && bob.pass(Gate::Any).is_ok());
        assert_eq!(bob.pass(gate).expect_err("refused").status(), 403);
        assert_eq!(ada.pass(Gate::Never).expect_err("refused").code(), Code::ScopeRequired);
    }
}
