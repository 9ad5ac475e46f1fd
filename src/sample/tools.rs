//! The tools of the sample endpoint. What they change outside would be a payment in a real one: it must happen once for
//! each Action, whatever is delivered again.

use std::time::Duration;

use nylorun_actors::model::json::Json;
use serde_json::json;

/// Answers at once.
pub const LOOKUP: &str = "lookup_order";
/// Asks a person, then works in the background.
pub const REFUND: &str = "refund";

/// The orders of the shop: id, state, amount in cents.
const ORDERS: [(&str, &str, u32); 2] = [("1042", "paid", 3_000), ("1043", "refunded", 1_250)];

/// What a call comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// A tool's value, for the answer itself.
    Now(Json),
    /// It takes so long; then this is its value.
    Later(Duration, Json),
    /// The endpoint has no such tool.
    Unknown,
}

/// Runs a tool. `resume` is what the person answered, on the second delivery of a call that has asked; `work` is how long
/// a refund takes.
#[must_use]
pub fn run(tool: &str, input: &Json, resume: Option<&Json>, work: Duration) -> Done {
    if !matches!(tool, LOOKUP | REFUND) {
        return Done::Unknown;
    }
    let Some(id) = input.get("orderId").and_then(Json::as_str) else {
        return Done::Now(failed("tool.invalid-input", "orderId must be a string"));
    };
    let Some((id, state, cents)) = ORDERS.into_iter().find(|(known, ..)| *known == id) else {
        return Done::Now(failed("order.unknown", &format!("there is no order {id}")));
    };
    let amount = format!("{}.{:02} EUR", cents / 100, cents % 100);
    if tool == LOOKUP {
        let output = json!({ "orderId": id, "state": state, "amount": amount });
        return Done::Now(json!({ "kind": "completed", "output": output }));
    }
    if state != "paid" {
        return Done::Now(failed("order.not-paid", &format!("order {id} is {state}")));
    }
    match resume.map(|resume| resume.get("approved").and_then(Json::as_bool)) {
        // The first delivery: nothing is done until a person agrees. The token comes back untouched with the answer.
        None => Done::Now(json!({
            "kind": "interaction-required",
            "interaction": { "kind": "approval", "prompt": format!("Refund {amount} for order {id}?") },
            "token": { "orderId": id, "amount": amount },
        })),
        Some(Some(true)) => {
            let output = json!({ "orderId": id, "state": "refunded", "amount": amount });
            Done::Later(work, json!({ "kind": "completed", "output": output }))
        }
        Some(_) => Done::Now(json!({ "kind": "denied", "reason": "the refund was not approved" })),
    }
}

fn failed(code: &str, message: &str) -> Json {
    json!({ "kind": "failed", "code": code, "message": message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_asks_first_and_happens_only_when_it_was_approved() {
        let refund = |resume: Option<Json>| {
            run(REFUND, &json!({ "orderId": "1042" }), resume.as_ref(), Duration::from_secs(3))
        };
        let Done::Now(asked) = refund(None) else { panic!("it works without asking") };
        assert_eq!(
            (&asked["kind"], &asked["interaction"]["kind"]),
            (&json!("interaction-required"), &json!("approval"))
        );
        let Done::Later(work, value) = refund(Some(json!({ "approved": true }))) else {
            panic!("nothing is done")
        };
        assert_eq!((work.as_secs(), &value["output"]["state"]), (3, &json!("refunded")));
        for not in [json!({ "approved": false }), json!({}), json!({ "value": true })] {
            let Done::Now(denied) = refund(Some(not)) else { panic!("it works without approval") };
            assert_eq!(denied["kind"], "denied");
        }
    }

    #[test]
    fn what_does_not_fit_is_a_failed_value_and_never_an_error_of_the_endpoint() {
        let code = |tool: &str, input: Json| match run(tool, &input, None, Duration::ZERO) {
            Done::Now(value) => value["code"].as_str().map(str::to_owned),
            other => panic!("{other:?}"),
        };
        assert_eq!(code(LOOKUP, json!({})).as_deref(), Some("tool.invalid-input"));
        assert_eq!(code(LOOKUP, json!({ "orderId": "7" })).as_deref(), Some("order.unknown"));
        assert_eq!(code(REFUND, json!({ "orderId": "1043" })).as_deref(), Some("order.not-paid"));
        assert_eq!(code(LOOKUP, json!({ "orderId": "1042" })), None);
        assert_eq!(run("other", &json!({}), None, Duration::ZERO), Done::Unknown);
    }
}
