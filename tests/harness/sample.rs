//! The agent that the suite runs.

use serde_json::{Value, json};

/// A manifest whose model and tool play this script, with an agent `helper` as a second tool.
pub fn manifest(script: &Value) -> Value {
    let work = json!({ "name": "work", "inputSchema": { "type": "object" } });
    let task = json!({ "type": "object", "properties": { "task": { "type": "string", "minLength": 1 } },
        "required": ["task"], "additionalProperties": false });
    let helper = json!({ "manifestSchemaVersion": 4, "id": "helper", "description": "Helps.",
        "capabilities": [{ "id": "agent", "type": "agent", "tools": [work] }] });
    let helps = json!({ "name": "helper", "description": "Helps.", "inputSchema": task, "agent": helper });
    json!({
        "manifestSchemaVersion": 4, "id": "assistant", "metadata": { "nylorun.fixture": script },
        "capabilities": [{ "id": "agent", "type": "agent", "tools": [work, helps] }],
    })
}
