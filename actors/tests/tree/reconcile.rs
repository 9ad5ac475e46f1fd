//! Decisions of an operator on effects whose fate is unknown.

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::effect::{EffectStatus, Outcome};
use nylorun_actors::model::ids::{EffectId, SessionId};
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::ports::action::Answered;
use nylorun_actors::ports::store::Page;
use nylorun_actors::rules::Refusal;
use nylorun_actors::rules::reconcile::{Asked, Decision, Resolve};
use nylorun_actors::testing::endpoints::FakeEndpoints;
use nylorun_actors::testing::engine::{FakeEngine, Step};
use serde_json::json;

use super::actions::register;
use super::support::{World, sim};

pub fn retry() -> Decision {
    Decision::Retry
}

fn completed(output: i64) -> Decision {
    let value = Arc::new(json!({ "kind": "completed", "output": output }));
    Decision::Completed(Outcome { value, state_patch: None })
}

fn failed(code: &str) -> Decision {
    Decision::Failed { code: code.to_owned(), message: "it did not happen".to_owned() }
}

async fn uncertain(world: &World, id: &SessionId) -> Vec<EffectId> {
    let id = id.clone();
    let open = world.tenant.store().read(move |r| r.open_effects(&id, &[EffectStatus::Uncertain])).await;
    open.unwrap().into_iter().map(|e| e.id).collect()
}

/// Decides on the session's first uncertain effect.
pub async fn resolve(world: &World, id: &SessionId, key: &str, decision: Decision) -> Result<Json, Refusal> {
    let effect = uncertain(world, id).await[0].clone();
    resolve_of(world, id, effect, key, decision).await
}

async fn resolve_of(
    world: &World,
    id: &SessionId,
    effect: EffectId,
    key: &str,
    decision: Decision,
) -> Result<Json, Refusal> {
    let sent = json!({ "requestId": "q", "idempotencyKey": key, "resolution": format!("{decision:?}") });
    let resolve = Resolve {
        session: id.clone(),
        effect,
        request_id: "q".to_owned(),
        idempotency_key: key.to_owned(),
        decision,
        by: "application:local".to_owned(),
        sent: sent.as_object().unwrap().clone(),
    };
    world.tenant.resolve_effect(resolve).await
}

/// A session whose tool's answer was lost.
async fn lost_charge() -> (World, Arc<FakeEngine>, SessionId) {
    let lost = Answered::Lost { code: "RESET", message: "reset".to_owned() };
    let engine = FakeEngine::of(vec![Step::Model(5), Step::Charge, Step::Model(5)]);
    let world = World::with_endpoints(engine.clone(), FakeEndpoints::new(move |_| (0, lost.clone()))).await;
    register(&world).await;
    let id = world.open("s").await;
    world.say(&id, "k").await.unwrap();
    world.until(&id, &[S::Uncertain]).await;
    (world, engine, id)
}

#[test]
fn a_decision_that_it_was_done_resumes_the_turn_with_that_outcome_and_is_recorded_once() {
    sim(|| async {
        let (world, engine, id) = lost_charge().await;
        let effect = uncertain(&world, &id).await[0].clone();
        let receipt = resolve(&world, &id, "r1", completed(4)).await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let again = resolve_of(&world, &id, effect.clone(), "r1", completed(4)).await.unwrap();
        assert_eq!(again, receipt);
        let other = resolve_of(&world, &id, effect.clone(), "r1", failed("x")).await;
        assert!(matches!(other, Err(Refusal::Conflict { .. })), "the key was used: {other:?}");
        let late = resolve_of(&world, &id, effect.clone(), "r2", completed(4)).await;
        assert!(matches!(late, Err(Refusal::Conflict { .. })), "it is decided: {late:?}");
        let record = world.record(&id).await;
        let reconciled: Vec<_> = record.iter().filter(|e| e["type"] == "effect.reconciled").collect();
        assert_eq!(reconciled.len(), 1);
        assert_eq!(
            reconciled[0]["payload"],
            json!({ "effectId": effect.as_str(), "resolution": "completed", "by": "application:local" })
        );
        assert_eq!(reconciled[0]["source"]["kind"], "operator");
        assert_eq!(world.endpoints.seen().len(), 1);
        assert!(engine.calls().values().all(|n| *n == 1));
    });
}

#[test]
fn a_decision_that_it_failed_gives_the_turn_the_failure() {
    sim(|| async {
        let (world, _, id) = lost_charge().await;
        resolve(&world, &id, "r1", failed("payment.unknown")).await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let record = world.record(&id).await;
        let done = record.iter().find(|e| e["type"] == "action.completed").unwrap();
        assert_eq!(
            done["payload"]["result"],
            json!({ "kind": "failed", "code": "payment.unknown", "message": "it did not happen" })
        );
    });
}

#[test]
fn a_tool_of_the_harness_that_a_crash_cut_can_be_run_again_or_settled() {
    sim(|| async {
        for decision in [retry(), completed(1), failed("tool.lost")] {
            let engine = FakeEngine::of(vec![Step::Tool(60_000)]);
            let mut world = World::new(engine.clone()).await;
            let id = world.open("s").await;
            world.say(&id, "k").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let next = FakeEngine::of(vec![Step::Tool(10)]);
            world.crash(next.clone()).await;
            world.until(&id, &[S::Uncertain]).await;
            assert!(next.calls().is_empty(), "never by us alone");
            let expected = usize::from(decision == retry());
            resolve(&world, &id, "r1", decision).await.unwrap();
            world.until(&id, &[S::Completed]).await;
            assert_eq!(next.calls().len(), expected);
        }
    });
}

#[test]
fn a_decision_on_an_ended_turn_is_only_recorded() {
    sim(|| async {
        let (world, engine, id) = lost_charge().await;
        world.cancel(&id, "c").await;
        let runs = engine.runs().len();
        assert_eq!(uncertain(&world, &id).await.len(), 1);
        resolve(&world, &id, "r1", retry()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(world.view(&id).await.status, S::Cancelled);
        assert_eq!((world.endpoints.seen().len(), engine.runs().len()), (1, runs));
        assert!(uncertain(&world, &id).await.is_empty());
    });
}

#[test]
fn what_waits_for_somebody_is_listed_by_what_it_waits_for() {
    sim(|| async {
        let (world, _, id) = lost_charge().await;
        let list = |asked, page| world.tenant.open_effects(&id, asked, page);
        let all = list(None, Page::default()).await.unwrap();
        assert_eq!(all.len(), 1);
        let effect = &all[0];
        assert_eq!((&effect["status"], &effect["kind"]), (&json!("uncertain"), &json!("tool")));
        assert_eq!((&effect["toolName"], &effect["generation"]), (&json!("charge"), &json!(1)));
        assert!(effect["since"].is_string() && effect["error"].is_string());
        assert_eq!(list(Some(Asked::Uncertain), Page::default()).await.unwrap().len(), 1);
        assert!(list(Some(Asked::Dead), Page::default()).await.unwrap().is_empty());
        let after = effect["effectId"].as_str().map(str::to_owned);
        assert!(list(None, Page { after, limit: Some(1) }).await.unwrap().is_empty());
        let nobody = world.tenant.open_effects(&"nobody".into(), None, Page::default()).await;
        assert!(matches!(nobody, Err(Refusal::NotFound(_))));
    });
}
