//! `nylorun artifacts` (spec: http-api, section 12). Bytes are never read whole into memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use nylorun_actors::model::json::Json;
use serde_json::json;

use super::args::artifacts::{Artifacts, At, Get, Limits, Link, Put, To};
use super::client::{Client, Upload, segment};
use super::fault::{Fault, exit};
use super::out::{Out, plain};
use super::resources::{optional, rows};

/// Bytes of one piece that is sent.
const PIECE_BYTES: usize = 128 * 1024;
/// Silence of a Runtime that is sending.
const SILENCE: Duration = Duration::from_secs(60);

/// `artifacts`.
///
/// # Errors
/// What a person reads.
pub async fn run(client: &Client, out: &Out, command: &Artifacts) -> Result<(), Fault> {
    match command {
        Artifacts::List { session } => {
            let query = session.as_ref().map(|id| format!("?sessionId={}", segment(id))).unwrap_or_default();
            let answer = client.get(&format!("/v1/artifacts{query}")).await?;
            if out.is_json() { out.json(&answer) } else { table(out, &answer) }
        }
        Artifacts::Show { artifact } => {
            let answer = client.get(&format!("/v1/artifacts/{}", segment(artifact))).await?;
            if out.is_json() { out.json(&answer) } else { show(out, &answer) }
        }
        Artifacts::Put(command) => put(client, out, command).await,
        Artifacts::Get(command) => get(client, out, command).await,
        Artifacts::Tree(at) => {
            let answer = client.get(&path(at, "tree")).await?;
            if out.is_json() { out.json(&answer) } else { entries(out, &answer["entries"]) }
        }
        Artifacts::Diff { at, from } => {
            let from = from.as_ref().map(|from| format!("?from={}", segment(from))).unwrap_or_default();
            let answer = client.get(&format!("{}{from}", path(at, "diff"))).await?;
            if out.is_json() { out.json(&answer) } else { diff(out, &answer) }
        }
        Artifacts::Zip { at, to } => download(client, out, at, &path(at, "zip"), to).await,
        Artifacts::Link(command) => link(client, out, command).await,
        Artifacts::Rm { artifact } => {
            let answer = client.delete(&format!("/v1/artifacts/{}", segment(artifact))).await?;
            if out.is_json() { out.json(&answer) } else { out.line(&format!("deleted {artifact}")) }
        }
        Artifacts::Limits(command) => limits(client, out, command).await,
    }
}

async fn limits(client: &Client, out: &Out, command: &Limits) -> Result<(), Fault> {
    const PATH: &str = "/v1/tenant/artifacts";
    let mut limits = json!({});
    for (name, value) in [("fileBytes", command.file), ("totalBytes", command.total)] {
        if let Some(value) = value {
            limits[name] = json!(value);
        }
    }
    let asked = command.reset || command.file.is_some() || command.total.is_some();
    let answer = match asked {
        true => client.put(PATH, Some(&json!({"limits": limits}))).await?,
        false => client.get(PATH).await?,
    };
    if out.is_json() {
        return out.json(&answer);
    }
    for (what, value) in [
        ("one artifact", &answer["limits"]["fileBytes"]),
        ("all together", &answer["limits"]["totalBytes"]),
        ("used", &answer["usedBytes"]),
    ] {
        out.line(&format!("{what}: {} bytes", plain(value)))?;
    }
    Ok(())
}

fn path(at: &At, what: &str) -> String {
    format!("/v1/artifacts/{}/versions/{}/{what}", segment(&at.artifact), segment(&at.version))
}

fn table(out: &Out, answer: &Json) -> Result<(), Fault> {
    let rows = rows(&answer["artifacts"], |row| {
        vec![
            plain(&row["artifactId"]),
            plain(&row["kind"]),
            plain(&row["name"]),
            plain(&row["latestVersion"]),
            optional(&row["sessionId"]),
            plain(&row["updatedAt"]),
        ]
    });
    out.table(&["ID", "KIND", "NAME", "VERSIONS", "SESSION", "UPDATED"], &rows)
}

fn show(out: &Out, answer: &Json) -> Result<(), Fault> {
    out.line(&format!(
        "{} {} ({})",
        plain(&answer["kind"]),
        plain(&answer["name"]),
        plain(&answer["artifactId"])
    ))?;
    if let Some(session) = answer["sessionId"].as_str() {
        out.line(&format!("session {session}"))?;
    }
    for (key, value) in answer["labels"].as_object().into_iter().flatten() {
        out.line(&format!("label {key}={}", plain(value)))?;
    }
    let rows = rows(&answer["versions"], |row| {
        vec![
            plain(&row["version"]),
            plain(&row["size"]),
            plain(&row["contentType"]),
            plain(&row["source"]),
            plain(&row["createdAt"]),
            plain(&row["sha256"]),
        ]
    });
    out.table(&["VERSION", "BYTES", "TYPE", "SOURCE", "CREATED", "SHA-256"], &rows)
}

fn entries(out: &Out, entries: &Json) -> Result<(), Fault> {
    let rows =
        rows(entries, |row| vec![plain(&row["path"]), plain(&row["size"]), plain(&row["contentType"])]);
    out.table(&["PATH", "BYTES", "TYPE"], &rows)
}

fn diff(out: &Out, answer: &Json) -> Result<(), Fault> {
    let lines = |mark: &str, list: &Json| {
        rows(list, |row| vec![format!("{mark} {}", plain(&row["path"]))])
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let (added, removed) = (lines("+", &answer["added"]), lines("-", &answer["removed"]));
    let changed = lines("~", &answer["changed"]);
    if added.is_empty() && removed.is_empty() && changed.is_empty() {
        out.note("nothing changed");
    }
    for line in added.into_iter().chain(removed).chain(changed) {
        out.line(&line)?;
    }
    Ok(())
}

fn file_fault(path: &Path, what: &str, error: &io::Error) -> Fault {
    Fault::new(exit::FAILED, "file", format!("cannot {what} {}: {error}", path.display()))
}

async fn put(client: &Client, out: &Out, command: &Put) -> Result<(), Fault> {
    let input = command.file.as_os_str() == "-";
    let name = command.file.file_name().filter(|_| !input).and_then(|name| name.to_str()).map(str::to_owned);
    let (source, length): (Box<dyn io::Read + Send>, Option<u64>) = if input {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(&command.file).map_err(|error| file_fault(&command.file, "read", &error))?;
        let meta = file.metadata().map_err(|error| file_fault(&command.file, "read", &error))?;
        if meta.is_dir() {
            let fault = Fault::new(exit::USAGE, "file", format!("{} is a directory", command.file.display()));
            return Err(fault.fix("an artifact that is put is one file"));
        }
        // Of anything but a regular file the length says nothing.
        (Box::new(file), meta.is_file().then_some(meta.len()))
    };
    let path = match &command.artifact {
        Some(id) => format!("/v1/artifacts/{}/versions", segment(id)),
        None => {
            let name = command.name.clone().or(name).ok_or_else(|| {
                Fault::new(exit::USAGE, "file", "what is read has no name").fix("give one with --name")
            })?;
            let mut path = format!("/v1/artifacts?name={}", segment(&name));
            if let Some(session) = &command.session {
                path.push_str(&format!("&sessionId={}", segment(session)));
            }
            for label in &command.label {
                path.push_str(&format!("&label={}", segment(label)));
            }
            path
        }
    };
    let upload = Upload {
        path: &path,
        content_type: command.content_type.as_deref(),
        length,
        body: reqwest::Body::wrap_stream(pieces(source)),
    };
    let answer = match client.upload(upload).await {
        Ok(answer) => answer,
        Err(error) => return Err(client.explain(error).await),
    };
    if out.is_json() {
        return out.json(&answer);
    }
    let (artifact, version) = (&answer["artifact"], &answer["version"]);
    out.line(&format!(
        "{} version {}, {} bytes, {}",
        plain(&artifact["artifactId"]),
        plain(&version["version"]),
        plain(&version["size"]),
        plain(&version["contentType"])
    ))
}

/// A source in pieces, read on a thread that may wait.
fn pieces(source: Box<dyn io::Read + Send>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(source, |mut source| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let taken = loop {
                match source.read(&mut piece) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    taken => break taken,
                }
            };
            taken.map(|taken| {
                piece.truncate(taken);
                (Bytes::from(piece), source)
            })
        });
        let (piece, source) = read.await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then_some((piece, source)))
    })
}

async fn get(client: &Client, out: &Out, command: &Get) -> Result<(), Fault> {
    let what = match &command.file {
        Some(file) => format!("files/{}", segment(file)),
        None => "content".to_owned(),
    };
    download(client, out, &command.at, &path(&command.at, &what), &command.to).await
}

/// Where a download goes.
enum Sink {
    Standard,
    /// Written beside its place, which it takes when it is whole.
    File {
        file: File,
        partial: PathBuf,
        path: PathBuf,
    },
}

impl Sink {
    fn of(to: &To, out: &Out) -> Result<Self, Fault> {
        let path = match &to.output {
            None if out.is_terminal() => {
                return Err(Fault::new(exit::USAGE, "output", "bytes are not for a terminal")
                    .fix("name a file with --output, or `--output -` to see them all the same"));
            }
            None => return Ok(Self::Standard),
            Some(path) if path.as_os_str() == "-" => return Ok(Self::Standard),
            Some(path) => path.clone(),
        };
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|error| file_fault(&partial, "write", &error))?;
        Ok(Self::File { file, partial, path })
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), Fault> {
        match self {
            Self::Standard => io::stdout().lock().write_all(piece).map_err(|error| {
                if error.kind() == ErrorKind::BrokenPipe {
                    Fault::closed_pipe()
                } else {
                    Fault::new(exit::FAILED, "output", format!("cannot write the answer: {error}"))
                }
            }),
            Self::File { file, partial, .. } => {
                file.write_all(piece).map_err(|error| file_fault(partial, "write", &error))
            }
        }
    }

    /// The file that it is now, if it is one.
    fn finish(self) -> Result<Option<PathBuf>, Fault> {
        match self {
            Self::Standard => Ok(None),
            Self::File { partial, path, .. } => {
                std::fs::rename(&partial, &path).map_err(|error| file_fault(&path, "write", &error))?;
                Ok(Some(path))
            }
        }
    }

    fn give_up(self) {
        if let Self::File { partial, .. } = self {
            // What is left of it says by its name that it is not whole.
            let _ = std::fs::remove_file(partial);
        }
    }
}

async fn download(client: &Client, out: &Out, at: &At, path: &str, to: &To) -> Result<(), Fault> {
    if out.is_json() && to.output.as_ref().is_none_or(|path| path.as_os_str() == "-") {
        return Err(Fault::new(
            exit::USAGE,
            "output",
            "an answer in JSON and bytes cannot share standard output",
        )
        .fix("name a file with --output"));
    }
    let response = match client.open(path).await {
        Ok(response) => response,
        Err(error) => return Err(client.explain(error).await),
    };
    let mut sink = Sink::of(to, out)?;
    let bytes = match copy(response, &mut sink).await {
        Ok(bytes) => bytes,
        Err(fault) => {
            sink.give_up();
            return Err(fault);
        }
    };
    let written = sink.finish()?;
    if out.is_json() {
        let file = written.map(|path| path.display().to_string());
        return out.json(&json!({
            "artifactId": at.artifact, "version": at.version, "bytes": bytes, "file": file,
        }));
    }
    if let Some(path) = written {
        out.note(&format!("{bytes} bytes in {}", path.display()));
    }
    Ok(())
}

async fn copy(mut response: reqwest::Response, sink: &mut Sink) -> Result<u64, Fault> {
    let cut = |why: String| Fault::new(exit::FAILED, "download", format!("the answer was cut off: {why}"));
    let declared = response.content_length();
    let mut bytes = 0u64;
    loop {
        match tokio::time::timeout(SILENCE, response.chunk()).await {
            Err(_) => return Err(cut("the Runtime is silent".to_owned())),
            Ok(Err(error)) => return Err(cut(error.without_url().to_string())),
            Ok(Ok(None)) => break,
            Ok(Ok(Some(piece))) => {
                sink.write(&piece)?;
                bytes += u64::try_from(piece.len()).unwrap_or(0);
            }
        }
    }
    match declared {
        Some(declared) if declared != bytes => Err(cut(format!("{bytes} of {declared} bytes came"))),
        _ => Ok(bytes),
    }
}

async fn link(client: &Client, out: &Out, command: &Link) -> Result<(), Fault> {
    let mut body = json!({"expiresIn": command.expires});
    if let Some(version) = command.version {
        body["version"] = json!(version);
    }
    if let Some(file) = &command.file {
        body["file"] = json!(file);
    }
    let mut answer =
        client.post(&format!("/v1/artifacts/{}/links", segment(&command.artifact)), &body).await?;
    let url = format!("{}{}", client.target().url, plain(&answer["path"]));
    if out.is_json() {
        answer["url"] = json!(url);
        return out.json(&answer);
    }
    out.line(&url)?;
    out.note(&format!(
        "whoever has it may read version {} until {}",
        plain(&answer["version"]),
        plain(&answer["expiresAt"])
    ));
    Ok(())
}
