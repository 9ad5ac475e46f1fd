//! Operator keys: `/v1/admin/keys` (spec: http-api, section 17; security, section 2). A key is shown once; only its
//! SHA-256 is stored.

use actix_web::http::StatusCode;
use nylorun_actors::model::canonical::sha256_hex;
use nylorun_actors::model::json::{Json, encode};
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::Tx;
use nylorun_actors::rules::keys::{self, KeyError};
use serde_json::json;
use std::sync::Arc;
use zeroize::Zeroizing;

use super::answer::{self, Answer};
use super::call::OperatorCall;
use super::page::Paging;
use super::rejection::{Code, Rejection};
use super::slot::OpenTenant;

impl From<KeyError> for Rejection {
    fn from(error: KeyError) -> Self {
        let (status, code) = match &error {
            KeyError::BadName => (StatusCode::BAD_REQUEST, Code::InvalidRequest),
            KeyError::Reserved(_) => (StatusCode::BAD_REQUEST, Code::RequestRejected),
            KeyError::Unknown(_) => (StatusCode::NOT_FOUND, Code::NotFound),
            KeyError::Store(error) => return Self::from(error.clone()),
        };
        Self::new(status, code, error.to_string())
    }
}

pub(super) async fn list(call: OperatorCall) -> Answer {
    let paging = Paging::of(&call.query()).map_err(Rejection::for_operator)?;
    let open = call.open()?;
    let mut rows = open.tenant.store().read(|reads| reads.principals()).await?;
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    paging.select(&mut rows, |row| &row.id);
    let tail = paging.finish(&mut rows, |row| &row.id);
    let rows: Vec<Json> = rows
        .iter()
        .map(|row| json!({"id": row.id, "role": row.role, "createdAt": row.created_at.to_iso()}))
        .collect();
    Ok(answer::text(format!(r#"{{"keys":{}{tail}}}"#, encode(&rows))))
}

pub(super) async fn put(call: OperatorCall) -> Answer {
    let id = call.param(0).to_owned();
    keys::check_name(&id)?;
    let open = call.open()?;
    let key = Zeroizing::new(hex::encode(Zeroizing::new(rand::random::<[u8; 32]>()).as_slice()));
    let hash = sha256_hex(key.as_bytes());
    let (row, rotated) = change(open, move |tx| keys::put(tx, &id, &hash)).await?;
    Ok(answer::json(&json!({
        "id": row.id,
        "role": row.role,
        "createdAt": row.created_at.to_iso(),
        "key": key.as_str(),
        "rotated": rotated,
    })))
}

pub(super) async fn delete(call: OperatorCall) -> Answer {
    let id = call.param(0).to_owned();
    keys::check_name(&id)?;
    let open = call.open()?;
    let target = id.clone();
    change(open, move |tx| keys::delete(tx, &target)).await?;
    Ok(answer::json(&json!({"id": id, "deleted": true})))
}

/// Changes a principal. The known keys are forgotten after the commit and before the answer, also when the client has
/// gone meanwhile: the work is a task of its own, so that nobody's hanging up can leave an old key in the cache.
async fn change<T: Send + 'static>(
    open: Arc<OpenTenant>,
    run: impl FnOnce(&mut dyn Tx) -> Result<T, KeyError> + Send + 'static,
) -> Result<T, KeyError> {
    let work = actix_web::rt::spawn(async move {
        let result = open.tenant.store().tx(run).await;
        open.forget_keys();
        result
    });
    work.await.unwrap_or(Err(KeyError::Store(StoreError::Panicked)))
}
