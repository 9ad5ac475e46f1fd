//! Actions: deliveries, holds, callbacks, and what a lost answer leaves behind.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::ports::action::Answered;
use nylorun_actors::rules::Refusal;
use nylorun_actors::rules::actions::DeliveryClaim;
use nylorun_actors::rules::endpoints::Registration;
use nylorun_actors::supervisor::PanicChild;
use nylorun_actors::testing::endpoints::{FakeEndpoints, Seen, ok, pong, status, tagged};
use nylorun_actors::testing::engine::{FakeEngine, Step};
use serde_json::json;

use super::support::{World, sim};

pub fn registration(url: &str) -> Registration {
    Registration {
        agent_id: "assistant".into(),
        url: url.to_owned(),
        implementation_version: "1".to_owned(),
        manifest_hash: None,
        timeout_ms: 60_000,
        max_concurrent: 16,
    }
}

pub async fn register(world: &World) {
    world.tenant.register_endpoints(vec![registration("http://endpoint/")]).await.unwrap();
}

/// A world whose turn is a model call, `charge`, a model call.
pub async fn charging(endpoints: FakeEndpoints) -> (World, Arc<FakeEngine>) {
    let engine = FakeEngine::of(vec![Step::Model(5), Step::Charge, Step::Model(5)]);
    let world = World::with_endpoints(engine.clone(), endpoints).await;
    (world, engine)
}

fn of_type<'a>(record: &'a [Json], kind: &str) -> Vec<&'a Json> {
    record.iter().filter(|e| e["type"] == kind).collect()
}

fn lost() -> Answered {
    Answered::Lost { code: "RESET", message: "the connection was reset".to_owned() }
}

fn claim(seen: &Seen) -> DeliveryClaim {
    DeliveryClaim {
        action: seen.action.as_deref().unwrap().into(),
        token_action: seen.action.clone().unwrap(),
        generation: seen.generation,
        agent: "assistant".to_owned(),
    }
}

#[test]
fn an_action_is_delivered_and_the_run_that_waits_for_it_goes_on() {
    sim(|| async {
        let (world, engine) = charging(FakeEndpoints::new(|_| (200, ok(&json!(7))))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(engine.runs().len(), 1, "the same run went on");
        assert_eq!(
            world.types(&id).await,
            [
                "command.message",
                "message.assistant",
                "action.pending",
                "action.delivered",
                "action.completed",
                "message.assistant",
                "transcript.updated",
                "turn.completed"
            ]
        );
        let record = world.record(&id).await;
        let action = record[2]["payload"]["actionId"].as_str().unwrap();
        assert_eq!(record[3]["payload"], json!({ "actionId": action, "generation": 1 }));
        assert_eq!(
            record[4]["payload"],
            json!({ "actionId": action, "kind": "tool", "toolName": "charge", "callId": "c1", "invocationId": "i1",
                "result": { "kind": "completed", "output": 7 } })
        );
        let seen = world.endpoints.seen();
        assert_eq!(seen.len(), 1);
        let sent = &seen[0].body;
        assert_eq!((&sent["type"], &sent["sandbox"]), (&json!("action"), &json!(false)));
        let sent = &sent["action"];
        assert_eq!((&sent["status"], &sent["generation"]), (&json!("delivering"), &json!(1)));
        assert_eq!(sent["outputSchema"], json!({ "type": "number" }));
        assert_eq!(sent["implementationVersion"], "1");
        let view = world.view(&id).await;
        assert_eq!((view.actions.len(), view.uncertain_effects.len()), (0, 0));
    });
}

#[test]
fn an_endpoint_that_refuses_is_tried_again_with_growing_pauses_and_told_of_at_most_every_10_s() {
    sim(|| async {
        let count = Arc::new(AtomicUsize::new(0));
        let answers = Arc::clone(&count);
        let endpoints = FakeEndpoints::new(move |_| match answers.fetch_add(1, Ordering::SeqCst) {
            n if n < 9 => (0, status(503, &json!({}))),
            _ => (0, ok(&json!(1))),
        });
        let (world, _) = charging(endpoints).await;
        register(&world).await;
        let id = world.open("s").await;
        let began = tokio::time::Instant::now();
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let took = began.elapsed().as_secs();
        // 250 ms doubling to 30 s, nine times, less up to a quarter.
        assert!((69..=95).contains(&took), "{took} s");
        let seen = world.endpoints.seen();
        let generations: Vec<i64> = seen.iter().map(|s| s.generation).collect();
        assert_eq!(generations, (1..=10).collect::<Vec<i64>>());
        let record = world.record(&id).await;
        let told = of_type(&record, "action.delivery_failed");
        assert!((3..=6).contains(&told.len()), "{} were written", told.len());
        assert_eq!(told[0]["payload"]["reason"], "endpoint.unavailable");
        assert!(told[0]["payload"]["retryInMs"].as_i64().unwrap() <= 250);
    });
}

#[test]
fn retry_after_of_the_endpoint_goes_before_the_pause() {
    sim(|| async {
        let endpoints = FakeEndpoints::new(|seen| match seen.generation {
            1 => {
                let answer = Answered::Response {
                    status: 429,
                    tagged: false,
                    retry_after: Some(Duration::from_secs(120)),
                    body: Vec::new(),
                };
                (0, answer)
            }
            _ => (0, ok(&json!(1))),
        });
        let (world, _) = charging(endpoints).await;
        register(&world).await;
        let id = world.open("s").await;
        let began = tokio::time::Instant::now();
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert!((120..125).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    });
}

#[test]
fn a_lost_tool_is_uncertain_and_is_never_delivered_again_without_an_operators_word() {
    sim(|| async {
        let endpoints =
            FakeEndpoints::new(|seen| if seen.generation == 1 { (0, lost()) } else { (0, ok(&json!(3))) });
        let (world, engine) = charging(endpoints).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        let view = world.until(&id, &[S::Uncertain]).await;
        assert_eq!(view.actions[0]["status"], "uncertain");
        tokio::time::sleep(Duration::from_secs(3 * 24 * 3600)).await;
        assert_eq!(world.endpoints.seen().len(), 1, "no second delivery in three days");
        assert_eq!(world.view(&id).await.status, S::Uncertain);
        let record = world.record(&id).await;
        assert_eq!(of_type(&record, "action.uncertain").len(), 1);
        let resolve = super::reconcile::resolve(&world, &id, "r1", super::reconcile::retry()).await;
        resolve.unwrap();
        world.until(&id, &[S::Completed]).await;
        let seen = world.endpoints.seen();
        assert_eq!((seen.len(), seen[1].generation), (2, 2));
        assert!(engine.calls().values().all(|n| *n == 1), "no model call was repeated");
    });
}

#[test]
fn a_lost_hook_is_delivered_again() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Hook, Step::Model(5)]);
        let outcome = json!({ "value": { "results": {} } });
        let endpoints =
            FakeEndpoints::new(
                move |seen| if seen.generation < 3 { (0, lost()) } else { (0, tagged(&outcome)) },
            );
        let world = World::with_endpoints(engine, endpoints).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(world.endpoints.seen().len(), 3);
        let record = world.record(&id).await;
        assert!(of_type(&record, "action.uncertain").is_empty());
    });
}

#[test]
fn a_hooks_plain_answer_is_a_failed_outcome() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Hook]);
        let world = World::with_endpoints(engine, FakeEndpoints::answering(json!({ "results": {} }))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let record = world.record(&id).await;
        let result = &of_type(&record, "action.completed")[0]["payload"]["result"];
        assert_eq!((&result["kind"], &result["code"]), (&json!("failed"), &json!("endpoint.invalid-answer")));
    });
}

#[test]
fn an_output_that_does_not_match_its_schema_is_a_failed_outcome_and_a_success_of_the_endpoint() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::answering(json!("seven"))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let record = world.record(&id).await;
        let result = &of_type(&record, "action.completed")[0]["payload"]["result"];
        assert_eq!((&result["kind"], &result["code"]), (&json!("failed"), &json!("tool.invalid-output")));
        let health = world.tenant.endpoint_health(&"assistant".into()).await.unwrap().unwrap();
        assert_eq!(health.consecutive_failures, 0);
        assert!(health.last_success_at.is_some());
    });
}

#[test]
fn a_cancel_cuts_the_delivery_and_leaves_it_uncertain_and_what_waits_cancelled() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::new(|_| (50_000, ok(&json!(1))))).await;
        let one = Registration { max_concurrent: 1, ..registration("http://endpoint/") };
        world.tenant.register_endpoints(vec![one]).await.unwrap();
        let (a, b) = (world.open("a").await, world.open("b").await);
        world.say(&a, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.say(&b, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.endpoints.seen().len(), 1, "one at a time");
        let of = |id: &nylorun_actors::model::ids::SessionId| {
            let id = id.clone();
            world
                .tenant
                .store()
                .read(move |r| r.open_effects(&id, &[nylorun_actors::model::effect::EffectStatus::Uncertain]))
        };
        world.cancel(&b, "c").await;
        assert_eq!(of(&b).await.unwrap().len(), 0, "nothing was sent for it");
        world.cancel(&a, "c").await;
        let uncertain = of(&a).await.unwrap();
        assert_eq!(uncertain.len(), 1, "the endpoint may have acted");
        // Its place is free at once.
        let c = world.open("c").await;
        world.say(&c, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let seen = world.endpoints.seen();
        assert_eq!((seen.len(), seen[1].at_once), (2, 1));
        world.until(&c, &[S::Completed]).await;
        assert_eq!(world.view(&a).await.status, S::Cancelled);
    });
}

#[test]
fn a_thousand_actions_at_once_keep_to_the_endpoints_limit_and_each_reaches_it_once() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::new(|_| (40, ok(&json!(1))))).await;
        register(&world).await;
        let mut ids = Vec::new();
        for n in 0..1_000 {
            let id = world.open(&format!("s{n}")).await;
            world.say(&id, "k").await.unwrap();
            ids.push(id);
        }
        for id in &ids {
            world.until(id, &[S::Completed]).await;
        }
        let seen = world.endpoints.seen();
        assert_eq!(seen.len(), 1_000);
        let most = seen.iter().map(|s| s.at_once).max().unwrap();
        assert_eq!(most, 16, "as many as allowed, and no more");
        let each: HashSet<_> = seen.iter().map(|s| s.action.clone()).collect();
        assert_eq!(each.len(), 1_000, "each once");
    });
}

#[test]
fn a_dead_endpoint_costs_little_while_a_thousand_actions_wait_for_it() {
    sim(|| async {
        let refused = Answered::NotSent { code: "CONNECT", message: "connection refused".to_owned() };
        let endpoints = FakeEndpoints::new(move |_| (0, refused.clone()));
        let engine = FakeEngine::of(vec![Step::Action]);
        let world = World::with_endpoints(engine, endpoints).await;
        register(&world).await;
        let mut ids = Vec::new();
        for n in 0..1_000 {
            let id = world.open(&format!("s{n}")).await;
            world.say(&id, "k").await.unwrap();
            ids.push(id);
        }
        world.until(&ids[999], &[S::Waiting]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let before = world.endpoints.seen().len();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let tried = world.endpoints.seen().len() - before;
        assert!((100..=165).contains(&tried), "{tried} tries in an hour: one each 22 to 30 s");
    });
}

#[test]
fn without_an_endpoint_an_action_waits_for_its_registration() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::answering(json!(1))).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Waiting]).await;
        tokio::time::sleep(Duration::from_secs(48 * 3600)).await;
        assert!(world.endpoints.seen().is_empty());
        assert_eq!(world.view(&id).await.actions[0]["status"], "pending");
        register(&world).await;
        world.until(&id, &[S::Completed]).await;
        assert_eq!(world.endpoints.seen().len(), 1);
        world.tenant.remove_endpoint(&"assistant".into()).await.unwrap();
        assert!(matches!(world.tenant.remove_endpoint(&"assistant".into()).await, Err(Refusal::NotFound(_))));
        world.say(&id, "k2").await.unwrap();
        world.until(&id, &[S::Waiting]).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.endpoints.seen().len(), 1);
    });
}

#[test]
fn an_action_that_was_tried_for_a_day_is_parked_until_a_good_ping_or_a_registration() {
    sim(|| async {
        let refused = Answered::NotSent { code: "CONNECT", message: "refused".to_owned() };
        let up = Arc::new(AtomicUsize::new(0));
        let is_up = Arc::clone(&up);
        let endpoints = FakeEndpoints::new(move |seen| match (is_up.load(Ordering::SeqCst), &seen.action) {
            (0, _) => (0, refused.clone()),
            (_, None) => (0, pong(seen)),
            _ => (0, ok(&json!(1))),
        });
        let (world, _) = charging(endpoints).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(25 * 3600)).await;
        let counts = world.tenant.figures().await.unwrap().counts;
        assert_eq!((counts.parked_actions, counts.pending_effects), (1, 1));
        assert_eq!(world.view(&id).await.actions[0]["status"], "pending", "as on the wire");
        let tried = world.endpoints.seen().len();
        tokio::time::sleep(Duration::from_secs(48 * 3600)).await;
        assert_eq!(world.endpoints.seen().len(), tried, "no more calls");
        assert!(world.tenant.ping_endpoint(&"assistant".into()).await.is_err());
        up.store(1, Ordering::SeqCst);
        let pong = world.tenant.ping_endpoint(&"assistant".into()).await.unwrap();
        assert_eq!(pong, json!({ "agentId": "assistant", "implementationVersion": "served" }));
        world.until(&id, &[S::Completed]).await;
        let health = world.tenant.endpoint_health(&"assistant".into()).await.unwrap().unwrap();
        assert_eq!((health.consecutive_failures, health.last_error), (0, None));
        assert_eq!(health.served.unwrap().implementation_version, "served");
    });
}

#[test]
fn a_background_delivery_lives_by_heartbeats_and_its_result_is_recorded_once() {
    sim(|| async {
        let (world, engine) = charging(FakeEndpoints::new(|_| (0, status(202, &json!({}))))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let claimed = claim(&world.endpoints.seen()[0]);
        for _ in 0..6 {
            let beat = world.tenant.heartbeat(claimed.clone()).await.unwrap();
            assert_eq!(beat.url.as_deref(), Some("http://endpoint/"));
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        let unknown = DeliveryClaim { action: "nothing".into(), ..claimed.clone() };
        assert!(matches!(world.tenant.heartbeat(unknown).await, Err(Refusal::NotFound(_))));
        let other = DeliveryClaim { agent: "another".to_owned(), ..claimed.clone() };
        assert!(matches!(world.tenant.heartbeat(other).await, Err(Refusal::Forbidden(_))));
        let anothers = DeliveryClaim { token_action: "another".to_owned(), ..claimed.clone() };
        assert!(matches!(world.tenant.heartbeat(anothers).await, Err(Refusal::Forbidden(_))));
        let stale = DeliveryClaim { generation: 2, ..claimed.clone() };
        assert!(matches!(world.tenant.heartbeat(stale.clone()).await, Err(Refusal::Conflict { .. })));
        let outcome = json!({ "value": { "kind": "completed", "output": 1.0 } });
        assert!(matches!(
            world.tenant.action_result(claimed.clone(), json!({ "value": 1, "more": 2 })).await,
            Err(Refusal::Invalid { .. })
        ));
        let receipt = world.tenant.action_result(claimed.clone(), outcome).await.unwrap();
        assert_eq!(receipt["status"], "accepted");
        world.until(&id, &[S::Completed]).await;
        let equal = json!({ "value": { "output": 1, "kind": "completed" } });
        assert_eq!(
            world.tenant.action_result(claimed.clone(), equal).await.unwrap(),
            receipt,
            "canonically equal"
        );
        let another = json!({ "value": { "kind": "completed", "output": 2 } });
        for (claim, sent) in
            [(claimed.clone(), another), (stale, json!({ "value": { "kind": "completed", "output": 1 } }))]
        {
            let refused = world.tenant.action_result(claim, sent).await;
            assert!(matches!(refused, Err(Refusal::Conflict { .. })), "{refused:?}");
        }
        assert_eq!(engine.runs().len(), 1, "the run was held all the time");
        let record = world.record(&id).await;
        assert_eq!(of_type(&record, "action.completed").len(), 1);
    });
}

#[test]
fn a_background_delivery_without_heartbeats_is_lost_and_a_late_result_is_409() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::new(|_| (0, status(202, &json!({}))))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        let began = tokio::time::Instant::now();
        world.until(&id, &[S::Uncertain]).await;
        assert!((30..36).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        let late = world.tenant.action_result(claim(&world.endpoints.seen()[0]), json!({ "value": 1 })).await;
        assert!(matches!(late, Err(Refusal::Conflict { .. })), "{late:?}");
        assert_eq!(world.view(&id).await.status, S::Uncertain);
    });
}

#[test]
fn an_endpoints_actor_that_dies_is_started_again_and_an_answer_on_its_way_is_recorded() {
    sim(|| async {
        let (world, engine) = charging(FakeEndpoints::new(|_| (2_000, ok(&json!(1))))).await;
        let one = Registration { max_concurrent: 1, ..registration("http://endpoint/") };
        world.tenant.register_endpoints(vec![one]).await.unwrap();
        let (a, b) = (world.open("a").await, world.open("b").await);
        world.say(&a, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.say(&b, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let supervisor = world.tenant.tree().supervisor().unwrap();
        supervisor.send(PanicChild::Endpoint("assistant".into())).await.unwrap();
        let began = tokio::time::Instant::now();
        world.until(&a, &[S::Completed]).await;
        world.until(&b, &[S::Completed]).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let seen = world.endpoints.seen();
        assert_eq!(seen.len(), 2, "neither was delivered twice");
        assert!(seen.iter().all(|s| s.at_once == 1));
        assert_eq!(engine.runs().len(), 2);
    });
}

#[test]
fn a_delivery_that_panics_is_lost_at_its_deadline_and_holds_up_no_other() {
    sim(|| async {
        let count = Arc::new(AtomicUsize::new(0));
        let calls = Arc::clone(&count);
        let endpoints = FakeEndpoints::new(move |_| {
            assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "a test has the first delivery panic");
            (10, ok(&json!(1)))
        });
        let (world, _) = charging(endpoints).await;
        register(&world).await;
        let (a, b) = (world.open("a").await, world.open("b").await);
        world.say(&a, "k").await.unwrap();
        world.until(&a, &[S::Uncertain]).await;
        world.say(&b, "k").await.unwrap();
        world.until(&b, &[S::Completed]).await;
        let actors = world.tenant.actors().await;
        let endpoint = actors.iter().find(|actor| actor["kind"] == "endpoint").unwrap();
        assert_eq!(endpoint["state"]["inFlight"], json!([]));
        let counts = world.tenant.figures().await.unwrap().counts;
        assert_eq!((counts.uncertain_effects, counts.delivering_actions), (1, 0));
    });
}

#[test]
fn a_crash_delivers_what_waited_and_loses_what_an_endpoint_had() {
    sim(|| async {
        let slow = Arc::new(AtomicUsize::new(1));
        let is_slow = Arc::clone(&slow);
        let endpoints = FakeEndpoints::new(move |_| match is_slow.load(Ordering::SeqCst) {
            0 => (10, ok(&json!(1))),
            _ => (55_000, ok(&json!(1))),
        });
        let (mut world, engine) = charging(endpoints).await;
        let one = Registration { max_concurrent: 1, ..registration("http://endpoint/") };
        world.tenant.register_endpoints(vec![one]).await.unwrap();
        let (a, b) = (world.open("a").await, world.open("b").await);
        world.say(&a, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.say(&b, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.crash(engine.clone()).await;
        slow.store(0, Ordering::SeqCst);
        world.until(&a, &[S::Uncertain]).await;
        world.until(&b, &[S::Completed]).await;
        let mut generations: HashMap<_, Vec<i64>> = HashMap::new();
        for seen in world.endpoints.seen() {
            generations.entry(seen.action).or_default().push(seen.generation);
        }
        assert!(generations.values().all(|g| g == &[1]), "{generations:?}");
    });
}

#[test]
fn a_graceful_stop_waits_for_an_answer_that_comes_soon() {
    sim(|| async {
        let (mut world, engine) = charging(FakeEndpoints::new(|_| (3_000, ok(&json!(1))))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.restart(engine.clone()).await;
        world.until(&id, &[S::Completed]).await;
        assert_eq!(world.endpoints.seen().len(), 1, "a deploy repeats nothing and loses nothing");
        assert!(engine.calls().values().all(|n| *n == 1));
    });
}

#[test]
fn what_an_endpoint_does_is_shown() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::new(|_| (10_000, ok(&json!(1))))).await;
        register(&world).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let actors = world.tenant.actors().await;
        let endpoint = actors.iter().find(|a| a["kind"] == "endpoint").unwrap();
        assert_eq!(endpoint["id"], "assistant");
        assert_eq!(endpoint["state"]["inFlight"][0]["sessionId"], "s");
        assert_eq!(endpoint["state"]["freedBy"], "the endpoint's answers");
        world.until(&id, &[S::Completed]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let actors = world.tenant.actors().await;
        assert!(!actors.iter().any(|a| a["kind"] == "endpoint"), "it left memory");
    });
}
