//! Whether a manifest may stand in for a session's pinned one for a turn (spec: engine, section 1.7).

use crate::model::canonical::canonical_eq;
use crate::model::json::{Json, JsonMap};

/// The members of a capability that a variant may not change.
const FIXED: [&str; 3] = ["mcpServers", "sandbox", "hooks"];

/// Whether `candidate` is a variant of `pinned`: the same agent, with other texts and some of its tools, skills and
/// plain capabilities. Both are valid agent manifests; anything else is no variant.
#[must_use]
pub fn is_variant(candidate: &Json, pinned: &Json) -> bool {
    let (Some(mine), Some(theirs)) = (capabilities(candidate), capabilities(pinned)) else { return false };
    let same = |key| equal(candidate.get(key), pinned.get(key));
    let empty = Json::Object(JsonMap::new());
    let runtime = |manifest| Json::get(manifest, "runtime").unwrap_or(&empty);
    same("id")
        && same("manifestSchemaVersion")
        && canonical_eq(runtime(candidate), runtime(pinned))
        && theirs.iter().all(|pin| {
            FIXED.iter().all(|key| pin.get(key).is_none())
                || by_name(mine, "id", pin).is_some_and(|capability| keeps_fixed(capability, pin))
        })
        && mine.iter().all(|capability| {
            by_name(theirs, "id", capability).is_some_and(|pin| {
                equal(capability.get("type"), pin.get("type"))
                    && keeps_fixed(capability, pin)
                    && has_only_tools_of(capability, pin)
                    && has_only_skills_of(capability, pin)
            })
        })
}

/// The capabilities of an agent manifest; none of a workflow.
fn capabilities(manifest: &Json) -> Option<&Vec<Json>> {
    if manifest.get("kind").is_some() {
        return None;
    }
    manifest.get("capabilities")?.as_array()
}

fn equal(a: Option<&Json>, b: Option<&Json>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => canonical_eq(a, b),
        _ => false,
    }
}

/// The item of `items` that has the same name as `wanted`.
fn by_name<'a>(items: &'a [Json], key: &str, wanted: &Json) -> Option<&'a Json> {
    let name = wanted.get(key)?;
    items.iter().find(|item| item.get(key) == Some(name))
}

fn keeps_fixed(capability: &Json, pin: &Json) -> bool {
    FIXED.iter().all(|key| equal(capability.get(key), pin.get(key)))
}

fn has_only_tools_of(capability: &Json, pin: &Json) -> bool {
    let pinned = tools(pin);
    tools(capability)
        .iter()
        .all(|tool| by_name(pinned, "name", tool).is_some_and(|pin| canonical_eq(tool, pin)))
}

fn tools(capability: &Json) -> &[Json] {
    capability.get("tools").and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

fn has_only_skills_of(capability: &Json, pin: &Json) -> bool {
    let skills = capability.get("skills").and_then(Json::as_object);
    let pinned = |name: &str| pin.get("skills").and_then(|skills| skills.get(name));
    skills.into_iter().flatten().all(|(name, skill)| pinned(name).is_some_and(|pin| canonical_eq(skill, pin)))
}
