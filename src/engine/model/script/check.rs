//! How a script is checked: every problem is kept with the place that it was found at.

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde::Deserialize;

use super::format::{Lists, MAX_DELAY_MS, MAX_STEPS, Step, Steps, When};

/// The steps and cases of a script, or of one of its agents, whose place stands before each.
pub(super) fn lists(map: &JsonMap, of: Option<&str>, errors: &mut Vec<String>) -> Lists {
    let place = of.unwrap_or("script");
    let otherwise = match map.get("steps") {
        Some(_) => steps(map, place, errors),
        None => Steps::default(),
    };
    let within = of.map_or_else(|| "cases".to_owned(), |of| format!("{of}.cases"));
    let mut cases = Vec::new();
    for (at, case) in list(map.get("cases"), &within, errors).iter().enumerate() {
        let place = format!("{within}[{at}]");
        let Some(case) = case.as_object() else {
            errors.push(format!("{place}: not an object"));
            continue;
        };
        only(case, &["when", "steps", "repeat"], &place, errors);
        let when: Option<When> = read(case.get("when"), &format!("{place}.when"), errors);
        if when.as_ref().is_some_and(|w| w.equals.is_none() && w.contains.is_none()) {
            errors.push(format!("{place}.when: needs equals or contains"));
        }
        let steps = steps(case, &place, errors);
        cases.extend(when.map(|when| (when, steps)));
    }
    if map.get("steps").is_none() && cases.is_empty() {
        errors.push(format!("{place}: needs steps or cases"));
    }
    Lists { cases, otherwise }
}

pub(super) fn only(map: &JsonMap, known: &[&str], place: &str, errors: &mut Vec<String>) {
    for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
        errors.push(format!("{place}: unknown field {key}"));
    }
}

fn list<'a>(value: Option<&'a Json>, place: &str, errors: &mut Vec<String>) -> &'a [Json] {
    match value {
        None => &[],
        Some(Json::Array(list)) => list,
        Some(_) => {
            errors.push(format!("{place}: not a list"));
            &[]
        }
    }
}

pub(super) fn read<T: for<'de> Deserialize<'de>>(
    value: Option<&Json>,
    place: &str,
    errors: &mut Vec<String>,
) -> Option<T> {
    let Some(value) = value else {
        errors.push(format!("{place}: missing"));
        return None;
    };
    T::deserialize(value).map_err(|error| errors.push(format!("{place}: {error}"))).ok()
}

pub(super) fn delay(ms: u64, place: &str, errors: &mut Vec<String>) {
    if ms > MAX_DELAY_MS {
        errors.push(format!("{place}: longer than {MAX_DELAY_MS} ms"));
    }
}

fn steps(map: &JsonMap, place: &str, errors: &mut Vec<String>) -> Steps {
    let repeat = match map.get("repeat") {
        None => false,
        Some(Json::Bool(repeat)) => *repeat,
        Some(_) => {
            errors.push(format!("{place}.repeat: not a boolean"));
            false
        }
    };
    let raw = list(map.get("steps"), &format!("{place}.steps"), errors);
    if raw.is_empty() {
        errors.push(format!("{place}.steps: needs at least one step"));
    }
    if raw.len() > MAX_STEPS {
        errors.push(format!("{place}.steps: more than {MAX_STEPS} steps"));
        return Steps::default();
    }
    let list = raw
        .iter()
        .enumerate()
        .filter_map(|(at, step)| {
            let place = format!("{place}.steps[{at}]");
            let step: Step = read(Some(step), &place, errors)?;
            check(&step, &place, errors);
            Some(step)
        })
        .collect();
    Steps { list, repeat }
}

fn check(step: &Step, place: &str, errors: &mut Vec<String>) {
    let texts = [step.text.is_some(), step.chunks.is_some(), step.json.is_some(), step.echo];
    let texts = texts.into_iter().filter(|set| *set).count();
    if texts > 1 {
        errors.push(format!("{place}: text, chunks, json and echo exclude each other"));
    }
    let says = texts > 0 || step.reasoning.is_some() || !step.tool_calls.is_empty();
    let beside = step.usage.is_some() || step.finish_reason.is_some() || step.evidence.is_some();
    match &step.failure {
        Some(_) if says || beside => errors.push(format!("{place}: a failure stands alone")),
        None if !says => errors.push(format!("{place}: says nothing")),
        _ => {}
    }
    if let Some(reason) = &step.finish_reason
        && !["stop", "length", "tool-calls", "content-filter", "other"].contains(&reason.as_str())
    {
        errors.push(format!("{place}.finishReason: {reason} is none"));
    }
    if step.usage.as_ref().and_then(|u| u.cost_usd).is_some_and(|cost| !cost.is_finite() || cost < 0.0) {
        errors.push(format!("{place}.usage.costUsd: not a price"));
    }
    delay(step.delay_ms, &format!("{place}.delayMs"), errors);
    delay(step.chunk_delay_ms, &format!("{place}.chunkDelayMs"), errors);
}
