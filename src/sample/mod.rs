//! The sample application: the agent `orders`, and the Action endpoint that runs its tools. `examples/endpoint.rs`,
//! `nylorun quickstart` and the tests run this code; `docs/actions.md` explains it to authors of endpoints
//! (spec: engine, section 10.4).
//!
//! | File | Has |
//! |---|---|
//! | [`endpoint`] | the HTTP side: the order of the checks, and every answer |
//! | [`token`], [`keys`] | the delivery's signature, and the Tenant's public keys |
//! | [`join`] | how the application comes to a Runtime |
//! | [`tools`] | the two tools: one answers at once, one asks a person and then works in the background |
//! | [`background`], [`book`] | heartbeats and the result of what goes on after 202; what was begun and what came of it |
//!
//! It knows the Runtime by its HTTP API alone, as an application does.

pub mod background;
pub mod book;
pub mod endpoint;
pub mod join;
pub mod keys;
pub mod token;
pub mod tools;

use nylorun_actors::model::json::Json;
use serde_json::json;

/// Id of the sample agent that has tools.
pub const AGENT: &str = "orders";

/// What it is told in a first session.
pub const MESSAGE: &str = "Please refund order 1042.";

/// The agent's manifest. With the fixture model its script plays; a real model sees the tools as they are.
#[must_use]
pub fn manifest() -> Json {
    let order = json!({
        "type": "object",
        "properties": { "orderId": { "type": "string", "minLength": 1 } },
        "required": ["orderId"],
        "additionalProperties": false,
    });
    json!({
        "manifestSchemaVersion": 4,
        "id": AGENT,
        "name": "Orders",
        "description": "A sample agent whose tools an Action endpoint runs",
        "metadata": { "nylorun.fixture": script() },
        "capabilities": [{
            "id": "orders",
            "type": "agent",
            "instructions": [
                "You look after the orders of a shop. Look an order up before you refund it. Say what the tools said.",
            ],
            "tools": [
                { "name": tools::LOOKUP, "description": "What is known of an order.", "inputSchema": order },
                {
                    "name": tools::REFUND,
                    "description": "Gives the money of an order back. A person is asked first.",
                    "inputSchema": order,
                },
            ],
        }],
    })
}

/// What the fixture model does when it is told [`MESSAGE`], or anything else.
fn script() -> Json {
    let call = |name: &str| json!({ "name": name, "args": { "orderId": "1042" } });
    json!({
        "cases": [{
            "when": { "contains": "refund" },
            "steps": [
                { "text": "I look the order up.", "toolCalls": [call(tools::LOOKUP)] },
                { "text": "It was paid. I ask for the refund.", "toolCalls": [call(tools::REFUND)] },
                { "text": "That is all I can do about order 1042; the tool's answer says what became of it." },
            ],
        }],
        "steps": [
            { "text": "I look the order up.", "toolCalls": [call(tools::LOOKUP)] },
            { "text": "Order 1042 is known. Ask me to refund it." },
        ],
        "repeat": true,
    })
}
