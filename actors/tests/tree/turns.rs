//! The life of a turn.

use std::time::Duration;

use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::rules::Refusal;
use nylorun_actors::tenant::Reach;
use nylorun_actors::testing::engine::{FakeEngine, Step};
use serde_json::json;

use super::support::{World, message, opening, sim};

#[test]
fn a_turn_runs_to_its_end_and_the_record_tells_it_in_order() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(10), Step::Tool(10), Step::Model(10)]);
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        let receipt = world.say(&id, "k1").await.unwrap();
        let view = world.until(&id, &[S::Completed]).await;
        assert_eq!(view.active_turn_id, None);
        assert_eq!(
            world.types(&id).await,
            [
                "command.message",
                "message.assistant",
                "tool.completed",
                "message.assistant",
                "transcript.updated",
                "turn.completed"
            ]
        );
        let record = world.record(&id).await;
        for (seq, event) in record.iter().enumerate() {
            assert_eq!(event["seq"], seq);
            assert_eq!(event["turnId"].as_str(), receipt.turn_id.as_deref());
        }
        assert_eq!(record[0]["epoch"], 0);
        assert_eq!(record[5]["epoch"], 1);
        assert!(engine.calls().values().all(|n| *n == 1));
        // The lease was given back with the settle.
        let head = {
            let id = id.clone();
            world.tenant.store().read(move |r| r.session(&id)).await.unwrap().unwrap()
        };
        assert_eq!((head.owner, head.owner_expires_at), (None, None));
    });
}

#[test]
fn the_same_key_and_command_answer_the_first_receipt_and_another_command_409() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(10)])).await;
        let id = world.open("s").await;
        let first = world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let mut again = message("k");
        again.request_id = "another".into();
        again.sent.insert("requestId".into(), json!("another"));
        assert_eq!(world.tenant.command(&id, again, &Reach::All).await.unwrap(), first);
        let mut other = message("k");
        other.sent.insert("content".into(), json!("different"));
        assert!(matches!(world.tenant.command(&id, other, &Reach::All).await, Err(Refusal::Conflict { .. })));
        assert_eq!(world.types(&id).await.iter().filter(|t| *t == "command.message").count(), 1);
    });
}

#[test]
fn a_message_while_a_turn_is_active_is_409_and_names_the_turn() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1_000)])).await;
        let id = world.open("s").await;
        let turn = world.say(&id, "k1").await.unwrap().turn_id;
        match world.say(&id, "k2").await {
            Err(Refusal::Conflict { active_turn, .. }) => {
                assert_eq!(active_turn.map(|t| t.to_string()), turn);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn each_turn_starts_from_the_transcript_that_the_last_one_left() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        let id = world.open("s").await;
        for n in 0..5 {
            world.say(&id, &format!("k{n}")).await.unwrap();
            world.until(&id, &[S::Completed]).await;
        }
        let record = world.record(&id).await;
        let edits: Vec<_> = record.iter().filter(|e| e["type"] == "transcript.updated").collect();
        let shape: Vec<_> = edits
            .iter()
            .map(|e| (e["payload"]["keep"].as_u64().unwrap(), e["payload"]["length"].as_u64().unwrap()))
            .collect();
        assert_eq!(shape, [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]);
    });
}

#[test]
fn a_cancel_stops_the_run_marks_what_was_in_flight_and_the_session_goes_on() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(5), Step::Tool(60_000)]);
        let world = World::new(engine).await;
        let id = world.open("s").await;
        world.say(&id, "k1").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let receipt = world.cancel(&id, "c1").await;
        assert_eq!(receipt.turn_id, None);
        let view = world.view(&id).await;
        assert_eq!((view.status, view.active_turn_id), (S::Cancelled, None));
        assert_eq!(view.uncertain_effects.len(), 1);
        let last = world.record(&id).await.pop().unwrap();
        assert_eq!(
            (last["type"].as_str(), last["payload"]["reason"].as_str()),
            (Some("turn.cancelled"), Some("enough"))
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.record(&id).await.pop().unwrap()["type"], "turn.cancelled");
        world.say(&id, "k2").await.unwrap();
        world.until(&id, &[S::Running]).await;
    });
}

#[test]
fn a_cancel_of_an_idle_session_is_recorded_without_a_turn() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![])).await;
        let id = world.open("s").await;
        world.cancel(&id, "c").await;
        let event = world.record(&id).await.pop().unwrap();
        assert_eq!((event["type"].as_str(), event["turnId"].is_null()), (Some("turn.cancelled"), true));
        assert_eq!(world.view(&id).await.status, S::Cancelled);
    });
}

#[test]
fn a_run_that_ignores_its_cancel_is_abandoned_after_the_grace() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            if start.checkpoint.input == "hello" && start.transcript.cursor < 0 {
                vec![Step::Hang]
            } else {
                vec![Step::Model(1)]
            }
        });
        let world = World::new(engine).await;
        let id = world.open("s").await;
        world.say(&id, "k1").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.cancel(&id, "c1").await;
        tokio::time::sleep(Duration::from_secs(31)).await;
        let states = world.tenant.actors().await;
        assert!(states.iter().any(|a| a["id"] == "s" && a["state"]["state"] == "idle"), "{states:?}");
    });
}

#[test]
fn a_failed_turn_puts_state_and_history_back() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            if start.transcript.cursor >= 0 {
                vec![Step::Model(1), Step::Fail("model.overloaded")]
            } else {
                vec![Step::Model(1)]
            }
        });
        let world = World::new(engine).await;
        let id = world.open("s").await;
        world.say(&id, "k1").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        world.say(&id, "k2").await.unwrap();
        let view = world.until(&id, &[S::Failed]).await;
        assert_eq!(view.error, None);
        let last = world.record(&id).await.pop().unwrap();
        assert_eq!(last["payload"]["error"]["code"], "model.overloaded");
        let doc = {
            let id = id.clone();
            world.tenant.store().read(move |r| r.session_doc(&id)).await.unwrap().unwrap()
        };
        assert_eq!(doc.state, doc.turn_start_state);
        assert_eq!(doc.history_from, doc.history_snapshot);
    });
}

#[test]
fn a_thrown_segment_fails_the_turn_with_its_text() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Throw])).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        assert_eq!(world.until(&id, &[S::Failed]).await.error.as_deref(), Some("as planned"));
        assert_eq!(world.record(&id).await.pop().unwrap()["payload"]["message"], "as planned");
    });
}

#[test]
fn a_rollover_goes_on_in_the_next_segment_without_a_turn_event() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            if start.checkpoint.segment == 0 {
                vec![Step::Model(1), Step::Yield]
            } else {
                vec![Step::Model(1)]
            }
        });
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(engine.runs().iter().map(|r| r.1).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(world.types(&id).await.iter().filter(|t| t.starts_with("turn.")).count(), 1);
    });
}

#[test]
fn an_approval_pauses_the_turn_and_its_answer_opens_the_next_segment() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            if start.checkpoint.is_answer() { vec![Step::Model(1)] } else { vec![Step::Approval] }
        });
        let mut world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Paused]).await;
        let paused = world.record(&id).await.pop().unwrap();
        assert_eq!(paused["payload"]["interactions"][0]["interaction"]["kind"], "approval");
        world.restart(engine.clone()).await;
        let first = world.approve(&id, "a1", true).await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(first.turn_id.as_deref(), paused["turnId"].as_str());
        assert_eq!(engine.runs().iter().map(|r| r.1).collect::<Vec<_>>(), [0, 1]);
    });
}

#[test]
fn an_action_stays_pending_and_the_segment_waits() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1), Step::Action])).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        let view = world.until(&id, &[S::Waiting]).await;
        assert_eq!(view.actions.len(), 1);
        assert_eq!(view.actions[0]["status"], "pending");
        assert!(view.waits.unwrap()["effectIds"][0].as_str().unwrap().contains(":hook:"));
        assert!(world.types(&id).await.contains(&"action.pending".to_owned()));
    });
}

#[test]
fn a_stale_owner_writes_nothing() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(1_000), Step::Model(1)]);
        let world = World::new(engine).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Another process takes over behind this one's back.
        world.store.share();
        let other = id.clone();
        world
            .tenant
            .store()
            .tx(move |tx| {
                tx.put_owner(&other, Some(&"worker-other".into()), 9, Some(tx.now().plus_ms(3_600_000)))
            })
            .await
            .unwrap();
        let before = world.record(&id).await.len();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(world.record(&id).await.len(), before);
        let head = {
            let id = id.clone();
            world.tenant.store().read(move |r| r.session(&id)).await.unwrap().unwrap()
        };
        assert_eq!((head.epoch, head.owner.unwrap().as_str()), (9, "worker-other"));
    });
}

#[test]
fn a_graceful_stop_gives_the_lease_back_and_the_next_process_makes_one_model_call() {
    sim(|| async {
        let slow = FakeEngine::of(vec![Step::Model(1), Step::Model(60_000)]);
        let mut world = World::new(slow.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let fast = FakeEngine::of(vec![Step::Model(1), Step::Model(1)]);
        world.restart(fast.clone()).await;
        world.until(&id, &[S::Completed]).await;
        assert_eq!(fast.calls().len(), 1, "only the call that was cut is made again");
        assert_eq!(world.types(&id).await.iter().filter(|t| *t == "message.assistant").count(), 2);
    });
}

#[test]
fn a_crash_repeats_a_model_call_as_a_duplicate_and_never_a_tool() {
    sim(|| async {
        let slow = FakeEngine::of(vec![Step::Model(60_000)]);
        let mut world = World::new(slow).await;
        let model = world.open("model").await;
        world.say(&model, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let fast = FakeEngine::of(vec![Step::Model(1)]);
        world.crash(fast.clone()).await;
        let turn = world.until(&model, &[S::Completed]).await;
        assert_eq!(turn.uncertain_effects.len(), 0);
        let effect = fast.calls().keys().next().unwrap().clone();
        let usage = world.tenant.store().read(move |r| r.usage_of_effect(&effect)).await.unwrap();
        assert!(usage.len() == 1 && usage[0].duplicate);

        let tool = world.open("tool").await;
        let slow = FakeEngine::of(vec![Step::Tool(60_000)]);
        world.restart(slow).await;
        world.say(&tool, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let after = FakeEngine::of(vec![Step::Tool(1)]);
        world.crash(after.clone()).await;
        let view = world.until(&tool, &[S::Uncertain]).await;
        assert_eq!(view.uncertain_effects.len(), 1);
        assert!(after.calls().is_empty());
        assert_eq!(world.record(&tool).await.pop().unwrap()["type"], "effect.uncertain");
    });
}

#[test]
fn an_advance_past_its_deadline_fails_the_turn_with_the_deadlines_words() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Wait])).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(49 * 60)).await;
        assert_eq!(world.view(&id).await.status, S::Running);
        tokio::time::sleep(Duration::from_secs(90)).await;
        let view = world.view(&id).await;
        assert_eq!(view.status, S::Failed);
        assert!(view.error.unwrap().contains("3000 s"));
    });
}

#[test]
fn opening_twice_re_attaches_and_opening_differently_is_409() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![])).await;
        let id = world.open("s").await;
        let again = world.tenant.open_session(opening(&id), &Reach::All).await.unwrap();
        assert_eq!(again.status, S::Idle);
        let mut other = opening(&id);
        other.creation = r#"{"agentId":"assistant","ownerUserId":"bob"}"#.into();
        assert!(matches!(world.tenant.open_session(other, &Reach::All).await, Err(Refusal::Conflict { .. })));
        let stranger = Reach::Person { subject: "bob".into(), agents: None, token: false, sandboxes: None };
        assert!(matches!(world.tenant.session(&id, &stranger).await, Err(Refusal::NotFound(_))));
        assert!(matches!(
            world.tenant.open_session(opening(&id), &stranger).await,
            Err(Refusal::NotFound(_))
        ));
    });
}

#[test]
fn ten_thousand_idle_sessions_cost_no_actor() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        for n in 0..10_000 {
            world.open(&format!("s{n}")).await;
        }
        assert_eq!(world.tenant.tree().sessions_in_memory(), 0);
        let id = "s1".into();
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(world.tenant.tree().sessions_in_memory(), 1);
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(world.tenant.tree().sessions_in_memory(), 0);
        world.say(&id, "k2").await.unwrap();
        world.until(&id, &[S::Completed]).await;
    });
}
