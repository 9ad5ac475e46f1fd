//! The OpenAPI documents, made of the route table and the declared shapes (spec: http-api, section 4).
//!
//! `docs/openapi/{runtime,operator}.json` are golden copies: a change of the API shows in review as a change of them.

use std::sync::LazyLock;

use actix_web::web::Bytes;
use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::model::shape::{Member, Shape};
use serde_json::json;

use super::answer::{self, Answer};
use super::call::OperatorCall;
use super::caller::Gate;
use super::rejection::Code;
use super::routes::{Content, Credential, Handler, ROUTES, Route};
use super::shapes;

const VERSION: &str = "3.2.0";

static TENANT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(encode(&tenant_document())));
static OPERATOR: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(encode(&operator_document())));

pub(super) async fn tenant() -> Answer {
    Ok(answer::document(TENANT.clone()))
}

pub(super) async fn operator(_: OperatorCall) -> Answer {
    Ok(answer::document(OPERATOR.clone()))
}

/// The document of the Tenant API.
#[must_use]
pub fn tenant_document() -> Json {
    document("nylorun Runtime API", ROUTES.iter().filter(|route| !route.is_operator()))
}

/// The document of the operator API.
#[must_use]
pub fn operator_document() -> Json {
    document("nylorun operator API", ROUTES.iter().filter(|route| route.is_operator()))
}

fn document(title: &str, routes: impl Iterator<Item = &'static Route>) -> Json {
    let mut paths = JsonMap::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| Json::Object(JsonMap::new()));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": VERSION,
        "info": {"title": title, "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "schemas": {"Rejection": rejection(), "ProtocolRefused": protocol_refused()},
            "securitySchemes": {
                "applicationKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An operator key; with Nylorun-Subject and Nylorun-Scopes it acts for a person",
                },
                "issuerToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "deliveryToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "The token of an Action's delivery, from Nylorun-Signature or a heartbeat",
                },
                "adminKey": {"type": "http", "scheme": "bearer", "description": "The Host's admin key"},
            },
        },
    })
}

fn operation(route: &Route) -> Json {
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "security": security(route),
        "x-nylorun-credentials": route.takes.iter().map(|c| c.as_str()).collect::<Vec<_>>(),
        "x-nylorun-scopes": scopes(route),
        "responses": responses(route),
    });
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = Json::Array(parameters);
    }
    if route.any_body {
        operation["requestBody"] = json!({"required": true, "content": {"*/*": {}}});
    }
    if let Some(body) = route.body {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema(body)}}});
    }
    operation
}

fn security(route: &Route) -> Json {
    let mut names: Vec<&str> = Vec::new();
    for credential in route.takes {
        let name = match credential {
            Credential::Anonymous => return Json::Array(Vec::new()),
            Credential::Application | Credential::Subject => "applicationKey",
            Credential::Token => "issuerToken",
            Credential::Delivery => "deliveryToken",
            Credential::Admin => "adminKey",
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| json!({name: []})).collect()
}

fn scopes(route: &Route) -> Json {
    match route.gate {
        Gate::Any => json!("any"),
        Gate::Never => json!("never"),
        Gate::OneOf(scopes) => scopes.iter().map(|scope| Json::from(scope.as_str())).collect(),
    }
}

fn parameters(route: &Route) -> Vec<Json> {
    let mut parameters = Vec::new();
    for name in route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1},
        }));
    }
    for (name, what) in route.query {
        let schema = if *name == "limit" {
            json!({"type": "integer", "minimum": 1, "maximum": 200})
        } else {
            json!({"type": "string"})
        };
        parameters.push(json!({"name": name, "in": "query", "description": what, "schema": schema}));
    }
    if !matches!(route.handler, Handler::Open { .. }) {
        parameters.push(json!({
            "name": "Nylorun-Protocol",
            "in": "header",
            "required": !route.unversioned,
            "schema": {"type": "integer", "minimum": super::PROTOCOL_MIN, "maximum": super::PROTOCOL_MAX},
        }));
    }
    parameters
}

fn responses(route: &Route) -> Json {
    let ok = match route.ok {
        Content::Json(shape) | Content::Created(shape) => {
            json!({"application/json": {"schema": schema(shape)}})
        }
        Content::Bytes => json!({"*/*": {}}),
        Content::Zip => json!({"application/zip": {}}),
        Content::Events => json!({"text/event-stream": {"itemSchema": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The event's cursor; previews have none"},
                "event": {"type": "string"},
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": schema(&shapes::EVENT),
                },
            },
        }}}),
        Content::Document => json!({"application/json": {"schema": {"type": "object"}}}),
    };
    let mut responses = match route.ok {
        Content::Created(_) => json!({"201": {"description": "Created", "content": ok}}),
        _ => json!({"200": {"description": "OK", "content": ok}}),
    };
    if matches!(route.ok, Content::Bytes) {
        responses["206"] = json!({"description": "The range that was asked for", "content": {"*/*": {}}});
        responses["416"] = json!({"description": "The range is outside of the content"});
    }
    if route.path == "/ready" {
        responses["503"] = json!({"description": "Not ready", "content": responses["200"]["content"]});
    }
    if !matches!(route.handler, Handler::Open { .. }) {
        let refused =
            json!({"application/json": {"schema": {"$ref": "#/components/schemas/ProtocolRefused"}}});
        responses["426"] = json!({"description": "This protocol is not served", "content": refused});
        let rejected = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Rejection"}}});
        responses["default"] = json!({"description": "A refusal", "content": rejected});
    }
    responses
}

fn rejection() -> Json {
    json!({
        "type": "object",
        "required": ["status", "code", "message"],
        "properties": {
            "status": {"const": "rejected"},
            "code": {"enum": Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>()},
            "message": {"type": "string"},
            "details": {"description": "On a validation error: {issues: [{path, code, message}]}"},
            "activeTurnId": {"type": "string"},
            "requestId": {"type": "string"},
        },
    })
}

fn protocol_refused() -> Json {
    json!({
        "type": "object",
        "required": ["status", "code", "protocol"],
        "additionalProperties": false,
        "properties": {
            "status": {"const": "rejected"},
            "code": {"const": Code::ProtocolUnsupported.as_str()},
            "protocol": {
                "type": "object",
                "required": ["min", "max", "features"],
                "additionalProperties": false,
                "properties": {
                    "min": {"type": "integer"},
                    "max": {"type": "integer"},
                    "features": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    })
}

/// The JSON Schema of a shape.
fn schema(shape: &Shape) -> Json {
    match *shape {
        Shape::Any => json!({}),
        Shape::Null => json!({"type": "null"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::True => json!({"const": true}),
        Shape::False => json!({"const": false}),
        Shape::Literal(word) => json!({"const": word}),
        Shape::Enum(words) => json!({"enum": words}),
        Shape::Text { min, max } => {
            bounded(json!({"type": "string"}), [("minLength", min, 0), ("maxLength", max, usize::MAX)])
        }
        Shape::Matching { what, pattern, .. } => {
            let mut schema = json!({"type": "string", "description": what});
            if !pattern.is_empty() {
                schema["pattern"] = pattern.into();
            }
            schema
        }
        Shape::Int { min, max } => {
            let mut schema = json!({"type": "integer", "minimum": min});
            if max != i64::MAX {
                schema["maximum"] = max.into();
            }
            schema
        }
        Shape::Number { min } => json!({"type": "number", "minimum": min}),
        Shape::List { item, min, max } => bounded(
            json!({"type": "array", "items": schema(item)}),
            [("minItems", min, 0), ("maxItems", max, usize::MAX)],
        ),
        Shape::Object(members) => object(members, true),
        Shape::Loose(members) => object(members, false),
        Shape::Map(each) => json!({"type": "object", "additionalProperties": schema(each)}),
        Shape::Tagged { tag, cases } => {
            let one = |(name, shape): &(&str, &Shape)| {
                let mut case = schema(shape);
                case["properties"][tag] = json!({"const": name});
                case
            };
            json!({"oneOf": cases.iter().map(one).collect::<Vec<_>>()})
        }
        Shape::Union(shapes) => json!({"anyOf": shapes.iter().map(|s| schema(s)).collect::<Vec<_>>()}),
    }
}

fn bounded(mut schema: Json, bounds: [(&str, usize, usize); 2]) -> Json {
    for (name, value, none) in bounds {
        if value != none {
            schema[name] = value.into();
        }
    }
    schema
}

fn object(members: &[Member], closed: bool) -> Json {
    let properties: JsonMap = members.iter().map(|m| (m.name.to_owned(), schema(m.shape))).collect();
    let required: Vec<&str> = members.iter().filter(|m| m.required).map(|m| m.name).collect();
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if closed {
        object["additionalProperties"] = Json::Bool(false);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::model::json::parse;
    use std::path::Path;

    /// `NYLORUN_UPDATE_OPENAPI=1 cargo test` writes the golden copies anew.
    fn golden(name: &str, document: &Json) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi").join(name);
        let text = serde_json::to_string_pretty(document).expect("text") + "\n";
        if std::env::var_os("NYLORUN_UPDATE_OPENAPI").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &text).expect("written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "docs/openapi/{name} is not what the code says: run with NYLORUN_UPDATE_OPENAPI=1"
        );
    }

    #[test]
    fn the_golden_documents_are_what_the_code_says() {
        golden("runtime.json", &tenant_document());
        golden("operator.json", &operator_document());
    }

    #[test]
    fn documents_and_routes_name_the_same_operations() {
        let mut described = Vec::new();
        for document in [tenant_document(), operator_document()] {
            for (path, methods) in document["paths"].as_object().expect("paths") {
                for (method, operation) in methods.as_object().expect("methods") {
                    for member in ["security", "x-nylorun-credentials", "x-nylorun-scopes", "responses"] {
                        assert!(operation.get(member).is_some(), "{method} {path} {member}");
                    }
                    described.push((method.to_ascii_uppercase(), path.clone()));
                }
            }
        }
        let mut served: Vec<_> = ROUTES.iter().map(|r| (r.method.to_owned(), r.path.to_owned())).collect();
        described.sort();
        served.sort();
        assert_eq!(described, served);
    }

    #[test]
    fn schemas_accept_what_shapes_accept_and_refuse_what_they_refuse() {
        use nylorun_actors::model::command::COMMAND;
        let compiled = jsonschema::validator_for(&schema(&COMMAND)).expect("a schema");
        for (text, fits) in [
            (r#"{"requestId":"r","idempotencyKey":"k","type":"message","content":"a"}"#, true),
            (r#"{"requestId":"r","idempotencyKey":"k","type":"cancel"}"#, true),
            (r#"{"requestId":"r","idempotencyKey":"k","type":"cancel","content":"a"}"#, false),
            (r#"{"requestId":"r","idempotencyKey":"","type":"cancel"}"#, false),
            (r#"{"requestId":"r","idempotencyKey":"k","type":"steer"}"#, false),
            (
                r#"{"requestId":"r","idempotencyKey":"k","type":"approve","interactionId":"i","approved":1}"#,
                false,
            ),
        ] {
            let value = parse(text.as_bytes()).expect("json");
            assert_eq!((compiled.is_valid(&value), COMMAND.fits(&value)), (fits, fits), "{text}");
        }
    }

    #[test]
    fn streams_are_described_by_their_items() {
        let document = tenant_document();
        let stream =
            &document["paths"]["/v1/sessions/{sessionId}/events"]["get"]["responses"]["200"]["content"];
        assert!(stream["text/event-stream"]["itemSchema"].is_object());
        assert_eq!(document["paths"]["/v1/tenant/config/seed"]["put"]["x-nylorun-scopes"], "never");
    }
}
