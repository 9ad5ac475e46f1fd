//! The tree of a flow (spec: engine, sections 2.1 to 2.3).

use super::{Body, Node, StageTool, Verify};
use crate::model::json::{Json, JsonMap};
use crate::model::manifest::Line;
use crate::model::manifest::parts::HttpTarget;
use crate::model::manifest::reader::{Hint, Reader, no_hint};

const BODIES_V1: [&str; 8] = ["agent", "tool", "chain", "switch", "parallel", "map", "loop", "slot"];
const BODIES: [&str; 7] = ["agent", "tool", "chain", "switch", "parallel", "map", "loop"];

/// What version 3 has instead of the functions of version 2, and version 2 instead of members of version 1.
fn changed(line: Line) -> Hint {
    match line {
        Line::Http => |key| {
            Some(match key {
                "input" => "version 3 has no functions: a stage gets the output of the one before",
                "on" => "version 3 has no functions: a switch reads the output before it",
                "over" => "version 3 has no functions: a map runs over its input",
                "decide" => "version 3 has no functions: a loop ends by its verifier or at max",
                "fn" => "version 3 has no functions: use an agent or {http}",
                _ => return changed_since_v1(key),
            })
        },
        Line::Functions => |key| match key {
            "over" => Some("since version 2 a map runs over its input"),
            "http" => Some("HTTP stages need workflowSchemaVersion 3"),
            _ => changed_since_v1(key),
        },
    }
}

fn changed_since_v1(key: &str) -> Option<&'static str> {
    Some(match key {
        "slot" => "since version 2 a node takes its id beside its body instead of a slot",
        "id" => "since version 2 the id stands beside the body, not in it",
        "steps" => "since version 2 a chain is an array",
        "branches" => "since version 2 parallel is an object of branches",
        _ => return None,
    })
}

/// Reads a node of version 1.
pub(super) fn read_v1<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<Node> {
    reader.deeper(|reader| node_v1(reader, value, &BODIES_V1)).flatten()
}

fn node_v1<'a>(reader: &mut Reader<'a>, value: &'a Json, bodies: &[&str]) -> Option<Node> {
    let map = reader.object(value, bodies, no_hint)?;
    let kind = only_body(reader, map, bodies)?;
    reader.field(map, kind, |reader, body| body_v1(reader, kind, body))
}

fn body_v1<'a>(reader: &mut Reader<'a>, kind: &str, body: &'a Json) -> Option<Node> {
    let node = |id, body| Node { id, input: false, body };
    let closed: &[&str] = match kind {
        "agent" => return Some(node(None, Body::Agent(reader.name(body)?))),
        "tool" => return Some(node(None, Body::Tool(tool(reader, body, Line::Functions)?))),
        "chain" => &["id", "steps"],
        "switch" => &["id", "on", "cases", "default"],
        "parallel" => &["id", "branches"],
        "map" => &["id", "over", "each"],
        "loop" => &["id", "run", "verify", "decide"],
        _ => &["id", "input", "run"],
    };
    let map = reader.object(body, closed, no_hint)?;
    if kind == "slot" {
        let id = reader.optional(map, "id", Reader::name);
        let input = reader.optional(map, "input", function).is_some();
        let run = boxed(reader.field(map, "run", read_v1));
        return Some(Node { id, input, body: Body::Slot(run?) });
    }
    let id = reader.field(map, "id", Reader::name);
    let body = match kind {
        "chain" => {
            let steps = reader.field(map, "steps", |reader, steps| some_list(reader, steps, &mut read_v1));
            Body::Chain(steps?)
        }
        "switch" => {
            let on = reader.field(map, "on", function);
            let cases = reader.field(map, "cases", |reader, cases| named(reader, cases, &mut read_v1));
            let default = boxed(reader.optional(map, "default", read_v1));
            Body::Switch { on: on.is_some(), cases: cases?, default }
        }
        "parallel" => {
            let branches =
                reader.field(map, "branches", |reader, branches| named(reader, branches, &mut read_v1));
            Body::Parallel(branches?)
        }
        "map" => {
            let over = reader.field(map, "over", function);
            let each = boxed(reader.field(map, "each", read_v1));
            Body::Map { over: over.is_some(), each: each? }
        }
        _ => {
            let run = boxed(reader.field(map, "run", read_v1));
            let verify = reader.field(map, "verify", |reader, verify| {
                if verify.get("fn").is_some() {
                    return function(reader, verify).map(|()| Verify::Function);
                }
                let node = reader.deeper(|reader| node_v1(reader, verify, &["agent", "slot"])).flatten();
                boxed(node).map(Verify::Node)
            });
            let decide = reader.field(map, "decide", function);
            Body::Loop { run: run?, verify: verify?, max: None, decide: decide.is_some() }
        }
    };
    Some(node(Some(id?), body))
}

/// Reads a node of version 2 or 3. `embedded` holds the agents that it may name.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    value: &'a Json,
    line: Line,
    embedded: Option<&JsonMap>,
) -> Option<Node> {
    reader.deeper(|reader| node(reader, value, line, embedded, &BODIES)).flatten()
}

fn node<'a>(
    reader: &mut Reader<'a>,
    value: &'a Json,
    line: Line,
    embedded: Option<&JsonMap>,
    bodies: &[&str],
) -> Option<Node> {
    let mut allowed = vec!["id", "input"];
    if line == Line::Http {
        allowed.pop();
    }
    allowed.extend(bodies);
    let map = reader.object(value, &allowed, changed(line))?;
    let id = reader.optional(map, "id", Reader::name);
    let input = line == Line::Functions && reader.optional(map, "input", function).is_some();
    let kind = only_body(reader, map, bodies)?;
    let body = reader.field(map, kind, |reader, value| body(reader, kind, value, line, embedded))?;
    Some(Node { id, input, body })
}

fn body<'a>(
    reader: &mut Reader<'a>,
    kind: &str,
    value: &'a Json,
    line: Line,
    embedded: Option<&JsonMap>,
) -> Option<Body> {
    let mut child = |reader: &mut Reader<'a>, value: &'a Json| read(reader, value, line, embedded);
    let functions = line == Line::Functions;
    Some(match kind {
        "agent" => {
            let id = reader.name(value)?;
            if embedded.is_some_and(|embedded| !embedded.contains_key(&id)) {
                reader.issue("custom", format!("agent \"{id}\" is not among the document's agents"));
            }
            Body::Agent(id)
        }
        "tool" => Body::Tool(tool(reader, value, line)?),
        "chain" => {
            if value.is_object() {
                reader.object(value, &[], changed(line));
            }
            Body::Chain(some_list(reader, value, &mut child)?)
        }
        "parallel" => {
            if value.as_object().is_some_and(JsonMap::is_empty) {
                reader.issue("too_small", "needs at least one branch");
            }
            Body::Parallel(named(reader, value, &mut child)?)
        }
        "switch" => {
            let allowed = ["cases", "default", "on"];
            let map = reader.object(value, &allowed[..if functions { 3 } else { 2 }], changed(line))?;
            let on = functions && reader.field(map, "on", function).is_some();
            let cases = reader.field(map, "cases", |reader, cases| named(reader, cases, &mut child));
            let default = boxed(reader.optional(map, "default", child));
            Body::Switch { on, cases: cases?, default }
        }
        "map" => {
            let map = reader.object(value, &["each"], changed(line))?;
            Body::Map { over: false, each: boxed(reader.field(map, "each", child))? }
        }
        _ => {
            let allowed = ["run", "verify", "max", "decide"];
            let map = reader.object(value, &allowed[..if functions { 4 } else { 3 }], changed(line))?;
            let run = boxed(reader.field(map, "run", child));
            let verify =
                reader.field(map, "verify", |reader, verify| verifier(reader, verify, line, embedded));
            let limit = |reader: &mut Reader<'a>, max| reader.integer(max, 1, u32::MAX);
            let max =
                if functions { reader.optional(map, "max", limit) } else { reader.field(map, "max", limit) };
            let decide = functions && reader.optional(map, "decide", function).is_some();
            if functions && !map.contains_key("max") && !map.contains_key("decide") {
                reader.issue("custom", "a loop needs max or decide");
            }
            Body::Loop { run: run?, verify: verify?, max, decide }
        }
    })
}

fn verifier<'a>(
    reader: &mut Reader<'a>,
    value: &'a Json,
    line: Line,
    embedded: Option<&JsonMap>,
) -> Option<Verify> {
    if line == Line::Functions && value.get("fn").is_some() {
        return function(reader, value).map(|()| Verify::Function);
    }
    if line == Line::Http && value.get("http").is_some() {
        let map = reader.object(value, &["http"], no_hint)?;
        return reader.field(map, "http", HttpTarget::read).map(Verify::Http);
    }
    let node = reader.deeper(|reader| node(reader, value, line, embedded, &["agent"])).flatten();
    boxed(node).map(Verify::Node)
}

/// The one body of a node.
fn only_body<'b>(reader: &mut Reader<'_>, map: &JsonMap, bodies: &[&'b str]) -> Option<&'b str> {
    let mut found = bodies.iter().filter(|body| map.contains_key(**body));
    match (found.next(), found.next()) {
        (Some(body), None) => Some(body),
        _ => {
            reader.issue("custom", format!("must have exactly one of {}", bodies.join(", ")));
            None
        }
    }
}

/// `{ "fn": true }`: a developer function.
fn function<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<()> {
    let map = reader.object(value, &["fn"], no_hint)?;
    reader.field(map, "fn", |reader, value| reader.constant_true(value))
}

fn tool<'a>(reader: &mut Reader<'a>, value: &'a Json, line: Line) -> Option<StageTool> {
    let allowed = ["name", "description", "inputSchema", "outputSchema", "http"];
    let allowed = if line == Line::Functions { &allowed[..4] } else { &allowed };
    let map = reader.object(value, allowed, changed(line))?;
    let name = reader.field(map, "name", Reader::name);
    let description = reader.optional(map, "description", Reader::text);
    let input_schema = reader.optional(map, "inputSchema", Reader::schema);
    let output_schema = reader.optional(map, "outputSchema", Reader::schema);
    let http = match line {
        Line::Functions => None,
        Line::Http => reader.optional(map, "http", HttpTarget::read),
    };
    Some(StageTool { name: name?, description, input_schema, output_schema, http })
}

type ReadNode<'a, 'f> = &'f mut dyn FnMut(&mut Reader<'a>, &'a Json) -> Option<Node>;

fn some_list<'a>(reader: &mut Reader<'a>, value: &'a Json, child: ReadNode<'a, '_>) -> Option<Vec<Node>> {
    if value.as_array().is_some_and(Vec::is_empty) {
        reader.issue("too_small", "needs at least one step");
    }
    reader.list(value, child)
}

fn named<'a>(
    reader: &mut Reader<'a>,
    value: &'a Json,
    child: ReadNode<'a, '_>,
) -> Option<Vec<(String, Node)>> {
    reader.entries(value, |reader, name, node| Some((name.to_owned(), child(reader, node)?)))
}

fn boxed(node: Option<Node>) -> Option<Box<Node>> {
    node.map(Box::new)
}
