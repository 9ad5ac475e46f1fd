//! `read`, `write`, `edit`, and what artifacts are read with: over plain paths, inside the sandbox (spec: sandbox,
//! sections 13 and 14). A page of a large file is read without the rest of it; a file is replaced by renaming.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nylorun_actors::model::workspace::{BytesAnswer, FileEntry, FileStamp, ListAnswer, Listing, ToolOutcome};
use serde_json::json;

use super::limits::{ANSWER_CHARS, EDIT_BYTES, LINE_CHARS};

/// Where tools work, and what `/workspace` means there.
#[derive(Clone, Debug)]
pub struct Place {
    /// The workspace's directory.
    pub root: PathBuf,
}

/// What a workspace is called in every sandbox.
pub const WORKSPACE: &str = "/workspace";

impl Place {
    /// The path that a tool means: relative to the workspace, without `.` and `..`.
    #[must_use]
    pub fn resolve(&self, path: &str) -> PathBuf {
        let path = Path::new(path);
        let inside = path.strip_prefix(WORKSPACE).ok();
        let joined = match inside {
            Some(rest) => self.root.join(rest),
            None if path.is_absolute() => path.to_owned(),
            None => self.root.join(path),
        };
        let mut plain = PathBuf::from("/");
        for part in joined.components() {
            match part {
                Component::ParentDir => drop(plain.pop()),
                Component::Normal(name) => plain.push(name),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        plain
    }

    /// A path as its reader knows it.
    #[must_use]
    pub fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => WORKSPACE.to_owned(),
            Ok(rest) => format!("{WORKSPACE}/{}", rest.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

fn failed(code: &str, message: String) -> ToolOutcome {
    ToolOutcome::failed(code, message)
}

/// What a path that cannot be opened comes to.
fn unreadable(shown: &str, error: &std::io::Error) -> ToolOutcome {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            failed("sandbox.not_found", format!("There is no file {shown}."))
        }
        _ => failed("sandbox.error", format!("{shown} cannot be read: {error}.")),
    }
}

/// Opens a regular file: a pipe or a device could be read for ever.
fn open(path: &Path, shown: &str) -> Result<File, ToolOutcome> {
    let meta = fs::metadata(path).map_err(|error| unreadable(shown, &error))?;
    if !meta.is_file() {
        let kind = if meta.is_dir() { "a directory" } else { "no regular file" };
        return Err(failed("sandbox.error", format!("{shown} is {kind}.")));
    }
    File::open(path).map_err(|error| unreadable(shown, &error))
}

/// A line, clipped where it is too long.
pub(super) fn clip(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// Reads a line, of which no more is kept than is shown. `None` at the end.
fn next_line(reader: &mut impl std::io::BufRead) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let (mut any, mut ended, mut cut) = (false, false, false);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let piece = &buffer[..end.unwrap_or(buffer.len())];
        let room = (LINE_CHARS + 1) * 4 - line.len().min((LINE_CHARS + 1) * 4);
        line.extend_from_slice(&piece[..piece.len().min(room)]);
        cut |= piece.len() > room;
        let used = piece.len() + usize::from(end.is_some());
        reader.consume(used);
        ended = end.is_some();
        if ended {
            break;
        }
    }
    // The end of a line may have two characters; any other carriage return is text.
    if ended && !cut && line.ends_with(b"\r") {
        line.pop();
    }
    Ok(any.then(|| clip(&String::from_utf8_lossy(&line))))
}

/// `read`: a page of numbered lines.
pub fn read(place: &Place, path: &str, offset: u64, limit: u64) -> ToolOutcome {
    let path = place.resolve(path);
    let shown = place.shown(&path);
    let page = open(&path, &shown).and_then(|file| {
        page(BufReader::with_capacity(64 * 1024, file), offset, limit).map_err(|e| unreadable(&shown, &e))
    });
    match page {
        Err(outcome) => outcome,
        Ok(Page { total: 0, .. }) => {
            ToolOutcome::Completed { output: json!(format!("The file {shown} is empty.")) }
        }
        Ok(page) => ToolOutcome::Completed { output: json!(page.text(offset)) },
    }
}

struct Page {
    lines: Vec<String>,
    /// Lines of the file.
    total: u64,
}

impl Page {
    fn text(&self, offset: u64) -> String {
        let last = offset + self.lines.len() as u64 - u64::from(!self.lines.is_empty());
        let width = last.to_string().len();
        let numbered = self.lines.iter().zip(offset..);
        let mut text: Vec<String> = numbered.map(|(line, n)| format!("{n:>width$}\t{line}")).collect();
        let left = self.total.saturating_sub(last);
        if !self.lines.is_empty() && left > 0 {
            text.push(format!("… {left} more lines; go on with offset {}", last + 1));
        }
        text.join("\n")
    }
}

fn page(mut reader: impl std::io::BufRead, offset: u64, limit: u64) -> std::io::Result<Page> {
    let (mut lines, mut total, mut chars) = (Vec::new(), 0, 0);
    let mut full = false;
    while let Some(line) = next_line(&mut reader)? {
        total += 1;
        full |= lines.len() as u64 >= limit || chars >= ANSWER_CHARS;
        if total >= offset && !full {
            chars += line.chars().count() + 8;
            lines.push(line);
        }
    }
    Ok(Page { lines, total })
}

/// `write`: a whole file, its directories with it.
pub fn write(place: &Place, path: &str, content: &str) -> ToolOutcome {
    let names_directory = path.ends_with('/');
    let path = place.resolve(path);
    let shown = place.shown(&path);
    if names_directory {
        return failed("sandbox.write_failed", format!("{shown}/ cannot be written: it names a directory."));
    }
    match replace(&path, |file| file.write_all(content.as_bytes())) {
        Ok(()) => ToolOutcome::Completed { output: json!({"path": shown, "bytes": content.len()}) },
        Err(error) => failed("sandbox.write_failed", format!("{shown} cannot be written: {error}.")),
    }
}

/// Most links that a path is followed through, as the kernel does.
const LINKS: usize = 40;

/// Where a path leads through links, also to what is not there yet.
fn target(path: &Path) -> std::io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        match fs::canonicalize(&at) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        match fs::read_link(&at) {
            Ok(to) => at = at.parent().unwrap_or(Path::new("/")).join(to),
            Err(_) => return Ok(at),
        }
    }
    Err(nix::errno::Errno::ELOOP.into())
}

/// Replaces a file in one step, so that a command that runs beside never sees half of it. A link stays a link.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let path = target(path)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent)?;
    let before = fs::metadata(&path).ok();
    if before.as_ref().is_some_and(|meta| !meta.is_file()) {
        return Err(std::io::Error::other("it is no regular file"));
    }
    // Short, whatever the file is called, and not for ever in the way: one that was killed while it wrote may have had
    // the same number in its cage.
    let temp = parent.join(format!(".nylorun-{}.tmp", std::process::id()));
    let written = (|| {
        match fs::remove_file(&temp) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = BufWriter::new(File::options().write(true).create_new(true).open(&temp)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        if let Some(before) = &before {
            file.set_permissions(before.permissions())?;
        }
        fs::rename(&temp, &path)
    })();
    if written.is_err() {
        // Nothing of it is left behind.
        let _ = fs::remove_file(&temp);
    }
    written
}

/// `edit`: literal text for other text.
pub fn edit(place: &Place, path: &str, old: &str, new: &str, all: bool) -> ToolOutcome {
    let path = place.resolve(path);
    let shown = place.shown(&path);
    let mut text = String::new();
    let read = open(&path, &shown).and_then(|file| {
        let size = file.metadata().map_or(0, |meta| meta.len());
        if size > EDIT_BYTES {
            return Err(failed("sandbox.error", format!("{shown} is too large to be edited.")));
        }
        // A small sandbox has room for the file once.
        text.reserve_exact(usize::try_from(size).unwrap_or_default() + 1);
        file.take(EDIT_BYTES).read_to_string(&mut text).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => failed("sandbox.error", format!("{shown} is no UTF-8 text.")),
            _ => unreadable(&shown, &error),
        })
    });
    if let Err(outcome) = read {
        return outcome;
    }
    if old == new {
        return failed("sandbox.edit_noop", "old_string and new_string are the same.".into());
    }
    let count = text.matches(old).count();
    if count == 0 {
        // `read` shows lines without their ends.
        let ends = old.contains('\n') && !old.contains("\r\n") && text.contains("\r\n");
        let why = if ends { ": its lines end with \\r\\n" } else { "" };
        return failed("sandbox.edit_no_match", format!("old_string does not occur in {shown}{why}."));
    }
    if count > 1 && !all {
        let message = format!(
            "old_string occurs {count} times in {shown}: say more of the text around it, or set replace_all."
        );
        return failed("sandbox.edit_not_unique", message);
    }
    let grown = ((text.len() - count * old.len()) as u64).saturating_add(count as u64 * new.len() as u64);
    if grown > EDIT_BYTES.max(text.len() as u64) {
        let message = format!("{shown} would have {grown} bytes, which is too large to be edited.");
        return failed("sandbox.error", message);
    }
    let edited = |file: &mut BufWriter<File>| {
        let mut between = text.split(old);
        file.write_all(between.next().unwrap_or_default().as_bytes())?;
        between.try_for_each(|piece| {
            file.write_all(new.as_bytes())?;
            file.write_all(piece.as_bytes())
        })
    };
    match replace(&path, edited) {
        Ok(()) => ToolOutcome::Completed { output: json!({"path": shown, "replacements": count}) },
        Err(error) => failed("sandbox.write_failed", format!("{shown} cannot be written: {error}.")),
    }
}

/// How long a file must have been left alone before it has a stamp, so that no later change can leave the stamp as it is:
/// longer than the clock of its file system is coarse. A time without a fraction may be of one that has none. No process
/// of the workspace runs while it is listed, so nothing has the file mapped either.
fn settles(stamp: &FileStamp) -> i64 {
    if stamp.changed % 1_000_000_000 == 0 { 3_000_000_000 } else { 200_000_000 }
}

/// The regular files below a directory, sorted, links left out.
pub fn list(place: &Place, dir: &str, most: u64) -> ListAnswer {
    list_at(place, dir, most, SystemTime::now())
}

fn list_at(place: &Place, dir: &str, most: u64, now: SystemTime) -> ListAnswer {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0));
    let root = place.resolve(dir);
    let path = dir.to_owned();
    if !fs::symlink_metadata(&root).is_ok_and(|meta| meta.is_dir()) {
        return ListAnswer::Missing { path };
    }
    let mut listing = Listing::default();
    let walk = ignore::WalkBuilder::new(&root)
        .standard_filters(false)
        .follow_links(false)
        .sort_by_file_name(Ord::cmp)
        .build();
    for entry in walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file())) {
        if listing.entries.len() as u64 >= most {
            listing.truncated = true;
            break;
        }
        let (Ok(relative), Ok(meta)) = (entry.path().strip_prefix(&root), entry.metadata()) else { continue };
        // A name that is no text cannot be asked for afterwards, and must not pass for another.
        let Some(path) = relative.to_str().map(str::to_owned) else { continue };
        let stamp = Some(stamp(&meta)).filter(|stamp| stamp.changed < now - settles(stamp));
        listing.entries.push(FileEntry { path, size: meta.len(), stamp });
    }
    ListAnswer::Listed { path, listing }
}

fn stamp(meta: &fs::Metadata) -> FileStamp {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    FileStamp {
        device: meta.dev(),
        inode: meta.ino(),
        modified: nanos(meta.mtime(), meta.mtime_nsec()),
        changed: nanos(meta.ctime(), meta.ctime_nsec()),
    }
}

/// A file's bytes, unless it has more than `most`.
pub fn bytes(place: &Place, path: &str, most: u64) -> BytesAnswer {
    let full = place.resolve(path);
    let path = path.to_owned();
    let refused = |code: &str, message: String| BytesAnswer::Failed { code: code.to_owned(), message };
    let file = match open(&full, &path) {
        Ok(file) => file,
        Err(ToolOutcome::Failed { code, message }) if code != "sandbox.not_found" => {
            return refused(&code, message);
        }
        Err(_) => return BytesAnswer::Missing { path },
    };
    let too_large = || refused("artifact.too_large", format!("{path} has more than {most} bytes."));
    if file.metadata().is_ok_and(|meta| meta.len() > most) {
        return too_large();
    }
    let mut bytes =
        Vec::with_capacity(usize::try_from(file.metadata().map_or(0, |meta| meta.len())).unwrap_or(0) + 1);
    // One byte more than allowed tells a file that has grown since.
    match file.take(most.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(size) if size as u64 > most => too_large(),
        Ok(_) => BytesAnswer::Read { path, base64: STANDARD.encode(bytes) },
        Err(error) => refused("sandbox.error", format!("{path} cannot be read: {error}.")),
    }
}

#[cfg(test)]
mod tests;
