//! Sandboxes as a resource over HTTP (spec: http-api, section 11; sandbox, sections 6 and 7).

use std::sync::Arc;
use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::model::workspace::sandbox_key;
use nylorun_actors::ports::StoreError;
use nylorun_actors::testing::FakeWorkspaces;
use nylorun_actors::testing::engine::Step;
use nylorun_actors::workspaces::{Missing, sweep};
use serde_json::json;

use super::support::{Answer, Api, Request, agent_body, message};

const ROUTE: &str = "/v1/sandboxes/{sandboxId}";
const EVENTS: &str = "/v1/sandboxes/{sandboxId}/events";

pub async fn serving(steps: Vec<Step>) -> (Api, Arc<FakeWorkspaces>) {
    let api = Api::opening(false);
    let workspaces = FakeWorkspaces::of(api.tenant_id().await.as_str().into());
    api.open_serving(steps, workspaces.clone()).await;
    let put = api.app("PUT", "/v1/agents/a").json(&agent_body("a")).send().await;
    assert_eq!(put.status, 200, "{}", put.text);
    (api, workspaces)
}

pub fn open(api: &Api, id: &str, sandbox: Option<Json>) -> Request {
    let mut body = json!({"requestId": "r", "agentId": "a", "ownerUserId": "ada"});
    if let Some(sandbox) = sandbox {
        body["sandbox"] = sandbox;
    }
    api.app("PUT", &format!("/v1/sessions/{id}")).json(&body)
}

fn put(api: &Api, id: &str, body: &Json) -> Request {
    api.app("PUT", &format!("/v1/sandboxes/{id}")).json(body)
}

async fn made(api: &Api, id: &str) -> Json {
    put(api, id, &json!({})).send().await.ok("PUT", ROUTE)
}

fn tool(api: &Api, session: &str, name: &str, input: &Json) -> Request {
    api.app("POST", &format!("/v1/sessions/{session}/sandbox/{name}")).json(input)
}

fn say(api: &Api, session: &str) -> Request {
    api.app("POST", &format!("/v1/sessions/{session}/commands")).json(&message("k", "hi"))
}

fn rejected(status: u16) -> (u16, String) {
    (status, "request_rejected".to_owned())
}

async fn types(api: &Api, path: &str) -> Vec<String> {
    let events = api.app("GET", path).send().await.ok("GET", EVENTS);
    let events = events["events"].as_array().unwrap().clone();
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{seqs:?}");
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap().trim_start_matches("sandbox.").to_owned())
        .collect()
}

#[actix_web::test]
async fn an_id_with_slashes_is_one_segment_and_a_sandbox_is_got_or_made() {
    let api = Api::start(vec![]).await;
    let body =
        json!({"requestId": "r", "labels": {"app": "x"}, "resources": {"cpus": 1, "memory": "256MiB"}});
    let first = put(&api, "team-a%2Fproj-42", &body).send().await.ok("PUT", ROUTE);
    assert_eq!(
        (&first["id"], &first["kind"], &first["state"]),
        (&json!("team-a/proj-42"), &json!("virtual"), &json!("ready"))
    );
    assert_eq!(put(&api, "team-a%2Fproj-42", &body).send().await.ok("PUT", ROUTE), first);
    assert_eq!(api.app("GET", "/v1/sandboxes/team-a%2Fproj-42").send().await.ok("GET", ROUTE), first);
    let other = put(&api, "team-a%2Fproj-42", &json!({"resources": {"cpus": 2}})).send().await;
    assert_eq!(other.refusal(), rejected(409));
    assert!(other.json()["message"].as_str().unwrap().contains("resources.cpus"));
    for path in ["/v1/sandboxes/none", "/v1/sandboxes/team-a"] {
        assert_eq!(api.app("GET", path).send().await.refusal(), rejected(404));
    }
}

#[actix_web::test]
async fn a_body_or_an_id_that_is_none_is_400_with_every_problem() {
    let api = Api::start(vec![]).await;
    for id in ["-a", "a%2F", "a%2F%2Fb", "a%20b", "%C3%A9"] {
        let path = format!("/v1/sandboxes/{id}");
        for method in ["GET", "DELETE"] {
            assert_eq!(api.app(method, &path).send().await.refusal(), rejected(400), "{method} {id}");
        }
        assert_eq!(put(&api, id, &json!({})).send().await.refusal(), rejected(400), "{id}");
        for action in ["stop", "reset"] {
            assert_eq!(api.app("POST", &format!("{path}/{action}")).send().await.refusal(), rejected(400));
        }
        assert_eq!(api.app("GET", &format!("{path}/events")).send().await.refusal(), rejected(400));
    }
    let body = json!({"kind": "vm", "labels": {"a": "\u{e9}"}, "network": {"allow": ["10.0.0.1"], "preset": "open"},
        "resources": {"cpus": 0, "memory": "1GB"}, "storage": "1", "lifecycle": {"ttl": "0s"}, "idle": "1m"});
    let answer = put(&api, "x", &body).send().await;
    assert_eq!(answer.refusal(), rejected(400));
    assert_eq!(answer.json()["details"]["issues"].as_array().unwrap().len(), 9, "{}", answer.text);
    let labels: Json =
        (0..33).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    for labels in [labels, json!({"-a": "v"}), json!({"": "v"})] {
        assert_eq!(put(&api, "x", &json!({"labels": labels})).send().await.refusal(), rejected(400));
    }
    for body in [json!({"storage": "1GiB"}), json!({"lifecycle": {"ttl": "1h"}}), json!({"image": "i"})] {
        assert_eq!(put(&api, "x", &body).send().await.refusal(), rejected(400), "{body}");
    }
    assert_eq!(api.app("GET", "/v1/sandboxes/x").send().await.refusal(), rejected(404), "nothing was made");
}

#[actix_web::test]
async fn a_pod_is_409_sandbox_unavailable_and_leaves_no_row() {
    let api = Api::start(vec![]).await;
    let answer = put(&api, "x", &json!({"kind": "pod", "image": "i", "storage": "1GiB"})).send().await;
    assert_eq!(answer.refusal(), (409, "sandbox_unavailable".into()));
    assert_eq!(answer.header("retry-after"), "");
    assert_eq!(api.app("GET", "/v1/sandboxes/x").send().await.status, 404);
    made(&api, "x").await;
    for action in ["stop", "reset"] {
        let path = format!("/v1/sandboxes/x/{action}");
        assert_eq!(api.app("POST", &path).send().await.refusal(), rejected(400));
        let path = format!("/v1/sandboxes/none/{action}");
        assert_eq!(api.app("POST", &path).send().await.refusal(), rejected(404));
    }
}

#[actix_web::test]
async fn lists_are_filtered_by_labels_and_come_in_pages_that_walk_them_whole() {
    let api = Api::start(vec![]).await;
    for n in 0..5 {
        put(
            &api,
            &format!("p%2F{n}"),
            &json!({"labels": {"n": n.to_string(), "odd": (n % 2).to_string(), "empty": ""}}),
        )
        .send()
        .await
        .ok("PUT", ROUTE);
    }
    let list = async |query: &str| {
        let answer = api.app("GET", &format!("/v1/sandboxes{query}")).send().await.ok("GET", "/v1/sandboxes");
        let ids =
            answer["sandboxes"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), answer.get("nextCursor").cloned())
    };
    assert_eq!(list("").await.0.len(), 5);
    assert_eq!(list("").await.1, None);
    assert_eq!(list("?label=odd%3D1").await.0, ["p/1", "p/3"]);
    assert_eq!(list("?label=odd=0&label=n=4").await.0, ["p/4"]);
    assert_eq!(list("?label=empty=").await.0.len(), 5);
    assert!(list("?label=odd=0&label=n=1").await.0.is_empty());
    let (first, next) = list("?limit=2&label=odd=0").await;
    let (rest, end) = list(&format!("?limit=2&label=odd=0&cursor={}", next.unwrap().as_str().unwrap())).await;
    assert_eq!(
        (first, rest, end),
        (vec!["p/0".to_owned(), "p/2".into()], vec!["p/4".into()], Some(Json::Null))
    );
    for bad in ["?label=odd", "?label==1", "?label=", "?limit=0", "?limit=1&cursor=x"] {
        assert_eq!(
            api.app("GET", &format!("/v1/sandboxes{bad}")).send().await.refusal(),
            rejected(400),
            "{bad}"
        );
    }
}

#[actix_web::test]
async fn scopes_open_reads_and_writes_and_a_person_sees_their_own_sessions() {
    let (api, _) = serving(vec![]).await;
    made(&api, "x").await;
    open(&api, "s", Some(json!({"id": "x"}))).send().await.ok("PUT", "/v1/sessions/{sessionId}");
    let get = |subject: &str, scopes: &str| api.app("GET", "/v1/sandboxes/x").subject(subject, scopes).send();
    assert_eq!(
        get("ada", "sessions:own").await.ok("GET", ROUTE)["sessions"],
        json!([{"id": "s", "activeTurnId": null}])
    );
    assert_eq!(get("bob", "sandboxes:write").await.ok("GET", ROUTE)["sessions"], json!([]));
    let refused = get("bob", "agents:read").await;
    assert_eq!(refused.refusal(), (403, "scope_required".into()));
    assert_eq!(refused.json()["details"], json!({"scopes": ["sessions:own", "sandboxes:write"]}));
    let write = put(&api, "y", &json!({})).subject("bob", "sessions:own").send().await;
    assert_eq!(write.json()["details"], json!({"scopes": ["sandboxes:write"]}));
    put(&api, "y", &json!({})).subject("bob", "sandboxes:write").send().await.ok("PUT", ROUTE);
}

#[actix_web::test]
async fn sessions_of_different_agents_share_the_files_of_the_sandbox_they_are_attached_to() {
    let (api, workspaces) = serving(vec![]).await;
    made(&api, "x").await;
    for id in ["s1", "s2"] {
        let view =
            open(&api, id, Some(json!({"id": "x"}))).send().await.ok("PUT", "/v1/sessions/{sessionId}");
        assert_eq!((&view["sandboxId"], &view["sandboxSource"]), (&json!("x"), &json!("sandbox")));
        assert_eq!(view["sandboxOwnerId"], Json::Null);
    }
    tool(&api, "s1", "write", &json!({"path": "a", "content": "from s1"})).send().await;
    let read = tool(&api, "s2", "read", &json!({"path": "a"})).send().await;
    assert_eq!(read.json(), json!({"kind": "completed", "output": "from s1"}));
    let key = sandbox_key(&api.tenant_id().await.as_str().into(), "x");
    assert_eq!(workspaces.keys(), [key]);
    let view = api.app("GET", "/v1/sandboxes/x").send().await.ok("GET", ROUTE);
    assert_eq!(view["state"], "running");
    assert_eq!(view["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(types(&api, "/v1/sandboxes/x/events").await, ["created", "attached", "attached"]);
    assert_eq!(types(&api, "/v1/sandboxes/x/events?from=2").await, ["attached"]);
    assert_eq!(types(&api, "/v1/sandboxes/x/events?from=1&limit=1").await, ["attached"]);
    assert!(types(&api, "/v1/sandboxes/x/events?from=99999999999999999999").await.is_empty());
    assert!(types(&api, "/v1/sandboxes/never/events").await.is_empty());
    for bad in ["-1", "", "1.5", "x", "%2B1"] {
        let path = format!("/v1/sandboxes/x/events?from={bad}");
        assert_eq!(api.app("GET", &path).send().await.refusal(), rejected(400), "{bad}");
    }
    let items = api.app("GET", "/v1/sessions/s1/items").send().await.json();
    assert_eq!(
        (&items["items"][0]["type"], &items["items"][0]["payload"]),
        (&json!("sandbox.attached"), &json!({"sandboxId": "x"}))
    );
}

fn is_busy(answer: &Answer, retry: &str) {
    assert_eq!(answer.refusal(), (409, "sandbox_busy".into()), "{}", answer.text);
    assert_eq!(answer.header("retry-after"), retry);
    assert_eq!(answer.json()["details"]["retryAfterSeconds"].is_number(), !retry.is_empty());
}

#[actix_web::test]
async fn turns_are_serial_and_a_delete_waits_for_their_end() {
    let (api, _) = serving(vec![Step::Wait]).await;
    made(&api, "x").await;
    for id in ["s1", "s2"] {
        open(&api, id, Some(json!({"id": "x"}))).send().await;
    }
    let turn = say(&api, "s1").send().await.ok("POST", "/v1/sessions/{sessionId}/commands")["turnId"].clone();
    let view = api.app("GET", "/v1/sandboxes/x").send().await.ok("GET", ROUTE);
    assert_eq!(view["sessions"][0], json!({"id": "s1", "activeTurnId": turn}));
    is_busy(&say(&api, "s2").send().await, "5");
    is_busy(&api.app("DELETE", "/v1/sandboxes/x").send().await, "");
    let cancel = json!({"requestId": "r", "idempotencyKey": "c", "type": "cancel"});
    assert_eq!(api.app("POST", "/v1/sessions/s1/commands").json(&cancel).send().await.status, 200);
    assert_eq!(say(&api, "s2").send().await.status, 200, "the same command, once it is free");
}

#[actix_web::test]
async fn between_its_turns_a_session_stays_out_of_the_turn_of_another_in_the_same_sandbox() {
    let (api, workspaces) = serving(vec![Step::Wait]).await;
    made(&api, "x").await;
    for id in ["s1", "s2"] {
        open(&api, id, Some(json!({"id": "x"}))).send().await;
    }
    open(&api, "apart", Some(json!({}))).send().await;
    let write = |session: &str| tool(&api, session, "write", &json!({"path": "a", "content": session}));
    assert_eq!(write("s2").send().await.status, 200);
    let turn = say(&api, "s1").send().await.ok("POST", "/v1/sessions/{sessionId}/commands")["turnId"].clone();
    for name in ["bash", "read", "write", "edit", "grep", "glob"] {
        is_busy(&tool(&api, "s2", name, &json!({})).send().await, "5");
    }
    // The checks before it come before it, and its own turn is told as its own.
    assert_eq!(tool(&api, "s2", "other", &json!({})).send().await.refusal(), rejected(400));
    assert_eq!(tool(&api, "s2", "bash", &json!([])).send().await.refusal(), rejected(400));
    let own = write("s1").send().await;
    assert_eq!((own.refusal(), &own.json()["activeTurnId"]), (rejected(409), &turn));
    assert_eq!(write("apart").send().await.status, 200, "another sandbox is not held up");
    assert_eq!(workspaces.keys().len(), 2);
    let cancel = json!({"requestId": "r", "idempotencyKey": "c", "type": "cancel"});
    assert_eq!(api.app("POST", "/v1/sessions/s1/commands").json(&cancel).send().await.status, 200);
    assert_eq!(write("s2").send().await.status, 200, "once it is free");
}

#[actix_web::test]
async fn two_turn_starts_at_the_same_moment_let_one_in() {
    let (api, _) = serving(vec![Step::Wait]).await;
    made(&api, "x").await;
    let ids: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    for id in &ids {
        open(&api, id, Some(json!({"id": "x"}))).send().await;
    }
    let answers = futures_util::future::join_all(ids.iter().map(|id| say(&api, id).send())).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    answers.iter().filter(|answer| answer.status != 200).for_each(|answer| is_busy(answer, "5"));
}

#[actix_web::test]
async fn a_deleted_sandbox_takes_its_files_along_and_comes_back_empty() {
    let (api, workspaces) = serving(vec![Step::Model(1)]).await;
    made(&api, "x").await;
    open(&api, "s", Some(json!({"id": "x"}))).send().await;
    tool(&api, "s", "write", &json!({"path": "a", "content": "old"})).send().await;
    let delete = async || api.app("DELETE", "/v1/sandboxes/x").send().await.ok("DELETE", ROUTE);
    assert_eq!(delete().await, json!({"id": "x", "deleted": true}));
    assert_eq!(delete().await, json!({"id": "x", "deleted": false}));
    assert!(workspaces.keys().is_empty());
    assert_eq!(api.app("GET", "/v1/sandboxes/x").send().await.refusal(), rejected(404));
    let unavailable = (409, "sandbox_unavailable".to_owned());
    assert_eq!(say(&api, "s").send().await.refusal(), unavailable);
    assert_eq!(tool(&api, "s", "read", &json!({"path": "a"})).send().await.refusal(), unavailable);
    assert_eq!(open(&api, "t", Some(json!({"id": "x"}))).send().await.refusal(), rejected(404));
    let session = api.app("GET", "/v1/sessions/s").send().await.json();
    assert_eq!(session["sandboxId"], "x", "it stays attached by the id");
    assert_eq!(made(&api, "x").await["state"], "ready");
    assert_eq!(
        tool(&api, "s", "read", &json!({"path": "a"})).send().await.json()["code"],
        "sandbox.not_found"
    );
    assert_eq!(say(&api, "s").send().await.status, 200);
    assert_eq!(types(&api, "/v1/sandboxes/x/events").await, ["created", "attached", "deleted", "created"]);
}

#[actix_web::test]
async fn a_delete_waits_behind_a_running_command_for_a_moment_and_no_other_is_made_meanwhile() {
    let (api, workspaces) = serving(vec![]).await;
    made(&api, "x").await;
    open(&api, "s", Some(json!({"id": "x"}))).send().await;
    let held = workspaces.hold_removals().await;
    // Answered although the files are still there.
    let deleted = api.app("DELETE", "/v1/sandboxes/x").send().await.ok("DELETE", ROUTE);
    assert_eq!(deleted["deleted"], true);
    is_busy(&put(&api, "x", &json!({})).send().await, "5");
    drop(held);
    for _ in 0..600 {
        if put(&api, "x", &json!({})).send().await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it was never made again");
}

#[actix_web::test]
async fn a_sweep_ends_a_removal_that_a_crash_cut_short_and_removes_what_a_resource_left() {
    let (api, workspaces) = serving(vec![]).await;
    let tree = api.state.slot().open_tenant().unwrap().tenant.tree().clone();
    open(&api, "own", Some(json!({}))).send().await;
    made(&api, "x").await;
    open(&api, "s", Some(json!({"id": "x"}))).send().await;
    let write = json!({"path": "a", "content": "x"});
    for noted in [true, false] {
        for session in ["s", "own"] {
            assert_eq!(tool(&api, session, "write", &write).send().await.status, 200);
        }
        sweep(&tree, &Missing::default()).await.unwrap();
        assert_eq!(workspaces.keys().len(), 2, "both have an owner");
        // What the delete's commit leaves; or nothing but files, as a harness that was away brings them back.
        let store = api.store.handle();
        let gone = store.tx(move |tx| -> Result<(), StoreError> {
            if noted {
                tx.put_sandbox_removal("x")?;
            }
            tx.delete_sandbox("x").map(|_| ())
        });
        gone.await.unwrap();
        if noted {
            is_busy(&put(&api, "x", &json!({})).send().await, "5");
        }
        sweep(&tree, &Missing::default()).await.unwrap();
        assert_eq!(workspaces.keys().len(), 1, "the session's own stays");
        assert_eq!(made(&api, "x").await["state"], "ready");
        let status = api.app("GET", "/v1/tenant").send().await.ok("GET", "/v1/tenant");
        assert_eq!(status["sandbox"], json!({"backend": "virtual", "retained": 1}));
    }
}

#[actix_web::test]
async fn the_tenant_may_have_so_many_sandboxes_and_no_more() {
    let api = Api::start(vec![]).await;
    let limits = json!({"limits": {"sandboxes": 3}});
    assert_eq!(api.app("PUT", "/v1/tenant/sandbox").json(&limits).send().await.status, 200);
    let ids: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    let answers = futures_util::future::join_all(ids.iter().map(|id| put(&api, id, &json!({})).send())).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 3);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.refusal(), (409, "limit_exceeded".into()));
        assert_eq!(answer.json()["details"], json!({"limit": "sandboxes", "max": 3}));
    }
}
