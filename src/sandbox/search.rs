//! `grep` and `glob`, with the parts that ripgrep is made of, inside the sandbox (spec: sandbox, section 13).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, SearcherBuilder};
use ignore::{WalkBuilder, WalkState};
use nylorun_actors::model::workspace::ToolOutcome;
use serde_json::json;

use super::files::{Place, clip};
use super::input::INVALID;
use super::limits::{ANSWER_CHARS, GLOB_FILES, GLOB_LOOKS, HELPER_SECONDS, SEARCH_LINE_BYTES};

/// Most threads of a search.
const THREADS: usize = 8;

/// What `grep` is asked.
pub struct Search<'a> {
    /// A regular expression.
    pub pattern: &'a str,
    /// Where, as it was said: results begin with it.
    pub path: Option<&'a str>,
    /// Only in files whose name fits.
    pub glob: Option<&'a str>,
    /// Whether capitals do not count.
    pub ignore_case: bool,
    /// At most so many matches.
    pub most: u64,
}

fn failed(code: &str, message: String) -> ToolOutcome {
    ToolOutcome::failed(code, message)
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(HELPER_SECONDS)
}

fn matcher(pattern: &str) -> Result<GlobMatcher, ToolOutcome> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| {
        failed(INVALID, format!("The pattern {pattern:?} cannot be used: {}.", error.kind()))
    })
}

/// How a file is named in an answer: the path that was said, then what lies below it.
fn named(said: &str, root: &Path, file: &Path) -> String {
    match file.strip_prefix(root) {
        Ok(below) if below.as_os_str().is_empty() => said.to_owned(),
        Ok(below) => format!("{}/{}", said.trim_end_matches('/'), below.display()),
        Err(_) => file.display().to_string(),
    }
}

/// The expression of a pattern; several lines are several, of which one must fit.
///
/// # Errors
/// What is wrong with it, in words.
fn regex(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(ignore_case).line_terminator(Some(b'\n'));
    let build = |pattern: &str| {
        let lines: Vec<&str> = pattern.strip_suffix('\n').unwrap_or(pattern).split('\n').collect();
        builder.build_many(&lines)
    };
    // `struct {` is an extended expression, but none of this syntax.
    let built = build(pattern).or_else(|error| build(&literal_braces(pattern)).map_err(|_| error));
    built.map_err(|error| error.to_string())
}

/// A pattern whose braces that count nothing are characters, as extended expressions have them.
fn literal_braces(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    // Whether there is something that a count could repeat.
    let mut counts = false;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '\\' => escape_len(rest),
            '[' => class_len(rest),
            '{' => match interval(&rest[1..]).filter(|_| counts) {
                Some(len) => {
                    let open = if rest[1..].starts_with(',') { "{0" } else { "{" };
                    out.push_str(open);
                    out.push_str(&rest[1..=len]);
                    rest = &rest[1 + len..];
                    continue;
                }
                None => {
                    out.push('\\');
                    1
                }
            },
            _ => c.len_utf8(),
        };
        counts = !matches!(c, '(' | '|' | '\n' | '^');
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// Bytes of an escape, such as `\d` and `\p{Greek}`.
fn escape_len(text: &str) -> usize {
    let Some(c) = text[1..].chars().next() else { return 1 };
    let len = 1 + c.len_utf8();
    let named = c.is_ascii_alphabetic() && text[len..].starts_with('{');
    if named { text.find('}').map_or(len, |end| end + 1) } else { len }
}

/// Bytes of a class of characters, which has no braces that count.
fn class_len(text: &str) -> usize {
    let first = text[1..].trim_start_matches('^');
    let first = text.len() - first.strip_prefix(']').unwrap_or(first).len();
    let (mut at, inner) = (first, text.as_bytes());
    while at < inner.len() {
        match inner[at] {
            b'\\' => at += 2,
            b'[' if inner.get(at + 1) == Some(&b':') => match text[at..].find(":]") {
                Some(end) => at += end + 2,
                None => at += 1,
            },
            b']' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Bytes of a count after its brace, with the brace that ends it: `2}`, `2,}`, `,3}`, `2,3}`.
fn interval(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let (least, most) = text[..end].split_once(',').unwrap_or((&text[..end], "0"));
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (number(least) && number(most) && end > 0 && &text[..end] != ",").then_some(end + 1)
}

/// `grep`: lines that fit, with their files and numbers.
pub fn grep(place: &Place, search: &Search<'_>) -> ToolOutcome {
    let regex = match regex(search.pattern, search.ignore_case) {
        Ok(regex) => regex,
        Err(why) => return failed("sandbox.grep_failed", format!("The pattern cannot be used: {why}.")),
    };
    let only = search.glob.map(|glob| glob.strip_prefix("./").unwrap_or(glob));
    let only = match only.map(matcher).transpose() {
        Ok(only) => only,
        Err(outcome) => return outcome,
    };
    // A filter with a slash means the path below, as a pattern of `glob` does.
    let by_name = search.glob.is_none_or(|glob| !glob.contains('/'));
    let said = search.path.unwrap_or(".");
    let root = place.resolve(said);
    let why = match std::fs::metadata(&root) {
        Ok(meta) if meta.is_file() || meta.is_dir() => None,
        Ok(_) => Some("is no regular file and no directory".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Some("does not exist".to_owned()),
        Err(error) => Some(format!("cannot be searched: {error}")),
    };
    if let Some(why) = why {
        return failed("sandbox.grep_failed", format!("{said} {why}."));
    }
    let found =
        Mutex::new(Found { most: usize::try_from(search.most).unwrap_or(usize::MAX), ..Found::default() });
    let with =
        |work: &mut dyn FnMut(&mut Found)| work(&mut found.lock().unwrap_or_else(PoisonError::into_inner));
    let (until, late) = (deadline(), AtomicBool::new(false));
    let searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(b'\0'))
        .heap_limit(Some(SEARCH_LINE_BYTES))
        .build();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
    let walk = WalkBuilder::new(&root).standard_filters(false).threads(threads).build_parallel();
    walk.run(|| {
        let (mut searcher, regex, only, root, with, late) =
            (searcher.clone(), regex.clone(), only.as_ref(), &root, &with, &late);
        Box::new(move |entry| {
            if late.load(Ordering::Relaxed) || Instant::now() >= until {
                late.store(true, Ordering::Relaxed);
                return WalkState::Quit;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    with(&mut |found| found.fail(&error));
                    return WalkState::Continue;
                }
            };
            let fits = only.is_none_or(|only| match entry.path().strip_prefix(root) {
                Ok(below) if !by_name => only.is_match(below),
                _ => only.is_match(entry.file_name()),
            });
            // A link that was named itself is followed; a pipe or a device could be read for ever.
            let file = match entry.file_type() {
                Some(kind) if kind.is_symlink() && entry.depth() == 0 => entry.path().is_file(),
                kind => kind.is_some_and(|kind| kind.is_file()),
            };
            if !file || (!fits && entry.depth() > 0) {
                return WalkState::Continue;
            }
            let (mut wanted, mut most) = (true, 0);
            with(&mut |found| (wanted, most) = (found.wants(entry.path()), found.most));
            if !wanted {
                return WalkState::Continue;
            }
            let name = named(said, root, entry.path());
            let (mut lines, mut chars): (Vec<String>, usize) = (Vec::new(), 0);
            let sink = Lossy(|number, line| {
                let line = format!("{name}:{number}:{}", clip(line.trim_end_matches(['\n', '\r'])));
                chars += line.chars().count();
                lines.push(line);
                Ok(lines.len() <= most && chars <= ANSWER_CHARS && Instant::now() < until)
            });
            if let Err(error) = searcher.search_path(&regex, entry.path(), sink) {
                let why = match error.kind() {
                    // The only limit that a searcher has.
                    ErrorKind::Other => format!("a line has more than {} MiB", SEARCH_LINE_BYTES >> 20),
                    _ => error.to_string(),
                };
                with(&mut |found| found.fail(&format!("{name}: {why}")));
            }
            if !lines.is_empty() {
                with(&mut |found| found.add(entry.path(), std::mem::take(&mut lines)));
            }
            WalkState::Continue
        })
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (problem, more) = (found.problem.clone(), found.full());
    let mut lines = found.lines();
    if late.into_inner() {
        lines.push(format!("… stopped after {HELPER_SECONDS} s: there may be more matches"));
    } else if more {
        lines.push("… more matches: narrow the search".to_owned());
    }
    let output = match (lines.is_empty(), problem) {
        (true, Some(problem)) => return failed("sandbox.grep_failed", problem),
        (true, None) => "No matches.".to_owned(),
        (false, _) => lines.join("\n"),
    };
    ToolOutcome::Completed { output: json!(output) }
}

/// What several threads have found: the first matches in the order of their paths, and no more of them than is answered.
#[derive(Default)]
struct Found {
    most: usize,
    files: BTreeMap<PathBuf, Vec<String>>,
    lines: usize,
    chars: usize,
    problem: Option<String>,
}

impl Found {
    /// Whether there is more than is answered.
    fn full(&self) -> bool {
        self.lines > self.most || self.chars > ANSWER_CHARS
    }

    /// Whether a file can still change the answer.
    fn wants(&self, path: &Path) -> bool {
        !self.full() || self.files.last_key_value().is_none_or(|(last, _)| path < last.as_path())
    }

    fn fail(&mut self, problem: &dyn std::fmt::Display) {
        self.problem.get_or_insert_with(|| problem.to_string());
    }

    fn add(&mut self, path: &Path, lines: Vec<String>) {
        let chars = |lines: &[String]| lines.iter().map(|line| line.chars().count()).sum::<usize>();
        self.lines += lines.len();
        self.chars += chars(&lines);
        self.files.insert(path.to_owned(), lines);
        // The last files go while what stays is still more than is answered.
        while let Some((_, last)) = self.files.last_key_value() {
            let (count, size) = (last.len(), chars(last));
            if self.lines - count <= self.most && self.chars - size <= ANSWER_CHARS {
                break;
            }
            self.files.pop_last();
            self.lines -= count;
            self.chars -= size;
        }
    }

    /// Of the answer.
    fn lines(self) -> Vec<String> {
        let mut chars = 0;
        let mut lines: Vec<String> = Vec::new();
        for line in self.files.into_values().flatten().take(self.most) {
            if chars > ANSWER_CHARS {
                break;
            }
            chars += line.chars().count();
            lines.push(line);
        }
        lines
    }
}

/// `glob`: regular files whose name or path fits.
pub fn glob(place: &Place, pattern: &str, path: Option<&str>) -> ToolOutcome {
    let root = place.resolve(path.unwrap_or("."));
    // A pattern may say the whole path, or that it begins here.
    let whole = format!("{}/", place.shown(&root).trim_end_matches('/'));
    let own = pattern.strip_prefix(&whole).or_else(|| pattern.strip_prefix("./")).unwrap_or(pattern);
    let fits = match matcher(own) {
        Ok(fits) => fits,
        Err(outcome) => return outcome,
    };
    let by_name = !own.contains('/');
    let (mut found, mut looked, until): (Vec<PathBuf>, usize, Instant) = (Vec::new(), 0, deadline());
    let (mut late, mut many) = (false, false);
    let entries = WalkBuilder::new(&root)
        .standard_filters(false)
        .filter_entry(|entry| {
            let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0 || !folder || entry.file_name() != ".git"
        })
        .build();
    for entry in entries.flatten() {
        late = Instant::now() >= until;
        many = looked >= GLOB_LOOKS;
        if late || many {
            break;
        }
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        looked += 1;
        let Ok(below) = entry.path().strip_prefix(&root) else { continue };
        if if by_name { fits.is_match(entry.file_name()) } else { fits.is_match(below) } {
            found.push(entry.into_path());
        }
    }
    found.sort_unstable();
    let more = found.len().saturating_sub(GLOB_FILES);
    let mut lines: Vec<String> = found.iter().take(GLOB_FILES).map(|path| place.shown(path)).collect();
    if more > 0 {
        lines.push(format!("… {more} more files: narrow the pattern"));
    } else if late || many {
        let why = if late { format!("{HELPER_SECONDS} s") } else { format!("{GLOB_LOOKS} files") };
        lines.push(format!("… stopped after {why}: there may be more"));
    }
    let output = if lines.is_empty() { "No files matched.".to_owned() } else { lines.join("\n") };
    ToolOutcome::Completed { output: json!(output) }
}

#[cfg(test)]
mod tests;
