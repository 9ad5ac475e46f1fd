//! `/v1/admin/fixture`: a script that answers every model call (DESIGN.md, section 9). It is the operator's alone and a
//! route of its own, because the bodies of 0.17 (seed, model) are closed.
//!
//! `PUT {"script": …}` stores the script and turns the fixture model on; `{"script": null}` removes both, so the
//! provider answers again. Runs that have begun keep what they began with.

use nylorun_actors::model::json::Json;
use nylorun_actors::model::shape::issue;
use nylorun_actors::rules::{Refusal, settings};
use serde_json::json;
use std::sync::Arc;

use super::answer::{self, Answer};
use super::body;
use super::call::OperatorCall;
use super::rejection::Rejection;
use super::shapes;
use super::slot::OpenTenant;
use crate::engine::model::script::FixtureScript;

pub(super) async fn get(call: OperatorCall) -> Answer {
    view(call.open()?).await
}

pub(super) async fn put(call: OperatorCall) -> Answer {
    let open = call.open()?;
    let body = body::object(&call.request, call.payload, &shapes::PUT_FIXTURE).await;
    let mut body = body.map_err(Rejection::for_operator)?;
    let script = body.remove("script").filter(|script| !script.is_null());
    if let Some(Err(problems)) = script.as_ref().map(FixtureScript::parse) {
        let issues: Vec<_> = problems.into_iter().map(|problem| issue(&["script"], problem)).collect();
        return Err(Rejection::issues(&issues).for_operator());
    }
    // A task of its own: a client that hangs up must not leave the engine with the old script.
    let work = actix_web::rt::spawn(async move {
        open.tenant.store().tx(move |tx| settings::put_fixture(tx, script.as_ref())).await?;
        open.models.reload_script().await?;
        view(open).await
    });
    work.await.map_err(|error| Rejection::internal(&error))?
}

async fn view(open: Arc<OpenTenant>) -> Answer {
    let read = open
        .tenant
        .store()
        .read(|reads| Ok::<_, Refusal>((settings::fixture_model(reads)?, settings::fixture_script(reads)?)));
    let (on, script) = read.await?;
    let script = script.and_then(|text| text.decode::<Json>().ok());
    Ok(answer::json(&json!({"fixtureModel": on, "script": script})))
}
