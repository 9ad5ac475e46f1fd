//! The effect journal.

use super::samples::{effect, json, open, sid, turn};
use super::{Subject, both, tx};
use crate::model::effect::{EffectKind, EffectStatus};
use crate::ports::store::{EffectRow, StoreError};

const KINDS: [EffectKind; 7] = [
    EffectKind::Model,
    EffectKind::Tool,
    EffectKind::Hook,
    EffectKind::Delegation,
    EffectKind::Agent,
    EffectKind::Fn,
    EffectKind::Verify,
];
const STATUSES: [EffectStatus; 6] = [
    EffectStatus::Queued,
    EffectStatus::Pending,
    EffectStatus::Invoking,
    EffectStatus::Completed,
    EffectStatus::Uncertain,
    EffectStatus::Cancelled,
];

async fn insert(s: &dyn Subject, row: EffectRow) {
    tx(s, move |t| t.insert_effect(&row)).await.unwrap();
}

async fn get(s: &dyn Subject, id: &'static str) -> Option<EffectRow> {
    both(s, move |r| r.effect(&id.into())).await
}

fn ids(rows: &[EffectRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

pub async fn effects_come_back_as_written(s: &mut dyn Subject) {
    open(s, "s").await;
    for kind in KINDS {
        for status in STATUSES {
            let id = format!("t:0:{}/{}", kind.as_str(), status.as_str());
            let mut row = effect("s", &id, kind, status);
            row.error = Some("why\0".to_owned());
            row.attempts = 3;
            row.slimmed = status == EffectStatus::Cancelled;
            let expected = row.clone();
            insert(s, row).await;
            assert_eq!(both(s, move |r| r.effect(&id.as_str().into())).await, Some(expected));
        }
    }
    assert_eq!(get(s, "t:0:nothing").await, None);
}

pub async fn an_effect_id_is_used_once(s: &mut dyn Subject) {
    open(s, "s").await;
    open(s, "s2").await;
    insert(s, effect("s", "t:0:a", EffectKind::Tool, EffectStatus::Pending)).await;
    let again =
        tx(s, |t| t.insert_effect(&effect("s2", "t:0:a", EffectKind::Tool, EffectStatus::Completed))).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
    assert_eq!(get(s, "t:0:a").await.unwrap().session_id, sid("s"));
}

pub async fn settling_writes_status_outcome_and_error(s: &mut dyn Subject) {
    open(s, "s").await;
    let row = effect("s", "t:0:a", EffectKind::Tool, EffectStatus::Invoking);
    insert(s, row.clone()).await;
    let settle = |status, outcome: Option<&'static str>, error: Option<&'static str>| {
        tx(s, move |t| t.settle_effect(&"t:0:a".into(), status, outcome.map(json).as_ref(), error))
    };
    let open_now = |statuses: &'static [EffectStatus]| both(s, |r| r.open_effects(&sid("s"), statuses));

    settle(EffectStatus::Uncertain, None, Some("lost")).await.unwrap();
    let expected =
        EffectRow { status: EffectStatus::Uncertain, error: Some("lost".to_owned()), ..row.clone() };
    assert_eq!(get(s, "t:0:a").await, Some(expected.clone()));
    assert_eq!(open_now(&[EffectStatus::Uncertain]).await, [expected]);

    settle(EffectStatus::Completed, Some(r#"{"value":"\ud800"}"#), None).await.unwrap();
    let expected = EffectRow {
        status: EffectStatus::Completed,
        outcome: Some(json(r#"{"value":"\ud800"}"#)),
        ..row.clone()
    };
    assert_eq!(get(s, "t:0:a").await, Some(expected));
    assert_eq!(open_now(&STATUSES).await, []);

    // An operator may open it again.
    settle(EffectStatus::Pending, None, None).await.unwrap();
    let expected = EffectRow { status: EffectStatus::Pending, ..row };
    assert_eq!(get(s, "t:0:a").await, Some(expected.clone()));
    assert_eq!(open_now(&STATUSES).await, [expected]);
}

pub async fn open_effects_are_those_of_the_session_in_the_statuses(s: &mut dyn Subject) {
    open(s, "s").await;
    open(s, "other").await;
    // Written in another order than that of their ids.
    for (i, status) in STATUSES.into_iter().enumerate().rev() {
        insert(s, effect("s", &format!("t:0:{i}"), EffectKind::Tool, status)).await;
    }
    insert(s, effect("other", "u:0:0", EffectKind::Tool, EffectStatus::Pending)).await;
    let list = |statuses: &'static [EffectStatus]| both(s, |r| r.open_effects(&sid("s"), statuses));
    let open =
        &[EffectStatus::Queued, EffectStatus::Pending, EffectStatus::Invoking, EffectStatus::Uncertain];
    assert_eq!(ids(&list(open).await), ["t:0:0", "t:0:1", "t:0:2", "t:0:4"]);
    assert_eq!(ids(&list(&[EffectStatus::Invoking]).await), ["t:0:2"]);
    assert_eq!(ids(&list(&[EffectStatus::Uncertain, EffectStatus::Queued]).await), ["t:0:0", "t:0:4"]);
    assert_eq!(list(&[]).await, []);
    assert_eq!(list(&[EffectStatus::Completed, EffectStatus::Cancelled]).await, []);
    assert_eq!(both(s, |r| r.open_effects(&sid("nobody"), &STATUSES)).await, []);
}

pub async fn completed_effects_are_those_of_the_segment(s: &mut dyn Subject) {
    open(s, "s").await;
    use EffectStatus::{Completed, Invoking};
    for (id, status) in [
        ("t:1:b", Completed),
        ("t:1:a", Completed),
        ("t:1:", Completed),
        ("t:1:\u{10FFFF}", Completed),
        ("t:1:open", Invoking),
        ("t:10:x", Completed),
        ("t:0:x", Completed),
        ("t:1;x", Completed),
        ("tt:1:x", Completed),
        ("T:1:x", Completed),
    ] {
        insert(s, effect("s", id, EffectKind::Model, status)).await;
    }
    let mut bare = effect("s", "t:1:bare", EffectKind::Tool, Completed);
    bare.outcome = None;
    insert(s, bare).await;
    let list = |t: &'static str, segment| both(s, move |r| r.completed_effects(&turn(t), segment));
    assert_eq!(ids(&list("t", 1).await), ["t:1:", "t:1:a", "t:1:b", "t:1:\u{10FFFF}"]);
    assert_eq!(ids(&list("t", 10).await), ["t:10:x"]);
    assert_eq!(list("t", 2).await, []);
    assert_eq!(list("%", 1).await, []);
}

pub async fn handing_out_counts_attempts(s: &mut dyn Subject) {
    open(s, "s").await;
    insert(s, effect("s", "t:0:a", EffectKind::Model, EffectStatus::Uncertain)).await;
    for attempts in [2, 3] {
        tx(s, |t| t.reinvoke_effect(&"t:0:a".into())).await.unwrap();
        let row = get(s, "t:0:a").await.unwrap();
        assert_eq!((row.status, row.attempts), (EffectStatus::Invoking, attempts));
        assert_eq!(both(s, |r| r.open_effects(&sid("s"), &[EffectStatus::Invoking])).await, [row]);
    }
    tx(s, |t| t.settle_effect(&"t:0:a".into(), EffectStatus::Completed, None, None)).await.unwrap();
    tx(s, |t| t.reinvoke_effect(&"t:0:a".into())).await.unwrap();
    assert_eq!(both(s, |r| r.open_effects(&sid("s"), &[EffectStatus::Invoking])).await.len(), 1);
}

pub async fn slimming_drops_answers_of_completed_models_only(s: &mut dyn Subject) {
    open(s, "s").await;
    open(s, "other").await;
    use EffectStatus::{Completed, Uncertain};
    let rows = [
        effect("s", "t:0:m", EffectKind::Model, Completed),
        effect("s", "t:1:m", EffectKind::Model, Completed),
        effect("s", "t:1:tool", EffectKind::Tool, Completed),
        effect("s", "t:1:u", EffectKind::Model, Uncertain),
        effect("s", "t2:0:m", EffectKind::Model, Completed),
        effect("other", "t:2:m", EffectKind::Model, Completed),
    ];
    for row in rows.clone() {
        insert(s, row).await;
    }
    tx(s, |t| t.slim_model_effects(&sid("s"), &turn("t"))).await.unwrap();
    let after = both(s, {
        let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
        move |r| ids.iter().map(|id| Ok(r.effect(id)?.unwrap())).collect::<Result<Vec<_>, StoreError>>()
    })
    .await;
    for (i, (before, after)) in rows.into_iter().zip(after).enumerate() {
        let expected = if i < 2 { EffectRow { outcome: None, slimmed: true, ..before } } else { before };
        assert_eq!(after, expected);
    }
    assert_eq!(ids(&both(s, |r| r.completed_effects(&turn("t"), 1)).await), ["t:1:tool"]);
}
