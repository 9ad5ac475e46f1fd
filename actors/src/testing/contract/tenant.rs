//! The Tenant and what it keeps beside its sessions.

use super::samples::{json, open, sid};
use super::{Subject, both, tx};
use crate::model::Micros;
use crate::ports::store::{
    AuditRow, CommandRow, CredentialRow, DefinitionRow, IdempotencyRow, Page, PrincipalRow, StoreError,
    UsageRow,
};

pub async fn the_tenant_is_there(s: &mut dyn Subject) {
    let tenant = both(s, |r| r.tenant()).await;
    assert!(crate::model::ids::is_ulid_id(tenant.id.as_str(), "tn_"), "{}", tenant.id);
    assert_eq!(tenant.generation, 0);
    assert_eq!(tenant.created_at, tenant.updated_at);
    let uuids = tx(s, |t| Ok((t.uuid(), t.uuid()))).await.unwrap();
    assert_ne!(uuids.0, uuids.1);
    assert_eq!(uuids.0.len(), 36);
}

pub async fn settings_are_written_replaced_and_deleted(s: &mut dyn Subject) {
    assert_eq!(both(s, |r| r.setting("k")).await, None);
    for value in ["1", "", "2"] {
        tx(s, move |t| t.put_setting("k", value)).await.unwrap();
        assert_eq!(both(s, |r| r.setting("k")).await, Some(value.to_owned()));
    }
    tx(s, |t| t.put_setting("k2", "x")).await.unwrap();
    tx(s, |t| t.delete_setting("k")).await.unwrap();
    assert_eq!(both(s, |r| Ok((r.setting("k")?, r.setting("k2")?))).await, (None, Some("x".to_owned())));
}

pub async fn principals_are_found_by_the_hash_of_their_key(s: &mut dyn Subject) {
    let row = |id: &str, hash: &str| PrincipalRow {
        id: id.to_owned(),
        role: "application".to_owned(),
        token_hash: hash.to_owned(),
        created_at: Micros(5),
    };
    let put = |row: PrincipalRow| tx(s, move |t| t.put_principal(&row));
    put(row("b", "h2")).await.unwrap();
    put(row("a", "h1")).await.unwrap();
    assert_eq!(both(s, |r| r.principals()).await, [row("a", "h1"), row("b", "h2")]);
    assert_eq!(both(s, |r| r.principal_by_hash("h2")).await, Some(row("b", "h2")));
    put(row("b", "h3")).await.unwrap();
    assert_eq!(
        both(s, |r| Ok((r.principal_by_hash("h2")?, r.principal_by_hash("h3")?))).await,
        (None, Some(row("b", "h3")))
    );
    let taken = put(row("c", "h1")).await;
    assert!(matches!(taken, Err(StoreError::Conflict(_))), "{taken:?}");
    let taken = put(row("b", "h1")).await;
    assert!(matches!(taken, Err(StoreError::Conflict(_))), "{taken:?}");
    assert_eq!(both(s, |r| r.principals()).await, [row("a", "h1"), row("b", "h3")]);
    assert_eq!(tx(s, |t| t.delete_principal("a")).await, Ok(true));
    assert_eq!(tx(s, |t| t.delete_principal("a")).await, Ok(false));
    assert_eq!(both(s, |r| r.principal_by_hash("h1")).await, None);
}

pub async fn credentials_live_in_their_vault(s: &mut dyn Subject) {
    let row = |vault: &str, id: &str, byte: u8| CredentialRow {
        id: id.to_owned(),
        vault_id: vault.to_owned(),
        name: "a key".to_owned(),
        kind: "model".to_owned(),
        binding: json(r#"{"provider":"p"}"#),
        expires_at: (byte > 1).then(|| "2026-01-01T00:00:00.000Z".to_owned()),
        created_at: Micros(1),
        rotated_at: (byte > 1).then_some(Micros(2)),
        kek_id: "kek".to_owned(),
        nonce: vec![byte; 12],
        ciphertext: vec![0, byte, 255, 0],
        wrapped_dek: vec![byte; 60],
    };
    for (vault, id) in [("host", "b"), ("host", "a"), ("v", "a")] {
        let row = row(vault, id, 1);
        tx(s, move |t| t.put_credential(&row)).await.unwrap();
    }
    assert_eq!(both(s, |r| r.credential("host", "a")).await, Some(row("host", "a", 1)));
    assert_eq!(both(s, |r| r.credential("v", "b")).await, None);
    assert_eq!(both(s, |r| r.credentials("host")).await, [row("host", "a", 1), row("host", "b", 1)]);
    let rotated = row("host", "a", 2);
    tx(s, move |t| t.put_credential(&rotated)).await.unwrap();
    assert_eq!(both(s, |r| r.credential("host", "a")).await, Some(row("host", "a", 2)));
    assert_eq!(both(s, |r| r.credential("v", "a")).await, Some(row("v", "a", 1)));
    assert_eq!(tx(s, |t| t.delete_credential("host", "a")).await, Ok(true));
    assert_eq!(tx(s, |t| t.delete_credential("host", "a")).await, Ok(false));
    assert_eq!(both(s, |r| r.credentials("host")).await, [row("host", "b", 1)]);
}

pub async fn answers_and_audit_are_kept_once(s: &mut dyn Subject) {
    let row = |hash: &str| IdempotencyRow { body_hash: hash.to_owned(), response: json(r#"{"a":1}"#) };
    let first = row("h");
    tx(s, move |t| t.put_idempotency("k", &first)).await.unwrap();
    let second = row("h2");
    let again = tx(s, move |t| t.put_idempotency("k", &second)).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
    assert_eq!(both(s, |r| r.idempotency("k")).await, Some(row("h")));
    assert_eq!(both(s, |r| r.idempotency("k2")).await, None);

    let line = |target: Option<&str>| AuditRow {
        id: "id".to_owned(),
        at: Micros(1),
        actor: "operator".to_owned(),
        action: "model.put".to_owned(),
        target: target.map(str::to_owned),
        outcome: "ok".to_owned(),
    };
    let (first, second) = (line(None), line(Some("x")));
    tx(s, move |t| t.put_audit(&first)).await.unwrap();
    let again = tx(s, move |t| t.put_audit(&second)).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
}

pub async fn usage_is_a_ledger(s: &mut dyn Subject) {
    let row = |id: &str, effect: &str, at: i64, duplicate: bool| UsageRow {
        id: id.to_owned(),
        effect_key: effect.to_owned(),
        session_id: sid("s"),
        turn_id: "t".into(),
        agent_id: "a".into(),
        provider: duplicate.then(|| "p".to_owned()),
        model: duplicate.then(|| "m".to_owned()),
        tokens: [1, 2, 3, 4, 5, i64::MAX],
        cost_usd: 0.1 + 0.2,
        duplicate,
        created_at: Micros(at),
    };
    let rows = [row("1", "e", 9, true), row("2", "e", 3, false), row("3", "f", 1, false)];
    tx(s, move |t| rows.iter().try_for_each(|row| t.put_usage(row))).await.unwrap();
    let found = both(s, |r| r.usage_of_effect("e")).await;
    assert_eq!(found, [row("2", "e", 3, false), row("1", "e", 9, true)]);
    assert_eq!(both(s, |r| r.usage_of_effect("g")).await, []);
    let again = row("1", "z", 1, false);
    let again = tx(s, move |t| t.put_usage(&again)).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
}

pub async fn definitions_and_manifests_are_kept(s: &mut dyn Subject) {
    let row = |id: &str, version: &str, roots: Option<&str>| DefinitionRow {
        id: id.into(),
        manifest_hash: format!("hash of {id}"),
        implementation_version: version.to_owned(),
        plugin_roots: roots.map(json),
    };
    for id in ["b", "c", "a"] {
        let row = row(id, "1", None);
        tx(s, move |t| t.put_definition(&row)).await.unwrap();
    }
    let replaced = row("b", "2", Some(r#"{"x":"/y"}"#));
    tx(s, move |t| t.put_definition(&replaced)).await.unwrap();
    assert_eq!(both(s, |r| r.definition(&"b".into())).await, Some(row("b", "2", Some(r#"{"x":"/y"}"#))));
    assert_eq!(both(s, |r| r.definition(&"z".into())).await, None);
    let page = |after: Option<&str>, limit| {
        let page = Page { after: after.map(str::to_owned), limit };
        both(s, move |r| {
            Ok(r.definitions(&page)?.iter().map(|d| d.id.to_string()).collect::<Vec<_>>().join(" "))
        })
    };
    assert_eq!(page(None, None).await, "a b c");
    assert_eq!(page(None, Some(2)).await, "a b");
    assert_eq!(page(Some("a"), Some(1)).await, "b");
    assert_eq!(page(Some("c"), None).await, "");

    tx(s, |t| {
        t.put_manifest("h", &json(r#"{"id":"\ud800"}"#))?;
        // The same hash is the same text.
        t.put_manifest("h", &json(r#"{"id":"other"}"#))
    })
    .await
    .unwrap();
    assert_eq!(both(s, |r| r.manifest("h")).await, Some(json(r#"{"id":"\ud800"}"#)));
    assert_eq!(both(s, |r| r.manifest("g")).await, None);
}

pub async fn commands_are_recorded_once_per_session_and_key(s: &mut dyn Subject) {
    open(s, "a").await;
    open(s, "b").await;
    let row =
        |digest: &str| CommandRow { digest: digest.to_owned(), response: json(r#"{"status":"accepted"}"#) };
    let put = |session: &'static str, digest: &'static str| {
        tx(s, move |t| t.put_command(&sid(session), "k", &row(digest)))
    };
    put("a", "1").await.unwrap();
    put("b", "2").await.unwrap();
    let again = put("a", "3").await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
    assert_eq!(
        both(s, move |r| Ok((r.command(&sid("a"), "k")?, r.command(&sid("b"), "k")?))).await,
        (Some(row("1")), Some(row("2")))
    );
    assert_eq!(both(s, |r| r.command(&sid("a"), "K")).await, None);
}
