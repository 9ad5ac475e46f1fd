//! The small parts of a capability: skills, MCP servers, hook points and HTTP targets
//! (spec: engine, sections 1.2 to 1.4).

use std::fmt;

use super::Line;
use super::reader::{Reader, no_hint};
use crate::model::json::Json;

/// Whether each call waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Approval {
    /// Calls go ahead.
    #[default]
    Never,
    /// Every call waits.
    Always,
}

pub(super) const APPROVALS: [(&str, Approval); 2] =
    [("never", Approval::Never), ("always", Approval::Always)];

/// The side of a turn or step that a hook is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookAt {
    /// Before it.
    Before,
    /// After it.
    After,
}

/// What a hook goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookScope {
    /// The whole turn.
    Turn,
    /// One model call.
    Step,
}

/// A point at which a capability wants to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookPoint {
    /// Before or after.
    pub at: HookAt,
    /// Turn or step.
    pub scope: HookScope,
}

impl HookPoint {
    /// The hook points of a capability: some, in the order of a turn, each at most once.
    pub(super) fn read_all<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<Vec<Self>> {
        let hooks = reader.list(value, Self::read)?;
        if value.as_array().is_some_and(Vec::is_empty) {
            reader.issue("too_small", "must be left out when empty");
        }
        if !hooks.is_sorted_by(|a, b| a.rank() < b.rank()) {
            let order = "before turn, before step, after step, after turn";
            reader.issue("custom", format!("hooks must be in the order {order}, each at most once"));
        }
        Some(hooks)
    }

    fn read<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<Self> {
        let map = reader.object(value, &["at", "scope"], no_hint)?;
        let sides = [("before", HookAt::Before), ("after", HookAt::After)];
        let scopes = [("turn", HookScope::Turn), ("step", HookScope::Step)];
        let at = reader.field(map, "at", |reader, at| reader.word(at, &sides));
        let scope = reader.field(map, "scope", |reader, scope| reader.word(scope, &scopes));
        Some(Self { at: at?, scope: scope? })
    }

    fn rank(self) -> u8 {
        match (self.at, self.scope) {
            (HookAt::Before, HookScope::Turn) => 0,
            (HookAt::Before, HookScope::Step) => 1,
            (HookAt::After, HookScope::Step) => 2,
            (HookAt::After, HookScope::Turn) => 3,
        }
    }
}

/// A skill that a capability brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name, unique in the manifest.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// Its files (schema 5); empty when the SDK process serves them.
    pub files: Vec<SkillFile>,
}

/// A file of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// Relative path inside the skill.
    pub path: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub hash: String,
}

impl Skill {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, key: &str, value: &'a Json, line: Line) -> Option<Self> {
        let allowed: &[&str] = match line {
            Line::Functions => &["name", "description"],
            Line::Http => &["name", "description", "files"],
        };
        let map = reader.object(value, allowed, |key| {
            (key == "files").then_some("files of skills need manifestSchemaVersion 5")
        })?;
        let name = reader.field(map, "name", |reader, name| own_name(reader, key, name));
        let description = reader.field(map, "description", Reader::name);
        let files = match line {
            Line::Functions => None,
            Line::Http => reader.optional(map, "files", |reader, files| {
                if files.as_object().is_some_and(|files| !files.contains_key("SKILL.md")) {
                    reader.issue("custom", "the files of a skill must hold its entry \"SKILL.md\"");
                }
                reader.entries(files, skill_file)
            }),
        };
        Some(Self { name: name?, description: description?, files: files.unwrap_or_default() })
    }
}

fn skill_file<'a>(reader: &mut Reader<'a>, path: &str, value: &'a Json) -> Option<SkillFile> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !path.split('/').all(plain) || path.contains(['\\', '\0']) {
        reader.issue("invalid_format", "the path of a file must be relative and stay inside its skill");
    }
    let hash = reader.text(value)?;
    let digits = hash.strip_prefix("sha256:").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        reader.issue("invalid_format", "must be \"sha256:\" and 64 lowercase hexadecimal digits");
    }
    Some(SkillFile { path: path.to_owned(), hash })
}

/// The name of an entry, which equals its key.
fn own_name<'a>(reader: &mut Reader<'a>, key: &str, value: &'a Json) -> Option<String> {
    let name = reader.name(value)?;
    if name != key {
        reader.issue("custom", format!("must equal its key \"{key}\""));
    }
    Some(name)
}

/// Names with values that may be secret: only the names are shown in logs.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NamedValues(pub Vec<(String, String)>);

impl fmt::Debug for NamedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl NamedValues {
    fn read<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<Self> {
        let each = |reader: &mut Reader<'a>, key: &str, value| Some((key.to_owned(), reader.text(value)?));
        reader.entries(value, each).map(Self)
    }
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// A child process of the harness (schema 4).
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment.
        env: NamedValues,
        /// Its working directory.
        cwd: Option<String>,
    },
    /// MCP over streamable HTTP.
    StreamableHttp {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: NamedValues,
    },
    /// MCP over server-sent events.
    Sse {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: NamedValues,
    },
}

/// An MCP server of a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    /// Its name, unique in the manifest.
    pub name: String,
    /// How it is reached.
    pub transport: McpTransport,
    /// Whether calls of its tools wait for a person (schema 5).
    pub approval: Approval,
}

#[derive(Clone, Copy)]
enum ServerType {
    Stdio,
    StreamableHttp,
    Sse,
}

impl McpServer {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, key: &str, value: &'a Json, line: Line) -> Option<Self> {
        let types = [
            ("streamable-http", ServerType::StreamableHttp),
            ("sse", ServerType::Sse),
            ("stdio", ServerType::Stdio),
        ];
        let map = reader.map(value)?;
        let found = reader.field(map, "type", |reader, found| {
            if line == Line::Http && found == "stdio" {
                reader
                    .issue("invalid_value", "stdio servers are not in schema 5: reach the server over HTTP");
                return None;
            }
            reader.word(found, if line == Line::Http { &types[..2] } else { &types })
        })?;
        let allowed: &[&str] = match (found, line) {
            (ServerType::Stdio, _) => &["name", "type", "command", "args", "env", "cwd"],
            (_, Line::Functions) => &["name", "type", "url", "headers"],
            (_, Line::Http) => &["name", "type", "url", "headers", "approval"],
        };
        reader.object(value, allowed, no_hint)?;
        let name = reader.field(map, "name", |reader, name| own_name(reader, key, name));
        // Of the older line it was refused above as an unknown member.
        let approval = match line {
            Line::Functions => None,
            Line::Http => reader.optional(map, "approval", |reader, value| reader.word(value, &APPROVALS)),
        };
        let transport = match found {
            ServerType::Stdio => {
                let command = reader.field(map, "command", Reader::name);
                let args = reader.optional(map, "args", |reader, args| reader.list(args, Reader::text));
                let env = reader.optional(map, "env", NamedValues::read).unwrap_or_default();
                let cwd = reader.optional(map, "cwd", Reader::text);
                McpTransport::Stdio { command: command?, args: args.unwrap_or_default(), env, cwd }
            }
            ServerType::StreamableHttp | ServerType::Sse => {
                let url = reader.field(map, "url", Reader::name);
                let headers = reader.optional(map, "headers", NamedValues::read).unwrap_or_default();
                let url = url?;
                match found {
                    ServerType::Sse => McpTransport::Sse { url, headers },
                    _ => McpTransport::StreamableHttp { url, headers },
                }
            }
        };
        Some(Self { name: name?, transport, approval: approval.unwrap_or_default() })
    }
}

/// How an HTTP tool is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HttpMethod {
    /// POST.
    #[default]
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
}

/// Where an HTTP tool, stage or verifier is: its input is the JSON body, the answer its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// POST by default.
    pub method: HttpMethod,
    /// The name of a credential selection.
    pub credential: Option<String>,
    /// Milliseconds a call may take: 60 000 by default, at most 300 000.
    pub timeout_ms: u32,
}

impl HttpTarget {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<Self> {
        let map = reader.object(value, &["url", "method", "credential", "timeoutMs"], no_hint)?;
        let url = reader.field(map, "url", |reader, url| {
            let url = reader.name(url)?;
            let rest = url.split_once("://").filter(|(scheme, _)| {
                scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
            });
            if rest.is_none_or(|(_, rest)| rest.is_empty() || rest.starts_with('/')) {
                reader.issue("invalid_format", "must be an absolute http or https URL");
            }
            Some(url)
        });
        let methods = [("POST", HttpMethod::Post), ("PUT", HttpMethod::Put), ("PATCH", HttpMethod::Patch)];
        let method = reader.optional(map, "method", |reader, method| reader.word(method, &methods));
        let credential = reader.optional(map, "credential", Reader::name);
        let timeout_ms = reader.optional(map, "timeoutMs", |reader, ms| reader.integer(ms, 1, 300_000));
        Some(Self {
            url: url?,
            method: method.unwrap_or_default(),
            credential,
            timeout_ms: timeout_ms.unwrap_or(60_000),
        })
    }
}
