//! Artifacts: names, labels, versions, media types (spec: http-api, section 12). Folders are in
//! [`folder`](super::folder).

use std::collections::BTreeMap;

use super::ids::is_ulid_id;
use super::json::utf16_units;

/// What an artifact's id begins with.
pub const ARTIFACT_PREFIX: &str = "af_";
/// The type of bytes that nobody knows more about.
pub const OCTETS: &str = "application/octet-stream";
/// The type of text that was given as text.
pub const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// The name of the folder that a completed turn's outputs are kept in.
pub const OUTPUTS: &str = "outputs";
/// The name of an artifact that nobody named.
pub const UNNAMED: &str = "artifact.txt";

/// Characters of a name, as JavaScript counts them.
pub const NAME_CHARS: usize = 255;
/// Labels of one artifact.
pub const LABELS: usize = 32;
/// Characters of a label's key.
pub const LABEL_KEY_CHARS: usize = 63;
/// Characters of a label's value.
pub const LABEL_VALUE_CHARS: usize = 256;
/// Characters of a media type.
pub const MEDIA_TYPE_CHARS: usize = 255;
/// The largest number of a version that can be asked for.
pub const MOST_VERSIONS: i64 = 999_999_999;

/// What an artifact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactKind {
    /// One file.
    File,
    /// Files below a directory.
    Folder,
}

impl ArtifactKind {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
        }
    }

    /// The kind of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::File, Self::Folder].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Where a version came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactSource {
    /// A client's upload.
    Upload,
    /// The tool `save_artifact`.
    Engine,
    /// The export at the end of a turn.
    Export,
}

impl ArtifactSource {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Engine => "engine",
            Self::Export => "export",
        }
    }

    /// The source of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Upload, Self::Engine, Self::Export].into_iter().find(|source| source.as_str() == name)
    }
}

/// Whether `text` is an artifact's id.
#[must_use]
pub fn is_artifact_id(text: &str) -> bool {
    is_ulid_id(text, ARTIFACT_PREFIX)
}

/// Why a name is none, in words.
///
/// # Errors
/// A sentence without the name in it.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        Err("must not be blank")
    } else if utf16_units(name).count() > NAME_CHARS {
        Err("must have at most 255 characters")
    } else if name == "." || name == ".." || name.contains(['/', '\\']) {
        Err("must not be a path")
    } else if name.chars().any(char::is_control) {
        Err("must not have control characters")
    } else {
        Ok(())
    }
}

/// Reads labels from `key=value` texts. The value may hold further equals signs.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn read_labels<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeMap<String, String>, &'static str> {
    let mut labels = BTreeMap::new();
    for text in texts {
        let (key, value) = text.split_once('=').ok_or("must be key=value")?;
        if !(1..=LABEL_KEY_CHARS).contains(&utf16_units(key).count()) {
            return Err("needs a key of 1 to 63 characters");
        }
        if utf16_units(value).count() > LABEL_VALUE_CHARS {
            return Err("must have a value of at most 256 characters");
        }
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err("names a key twice");
        }
        if labels.len() > LABELS {
            return Err("must come at most 32 times");
        }
    }
    Ok(labels)
}

/// Which version is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionAt {
    /// The newest.
    Latest,
    /// This one.
    Number(i64),
}

impl VersionAt {
    /// `latest`, or a number without leading zeros.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let digits = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits && !text.starts_with('0'));
        number.map(Self::Number)
    }

    /// The number that it means.
    #[must_use]
    pub fn of(self, latest: i64) -> i64 {
        match self {
            Self::Latest => latest,
            Self::Number(number) => number,
        }
    }
}

/// The media type in a text: `type/subtype` with parameters, as it was given but for the space around it. `None` when it
/// is none.
#[must_use]
pub fn media_type(text: &str) -> Option<String> {
    let text = text.trim_matches([' ', '\t']);
    if text.len() > MEDIA_TYPE_CHARS {
        return None;
    }
    let (essence, mut rest) = match text.split_once(';') {
        Some((essence, rest)) => (essence, Some(rest)),
        None => (text, None),
    };
    let (kind, subtype) = essence.trim_end_matches([' ', '\t']).split_once('/')?;
    if !is_token(kind) || !is_token(subtype) {
        return None;
    }
    while let Some(parameters) = rest {
        let trimmed = parameters.trim_start_matches([' ', '\t']);
        // A semicolon may stand alone at the end.
        if trimmed.is_empty() {
            break;
        }
        let (name, value) = trimmed.split_once('=')?;
        rest = after_value(value)?;
        if !is_token(name) {
            return None;
        }
    }
    Some(text.to_owned())
}

/// What follows a parameter's value: the next parameters, or nothing.
fn after_value(text: &str) -> Option<Option<&str>> {
    let end = if let Some(quoted) = text.strip_prefix('"') {
        let mut bytes = quoted.bytes().enumerate();
        loop {
            match bytes.next()? {
                (at, b'"') => break at + 2,
                (_, b'\\') => {
                    bytes.next().filter(|(_, b)| matches!(b, b'\t' | 0x20..=0x7e))?;
                }
                (_, b'\t' | 0x20..=0x7e) => {}
                _ => return None,
            }
        }
    } else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        is_token(&text[..end]).then_some(end)?
    };
    match text[end..].trim_start_matches([' ', '\t']) {
        "" => Some(None),
        rest => rest.strip_prefix(';').map(Some),
    }
}

fn is_token(text: &str) -> bool {
    let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(tchar)
}

/// The media type that a file's name promises.
#[must_use]
pub fn media_type_of(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    // What agents write is a program, not a film.
    if ["ts", "tsx", "mts", "cts"].iter().any(|script| extension.eq_ignore_ascii_case(script)) {
        return "text/plain";
    }
    mime_guess::from_ext(extension).first_raw().unwrap_or(OCTETS)
}

/// The type of an upload from its header: a missing one, and the type that says nothing, leave it to the name.
#[must_use]
pub fn upload_type(header: Option<&str>, name: &str) -> Option<String> {
    match header.map(media_type) {
        None => Some(media_type_of(name).to_owned()),
        Some(None) => None,
        Some(Some(given)) if given.eq_ignore_ascii_case(OCTETS) => Some(media_type_of(name).to_owned()),
        Some(Some(given)) => Some(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_blank_no_path_and_has_1_to_255_characters() {
        for good in ["a", "a b.txt", "été.md", ".env", "...", &"é".repeat(255), "a\u{a0}b"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let long = "x".repeat(256);
        let pairs = "😀".repeat(128);
        for bad in ["", " ", "\u{a0}", ".", "..", "a/b", "a\\b", "a\nb", "a\u{7f}", "a\u{85}b", &long, &pairs]
        {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn labels_are_key_value_pairs_within_their_bounds() {
        let read = |texts: &[&str]| read_labels(texts.iter().copied());
        let two = read(&["a=1", "b=x=y", "c="]).unwrap();
        assert_eq!(
            two.into_iter().collect::<Vec<_>>(),
            [("a".into(), "1".into()), ("b".into(), "x=y".into()), ("c".into(), String::new()),]
        );
        let (key, value) = (format!("{}=", "k".repeat(63)), format!("k={}", "v".repeat(256)));
        assert!(read(&[&key, &value]).is_ok());
        let (key, value) = (format!("{}=", "k".repeat(64)), format!("k={}", "v".repeat(257)));
        for bad in [&["a"][..], &["=1"], &[&key], &[&value], &["a=1", "a=2"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
        assert!(read_labels(many[..32].iter().map(String::as_str)).is_ok());
        assert!(read_labels(many.iter().map(String::as_str)).is_err());
    }

    #[test]
    fn a_version_is_latest_or_a_number_without_leading_zeros() {
        assert_eq!(VersionAt::read("latest"), Some(VersionAt::Latest));
        assert_eq!(VersionAt::read("1"), Some(VersionAt::Number(1)));
        assert_eq!(VersionAt::read("999999999"), Some(VersionAt::Number(MOST_VERSIONS)));
        for bad in ["", "0", "01", "-1", "+1", "1.0", "1000000000", "Latest", " 1", "1 "] {
            assert_eq!(VersionAt::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_media_type_is_read_whole_or_refused() {
        for good in [
            "text/plain",
            "text/plain; charset=utf-8",
            "a/b;c=d ; e=\"f \\\" g\"",
            "application/vnd.x+json",
            "text/html;",
        ] {
            assert_eq!(media_type(good).as_deref(), Some(good), "{good}");
        }
        assert_eq!(media_type(" image/png\t").as_deref(), Some("image/png"));
        let long = format!("a/{}", "b".repeat(254));
        for bad in [
            "",
            "text",
            "text/",
            "/plain",
            "a/b/c",
            "a b/c",
            "é/a",
            "a/b;c",
            "a/b;c=\"d",
            "a/b;c=d e",
            "a/b;=d",
            &long,
        ] {
            assert_eq!(media_type(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_name_says_what_the_header_does_not() {
        assert_eq!(upload_type(None, "a.PNG").as_deref(), Some("image/png"));
        assert_eq!(
            upload_type(Some("Application/Octet-Stream"), "a.json").as_deref(),
            Some("application/json")
        );
        assert_eq!(upload_type(Some("text/csv"), "a.png").as_deref(), Some("text/csv"));
        assert_eq!(upload_type(Some("nonsense"), "a.png"), None);
        assert_eq!(media_type_of("main.ts"), "text/plain");
        assert_eq!((media_type_of("noext"), media_type_of(".x-unknown")), (OCTETS, OCTETS));
    }
}
