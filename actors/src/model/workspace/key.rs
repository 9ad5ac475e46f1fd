//! How workspaces are named, the same in core and in every harness (spec: sandbox, section 10).

use sha2::{Digest as _, Sha256};

use crate::model::ids::{SessionId, TenantId};

/// What every key of a Tenant's workspaces starts with.
#[must_use]
pub fn key_prefix(tenant: &TenantId) -> String {
    format!("nylorun-{tenant}-")
}

/// Key of a session's own workspace.
#[must_use]
pub fn session_key(tenant: &TenantId, session: &SessionId) -> String {
    format!("{}{}", key_prefix(tenant), digest(session.as_str()))
}

/// Key of a sandbox resource's workspace.
#[must_use]
pub fn sandbox_key(tenant: &TenantId, sandbox: &str) -> String {
    format!("{}sbx-{}", key_prefix(tenant), digest(sandbox))
}

fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::super::WorkspaceSession;
    use super::*;

    #[test]
    fn keys_are_the_tenants_prefix_and_16_hex_characters_of_a_hash() {
        let tenant = TenantId::from("tn_x");
        // printf s-42 | sha256sum
        assert_eq!(session_key(&tenant, &"s-42".into()), format!("nylorun-tn_x-{}", digest("s-42")));
        assert_eq!(digest("abc"), "ba7816bf8f01cfea");
        assert_eq!(sandbox_key(&tenant, "abc"), "nylorun-tn_x-sbx-ba7816bf8f01cfea");
        let of = |sandbox: Option<&str>| WorkspaceSession {
            owner_id: "abc".into(),
            sandbox_id: sandbox.map(str::to_owned),
            active_turn_id: None,
        };
        assert_eq!(of(None).key(&tenant), "nylorun-tn_x-ba7816bf8f01cfea");
        assert_eq!(of(Some("abc")).key(&tenant), "nylorun-tn_x-sbx-ba7816bf8f01cfea");
    }
}
