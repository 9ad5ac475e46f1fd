//! Actions and their endpoints.

use super::samples::{json, open, sid, turn};
use super::{Subject, both, tx};
use crate::model::Micros;
use crate::model::action::ActionStatus;
use crate::model::effect::EffectKind;
use crate::model::ids::AgentId;
use crate::ports::store::{ActionRow, AgentLoad, EndpointRow, Page, StoreError};

fn action(session: &str, id: &str, agent: &str) -> ActionRow {
    ActionRow {
        id: id.into(),
        session_id: sid(session),
        turn_id: turn("t"),
        agent_id: agent.into(),
        kind: EffectKind::Tool,
        status: ActionStatus::Pending,
        generation: 0,
        deadline_at: None,
        retry_at: None,
        parked_at: None,
        since: Micros(5),
        body: json(r#"{"actionId":"x","input":["nul\u0000"]}"#),
        receipt: None,
    }
}

fn endpoint(agent: &str) -> EndpointRow {
    EndpointRow {
        agent_id: agent.into(),
        url: format!("http://127.0.0.1:1/{agent}"),
        implementation_version: "v1".to_owned(),
        manifest_hash: None,
        timeout_ms: 60_000,
        max_concurrent: 16,
        health: json(r#"{"consecutiveFailures":0}"#),
        updated_at: Micros(9),
    }
}

async fn insert(s: &dyn Subject, row: ActionRow) {
    tx(s, move |t| t.insert_action(&row)).await.unwrap();
}

async fn load(s: &dyn Subject, agent: &'static str) -> AgentLoad {
    both(s, move |r| r.agent_load(&agent.into())).await
}

pub async fn actions_come_back_as_written_and_change_what_may_change(s: &mut dyn Subject) {
    open(s, "s").await;
    let kinds = [EffectKind::Tool, EffectKind::Hook, EffectKind::Fn, EffectKind::Verify];
    for (n, kind) in kinds.into_iter().enumerate() {
        let id = format!("t:0:{n}");
        let row = ActionRow { kind, ..action("s", &id, "a") };
        insert(s, row.clone()).await;
        let (ask, expected) = (id.clone(), row.clone());
        assert_eq!(both(s, move |r| r.action(&ask.as_str().into())).await, Some(expected));
        let changed = ActionRow {
            status: ActionStatus::Completed,
            generation: 3,
            deadline_at: Some(Micros(1)),
            retry_at: Some(Micros(2)),
            parked_at: Some(Micros(3)),
            since: Micros(4),
            receipt: Some(json(r#"{"status":"accepted"}"#)),
            ..row
        };
        let expected = changed.clone();
        tx(s, move |t| t.put_action(&changed)).await.unwrap();
        assert_eq!(both(s, move |r| r.action(&id.as_str().into())).await, Some(expected));
    }
    assert_eq!(both(s, |r| r.action(&"nothing".into())).await, None);
    let nothing = action("s", "t:0:nothing", "a");
    let missing = tx(s, move |t| t.put_action(&nothing)).await;
    assert!(matches!(missing, Err(StoreError::Missing(_))), "{missing:?}");
}

pub async fn an_action_needs_its_session_and_is_written_once(s: &mut dyn Subject) {
    let orphan = tx(s, |t| t.insert_action(&action("s", "t:0:a", "a"))).await;
    assert!(matches!(orphan, Err(StoreError::Missing(_))), "{orphan:?}");
    open(s, "s").await;
    insert(s, action("s", "t:0:a", "a")).await;
    let again = tx(s, |t| t.insert_action(&action("s", "t:0:a", "b"))).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
}

pub async fn due_actions_take_turns_between_sessions(s: &mut dyn Subject) {
    for session in ["many", "few"] {
        open(s, session).await;
    }
    for n in 0..4 {
        insert(s, action("many", &format!("t:0:m{n}"), "a")).await;
    }
    insert(s, action("few", "t:0:f0", "a")).await;
    insert(s, ActionRow { retry_at: Some(Micros(100)), ..action("few", "t:0:later", "a") }).await;
    insert(s, ActionRow { parked_at: Some(Micros(1)), ..action("few", "t:0:parked", "a") }).await;
    insert(s, ActionRow { status: ActionStatus::Delivering, ..action("few", "t:0:busy", "a") }).await;
    insert(s, action("few", "t:0:other", "b")).await;
    let due = both(s, |r| r.due_actions(&"a".into(), Micros(99), 3)).await;
    assert_eq!(due, ["t:0:m0", "t:0:f0", "t:0:m1"].map(Into::into));
    let due = both(s, |r| r.due_actions(&"a".into(), Micros(100), 99)).await;
    assert_eq!(due, ["t:0:m0", "t:0:f0", "t:0:m1", "t:0:later", "t:0:m2", "t:0:m3"].map(Into::into));
    assert_eq!(both(s, |r| r.due_actions(&"c".into(), Micros(100), 99)).await, []);
}

pub async fn an_agents_load_counts_its_open_actions(s: &mut dyn Subject) {
    open(s, "s").await;
    assert_eq!(load(s, "a").await, AgentLoad::default());
    let of = |id: &str, status, at: Option<i64>| ActionRow {
        status,
        deadline_at: at.filter(|_| status == ActionStatus::Delivering).map(Micros),
        retry_at: at.filter(|_| status == ActionStatus::Pending).map(Micros),
        ..action("s", id, "a")
    };
    for (n, (status, at)) in [
        (ActionStatus::Pending, None),
        (ActionStatus::Pending, Some(70)),
        (ActionStatus::Pending, Some(60)),
        (ActionStatus::Delivering, Some(90)),
        (ActionStatus::Delivering, Some(80)),
        (ActionStatus::Completed, None),
        (ActionStatus::Uncertain, None),
        (ActionStatus::Cancelled, None),
    ]
    .into_iter()
    .enumerate()
    {
        insert(s, of(&format!("t:0:{n}"), status, at)).await;
    }
    insert(s, ActionRow { parked_at: Some(Micros(1)), ..action("s", "t:0:parked", "a") }).await;
    let expected = AgentLoad {
        delivering: 2,
        pending: 3,
        parked: 1,
        next_retry: Some(Micros(60)),
        next_deadline: Some(Micros(80)),
    };
    assert_eq!(load(s, "a").await, expected);
    let counts = both(s, |r| r.counts()).await;
    assert_eq!((counts.parked_actions, counts.delivering_actions), (1, 2));
    let open = both(s, |r| r.open_actions(&sid("s"))).await;
    let ids: Vec<_> = open.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["t:0:0", "t:0:1", "t:0:2", "t:0:3", "t:0:4", "t:0:parked"]);
}

pub async fn deliveries_past_their_deadline_are_found(s: &mut dyn Subject) {
    open(s, "s").await;
    let delivering = |id: &str, at| ActionRow {
        status: ActionStatus::Delivering,
        deadline_at: Some(Micros(at)),
        ..action("s", id, "a")
    };
    insert(s, delivering("t:0:b", 50)).await;
    insert(s, delivering("t:0:a", 40)).await;
    insert(s, delivering("t:0:c", 60)).await;
    insert(s, action("s", "t:0:d", "a")).await;
    let late = both(s, |r| r.expired_actions(&"a".into(), Micros(50), 9)).await;
    assert_eq!(late, ["t:0:b", "t:0:a"].map(Into::into));
    assert_eq!(both(s, |r| r.expired_actions(&"a".into(), Micros(50), 1)).await.len(), 1);
    assert_eq!(both(s, |r| r.expired_actions(&"b".into(), Micros(50), 9)).await, []);
}

pub async fn revived_actions_are_due_at_once(s: &mut dyn Subject) {
    open(s, "s").await;
    insert(s, ActionRow { parked_at: Some(Micros(6)), ..action("s", "t:0:parked", "a") }).await;
    insert(s, ActionRow { retry_at: Some(Micros(900)), ..action("s", "t:0:waits", "a") }).await;
    insert(s, ActionRow { parked_at: Some(Micros(6)), ..action("s", "t:0:other", "b") }).await;
    let revived = tx(s, |t| t.revive_actions(&"a".into(), Micros(77))).await.unwrap();
    assert_eq!(revived, 1);
    let due = both(s, |r| r.due_actions(&"a".into(), Micros(77), 9)).await;
    assert_eq!(due, ["t:0:parked", "t:0:waits"].map(Into::into));
    let parked = both(s, |r| r.action(&"t:0:parked".into())).await.unwrap();
    assert_eq!((parked.parked_at, parked.since), (None, Micros(77)));
    let waited = both(s, |r| r.action(&"t:0:waits".into())).await.unwrap();
    assert_eq!((waited.retry_at, waited.since), (None, Micros(5)));
    assert_eq!(load(s, "b").await.parked, 1);
}

pub async fn busy_agents_deliver_or_have_an_endpoint(s: &mut dyn Subject) {
    open(s, "s").await;
    insert(s, action("s", "t:0:1", "without")).await;
    insert(s, action("s", "t:0:2", "with")).await;
    insert(s, ActionRow { status: ActionStatus::Delivering, ..action("s", "t:0:3", "gone") }).await;
    insert(s, ActionRow { parked_at: Some(Micros(1)), ..action("s", "t:0:4", "parked") }).await;
    insert(s, ActionRow { status: ActionStatus::Completed, ..action("s", "t:0:5", "done") }).await;
    for agent in ["with", "parked", "done", "idle"] {
        tx(s, move |t| t.put_endpoint(&endpoint(agent))).await.unwrap();
    }
    let busy = both(s, |r| r.busy_agents()).await;
    assert_eq!(busy, ["gone", "with"].map(AgentId::from));
}

pub async fn endpoints_are_replaced_listed_and_deleted(s: &mut dyn Subject) {
    for agent in ["c", "a", "b"] {
        tx(s, move |t| t.put_endpoint(&endpoint(agent))).await.unwrap();
    }
    let new = EndpointRow { manifest_hash: Some("mh".to_owned()), timeout_ms: 1000, ..endpoint("a") };
    let expected = new.clone();
    tx(s, move |t| t.put_endpoint(&new)).await.unwrap();
    assert_eq!(both(s, |r| r.endpoint(&"a".into())).await, Some(expected.clone()));
    let health = json(r#"{"consecutiveFailures":3}"#);
    let written = health.clone();
    tx(s, move |t| {
        t.put_endpoint_health(&"a".into(), &written)?;
        t.put_endpoint_health(&"nobody".into(), &written)
    })
    .await
    .unwrap();
    let page = Page { after: None, limit: Some(2) };
    let first = both(s, move |r| r.endpoints(&page)).await;
    assert_eq!(first, [EndpointRow { health, ..expected }, endpoint("b")]);
    let page = Page { after: Some("b".to_owned()), limit: None };
    assert_eq!(both(s, move |r| r.endpoints(&page)).await, [endpoint("c")]);
    assert!(tx(s, |t| t.delete_endpoint(&"b".into())).await.unwrap());
    assert!(!tx(s, |t| t.delete_endpoint(&"b".into())).await.unwrap());
    assert_eq!(both(s, |r| r.endpoint(&"b".into())).await, None);
}

pub async fn actions_go_with_their_session(s: &mut dyn Subject) {
    open(s, "s").await;
    open(s, "s2").await;
    insert(s, action("s", "t:0:1", "a")).await;
    insert(s, action("s2", "t:0:2", "a")).await;
    tx(s, |t| t.delete_session(&sid("s"))).await.unwrap();
    assert_eq!(both(s, |r| r.action(&"t:0:1".into())).await, None);
    assert_eq!(load(s, "a").await.pending, 1);
    tx(s, |t| t.put_endpoint(&endpoint("a"))).await.unwrap();
    tx(s, |t| t.reset_sessions()).await.unwrap();
    assert_eq!(load(s, "a").await, AgentLoad::default());
    assert!(both(s, |r| r.endpoint(&"a".into())).await.is_some(), "a reset keeps endpoints");
}
