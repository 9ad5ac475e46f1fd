//! Projected transcripts: what the model reads of each entry, and that a kept projection equals a fresh one.

use proptest::prelude::*;

use super::*;

fn entry(value: Json) -> Entry {
    Arc::new(value)
}

fn text_of(items: &[PromptItem]) -> Vec<Json> {
    items.iter().map(|item| item.as_ref().clone()).collect()
}

/// The prompt as the definition says it: every entry projected, in the light of the turn that runs.
fn plainly(entries: &[Entry], turn: Option<&str>) -> Vec<Json> {
    entries.iter().flat_map(|entry| text_of(&project(entry, turn).0)).collect()
}

fn shown(view: &Projection) -> Vec<Json> {
    view.prompt(None).iter().map(|item| item.as_ref().clone()).collect()
}

fn hash(view: &Projection) -> String {
    let mut hasher = Hasher::new();
    view.hash_prompt(Some("\"head\""), &mut hasher);
    hasher.finish()
}

#[test]
fn every_kind_of_entry_projects_as_the_model_reads_it() {
    let message = |content: Json| json!({"kind": "message", "role": "user", "content": content});
    let text = |text: &str| json!({"type": "text", "text": text});
    let input = |event: Json| json!({"kind": "input", "turnId": "t", "event": event});
    let parts = json!([{"type": "media", "mediaType": "image/png", "reference": 1}]);
    let cases = [
        (input(json!({"kind": "user-message", "text": "a"})), vec![message(json!([text("a")]))]),
        (input(json!({"kind": "interrupt", "content": parts})), vec![message(parts.clone())]),
        (input(json!({"kind": "approve", "interactionId": "i", "approved": true})), vec![]),
        (input(json!({"kind": "respond", "interactionId": "i", "value": 1})), vec![]),
        (json!({"kind": "final", "turnId": "t", "stepId": "s", "output": "x"}), vec![]),
        (
            json!({"kind": "tool-results", "turnId": "t", "stepId": "s", "results": [
                {"callId": "1", "toolName": "n", "kind": "completed", "output": "ok"},
                {"callId": "2", "toolName": "n", "kind": "denied", "reason": "r"}]}),
            vec![
                json!({"kind": "tool-result", "toolCallId": "1", "toolName": "n", "status": "completed", "content": [text("\"ok\"")]}),
                json!({"kind": "tool-result", "toolCallId": "2", "toolName": "n", "status": "denied", "content": [text("{\"kind\":\"denied\",\"reason\":\"r\"}")]}),
            ],
        ),
    ];
    for (entry, expected) in cases {
        assert_eq!(text_of(&project(&entry, Some("t")).0), expected, "{entry}");
    }
    let compaction = json!({"kind": "compaction", "turnId": "t", "stepId": "s", "summary": "S", "trigger": "threshold", "tokensBefore": 1, "tokensAfter": 1});
    let item = project(&compaction, None).0.remove(0);
    assert!(item["content"][0]["text"].as_str().unwrap().contains("<summary>\nS\n</summary>"));
}

#[test]
fn an_answer_keeps_texts_and_calls_and_shows_reasoning_only_where_it_may_be_replayed() {
    let text = json!({"type": "text", "text": "a", "providerMetadata": {"x": 1}});
    let call = json!({"type": "tool-call", "id": "c", "name": "n", "args": {}, "raw": "{}"});
    let signed = json!({"type": "reasoning", "text": "r", "providerMetadata": {"pi": {"signature": "s"}}});
    let bound = json!({"type": "reasoning", "text": "b", "providerMetadata": {"pi": {"replay": "turn"}}});
    let bare = json!({"type": "reasoning", "text": "no"});
    let value = json!({"type": "json", "value": {"k": 1}});
    let producer = json!({"provider": "p", "model": "m"});
    let entry = json!({"kind": "candidate", "turnId": "t", "stepId": "s", "candidate": {
        "output": [bare, bound, signed, text, value, call], "evidence": {"extras": {"producer": producer}}}});
    let shown = |turn| project(&entry, turn).0[0]["content"].clone();
    let as_text = json!({"type": "text", "text": "{\"k\":1}"});
    assert_eq!(shown(Some("t")), json!([bound, signed, text, as_text, call]));
    assert_eq!(shown(Some("u")), json!([signed, text, as_text, call]));
    assert_eq!(project(&entry, None).0[0]["producer"], producer);
    assert!(project(&entry, Some("t")).1);
    let empty = json!({"kind": "candidate", "turnId": "t", "stepId": "s", "candidate": {"output": [bare]}});
    assert_eq!(project(&empty, Some("t")), (vec![], false));
}

#[test]
fn progress_counts_the_answers_of_the_turn_at_the_end() {
    let list: Vec<Entry> =
        [("a", "candidate"), ("b", "input"), ("b", "candidate"), ("b", "tool-results"), ("b", "candidate")]
            .map(|(turn, kind)| entry(json!({"kind": kind, "turnId": turn})))
            .into();
    assert_eq!((progress(&list, "b"), progress(&list, "a")), (2, 0));
}

#[test]
fn texts_are_given_up_once_the_past_is_long_and_the_weight_follows() {
    let long = |n: usize| {
        entry(
            json!({"kind": "input", "turnId": "t", "event": {"kind": "user-message", "text": "x".repeat(n)}}),
        )
    };
    let chained = Projection::of(&[long(CHAIN_ABOVE_BYTES)], PromptHash::Chained);
    let exact = Projection::of(&[long(CHAIN_ABOVE_BYTES)], PromptHash::Exact);
    assert!(chained.past_texts.is_none() && exact.past_texts.is_some());
    assert!(chained.weight() > 2 * CHAIN_ABOVE_BYTES);
    assert!(exact.weight() > 3 * CHAIN_ABOVE_BYTES);
}

/// One turn of a random transcript: what each of its entries is.
#[derive(Clone, Debug)]
enum Kind {
    Message(String),
    Answer,
    Plain(String),
    Bound(String),
    Empty,
    Results(u8),
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        "[a-z\"é]{0,8}".prop_map(Kind::Message),
        Just(Kind::Answer),
        "[a-z\\n]{0,8}".prop_map(Kind::Plain),
        "[a-z]{0,8}".prop_map(Kind::Bound),
        Just(Kind::Empty),
        (0u8..3).prop_map(Kind::Results),
    ]
}

fn entry_of(turn: &str, kind: &Kind) -> Entry {
    let answer = |blocks: Json| json!({"kind": "candidate", "turnId": turn, "stepId": "s", "candidate": {"output": blocks}});
    entry(match kind {
        Kind::Message(text) => {
            json!({"kind": "input", "turnId": turn, "event": {"kind": "user-message", "text": text}})
        }
        Kind::Answer => {
            json!({"kind": "input", "turnId": turn, "event": {"kind": "approve", "interactionId": "i", "approved": true}})
        }
        Kind::Plain(text) => answer(json!([{"type": "text", "text": text}])),
        Kind::Bound(text) => answer(json!([
            {"type": "reasoning", "text": text, "providerMetadata": {"replay": "turn"}},
            {"type": "text", "text": text}])),
        Kind::Empty => {
            answer(json!([{"type": "reasoning", "text": "", "providerMetadata": {"replay": "turn"}}]))
        }
        Kind::Results(n) => json!({"kind": "tool-results", "turnId": turn, "stepId": "s", "results":
            (0..*n).map(|n| results::completed(&n.to_string(), "t", json!(n))).collect::<Vec<_>>()}),
    })
}

proptest! {
    #[test]
    fn a_kept_projection_is_a_fresh_one(
        turns in prop::collection::vec(prop::collection::vec(kinds(), 0..6), 1..6),
        cuts in prop::collection::vec(any::<bool>(), 6),
        mode in prop_oneof![Just(PromptHash::Exact), Just(PromptHash::Chained)],
    ) {
        let mut kept = Projection::new(mode);
        let mut all: Vec<Entry> = Vec::new();
        for (n, turn) in turns.iter().enumerate() {
            let name = format!("turn-{n}");
            kept.open(&name);
            let mark = kept.mark();
            // A suspended run leaves nothing behind.
            if cuts[n] {
                turn.iter().for_each(|kind| kept.push(entry_of(&name, kind)));
                kept.rollback(mark);
                prop_assert_eq!(kept.entries(), &all[..]);
                kept.open(&name);
            }
            for kind in turn {
                kept.push(entry_of(&name, kind));
                all.push(entry_of(&name, kind));
                let mut fresh = Projection::of(&all, mode);
                fresh.open(&name);
                prop_assert_eq!(shown(&kept), plainly(&all, Some(&name)));
                prop_assert_eq!(shown(&fresh), shown(&kept));
                prop_assert_eq!(hash(&fresh), hash(&kept));
                prop_assert_eq!(fresh.live_ledger.digest.clone().finish(), kept.live_ledger.digest.clone().finish());
                prop_assert_eq!(fresh.live_ledger.bytes, kept.live_ledger.bytes);
            }
        }
        kept.open("next");
        prop_assert_eq!(shown(&kept), plainly(&all, Some("next")));
        prop_assert_eq!(kept.entries(), &all[..]);
    }
}
