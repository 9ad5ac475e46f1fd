//! What a helper and the Runtime say to each other over the helper's own socket: frames of JSON, each with its length
//! before it. The socket is also the helper's lifeline: when the Runtime's end closes, for whatever reason, the helper
//! ends everything that it has started.

use std::io::{Read, Write};

use nylorun_actors::model::json::decode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::job::Answer;

/// Largest frame: the largest artifact in base64, and more than any tool says.
pub const FRAME_BYTES: u32 = 256 * 1024 * 1024;

/// What a helper says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// It is there, under this number on the host.
    Here(u32),
    /// Its cage stands.
    Ready,
    /// Its cage cannot be built; nothing ran.
    NoCage(String),
    /// Its work is done.
    Answer(Answer),
    /// Everything that it has started is gone.
    Ended(Ended),
}

/// How a helper's work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code; 128 and more: by a signal.
    pub code: i32,
    /// What was used up, so that all of it was killed.
    pub over: Option<Over>,
}

/// A limit of a workspace that commands have gone over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// Memory; the limit in bytes.
    Memory(u64),
    /// Processes and threads.
    Processes(u64),
    /// Bytes on disk.
    Disk(u64),
    /// Files and folders on disk.
    Inodes(u64),
}

impl Over {
    /// For whoever reads what a command has said.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::Memory(most) => format!("its processes took more than {} of memory", size(most)),
            Self::Processes(most) => format!("it had more than {most} processes"),
            Self::Disk(most) => format!("the workspace took more than {} on disk", size(most)),
            Self::Inodes(most) => format!("the workspace had more than {most} files"),
        }
    }
}

/// Bytes in the unit that suits them.
#[must_use]
pub fn size(bytes: u64) -> String {
    let unit = [(30, "GiB"), (20, "MiB"), (10, "KiB")].into_iter().find(|(bits, _)| bytes >> bits > 0);
    match unit {
        Some((bits, unit)) if bytes.trailing_zeros() >= bits => format!("{} {unit}", bytes >> bits),
        // Sizes are far below 2^52.
        Some((bits, unit)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << bits) as f64),
        None => format!("{bytes} B"),
    }
}

/// A frame as bytes.
#[must_use]
pub fn frame(value: &impl Serialize) -> Vec<u8> {
    // Strings go as they are: what a helper is given has no lone surrogates, see [`super::input`]. What cannot be
    // written is a frame that cannot be read.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
    [length.as_slice(), &text].concat()
}

/// Writes a frame.
///
/// # Errors
/// The system's.
pub fn say(mut to: impl Write, value: &impl Serialize) -> std::io::Result<()> {
    to.write_all(&frame(value))
}

/// Reads a frame.
///
/// # Errors
/// The system's, and a frame that is none.
pub fn hear<T: DeserializeOwned>(mut from: impl Read) -> std::io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = bounded(u32::from_be_bytes(length))?;
    let mut text = Vec::new();
    from.take(length).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Reads a frame on this side, whose writer is not trusted: no memory is taken before its bytes are there. `None` at the
/// end.
///
/// # Errors
/// The system's, and a frame that is none.
pub async fn heard(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Said>> {
    let length = match from.read_u32().await {
        Ok(length) => bounded(length)?,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    from.take(length).read_to_end(&mut text).await?;
    // What stands in files is text of a peer.
    Ok(Some(decode(&text)?))
}

fn bounded(length: u32) -> std::io::Result<u64> {
    if length > FRAME_BYTES {
        return Err(std::io::Error::other("a frame of a helper is too large"));
    }
    Ok(u64::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::model::json::well_formed;
    use nylorun_actors::model::workspace::ToolOutcome;

    #[tokio::test]
    async fn frames_are_read_as_they_were_written_and_one_that_is_too_large_is_refused() {
        let said = Said::Ended(Ended { code: 7, over: Some(Over::Disk(3)) });
        let bytes = [frame(&Said::Here(4)), frame(&said)].concat();
        let mut left = bytes.as_slice();
        assert!(matches!(heard(&mut left).await, Ok(Some(Said::Here(4)))));
        assert!(matches!(hear(&mut left), Ok(Said::Ended(ended)) if ended.code == 7));
        assert!(matches!(heard(&mut left).await, Ok(None)));
        assert!(heard(&mut [0xFF; 8].as_slice()).await.is_err());
        assert!(heard(&mut [0, 0, 0, 9, b'{'].as_slice()).await.is_err(), "half of one");
    }

    #[tokio::test]
    async fn text_of_files_comes_through_whatever_it_would_mean_in_json() {
        let text = "\u{10FFFE}d800 \\ud800 \u{10FFFE}---- \u{0} \u{10FFFE}";
        let outcome = ToolOutcome::Completed { output: text.into() };
        let bytes = frame(&Said::Answer(Answer::Tool(outcome)));
        let heard = heard(&mut bytes.as_slice()).await;
        let Ok(Some(Said::Answer(Answer::Tool(ToolOutcome::Completed { output })))) = heard else { panic!() };
        assert_eq!(well_formed(output.as_str().unwrap()), text);
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_suits_them() {
        for (bytes, told) in [(3, "3 B"), (4 << 30, "4 GiB"), (64 << 20, "64 MiB"), (3 << 19, "1.5 MiB")] {
            assert_eq!(size(bytes), told);
        }
    }
}
