//! Signing keys: `/v1/access/jwks` and `/v1/access/signing-keys` (spec: http-api, section 14).

use nylorun_actors::model::json::{Json, encode};
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::SigningKeyRow;
use nylorun_actors::rules::signing;

use super::answer::{self, Answer};
use super::call::Call;
use super::page::Paging;
use super::rejection::Rejection;
use super::shapes;
use crate::identity::IdentityError;

impl From<IdentityError> for Rejection {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Refused(refusal) => refusal.into(),
            other => Self::internal(&other),
        }
    }
}

pub(super) async fn jwks(call: Call) -> Answer {
    Ok(answer::json(&call.open.signing.published().await?))
}

pub(super) async fn list(call: Call) -> Answer {
    let paging = Paging::of(&call.query())?;
    let mut rows = call.open.signing.list().await?;
    paging.select(&mut rows, |row| &row.id);
    let tail = paging.finish(&mut rows, |row| &row.id);
    Ok(answer::text(format!(r#"{{"keys":{}{tail}}}"#, encode(&views(&rows)?))))
}

pub(super) async fn rotate(call: Call) -> Answer {
    let (head, body) = call.object(&shapes::ROTATE).await?;
    let force = body.get("force").and_then(Json::as_bool).unwrap_or(false);
    let rows = head.open.signing.rotate(force, &head.caller.audit_name()).await?;
    Ok(answer::text(format!(r#"{{"keys":{}}}"#, encode(&views(&rows)?))))
}

pub(super) async fn revoke(call: Call) -> Answer {
    let (head, _) = call.object(&shapes::REVOKE).await?;
    let row = head.open.signing.revoke(head.param(0), &head.caller.audit_name()).await?;
    Ok(answer::json(&signing::view(&row)?))
}

fn views(rows: &[SigningKeyRow]) -> Result<Vec<Json>, StoreError> {
    rows.iter().map(signing::view).collect()
}
