//! The layout of an archive whose files are stored as they are: with sizes and checksums known beforehand every header
//! is whole and the length of the archive is known before its first byte (APPNOTE of the ZIP format, without its 64-bit
//! extensions).

use nylorun_actors::model::Micros;

/// Sizes and offsets are 32 bits, and their largest value means something else.
const MOST: u64 = 0xffff_fffe;
/// So is the number of files, with 16 bits.
const MOST_FILES: usize = 0xfffe;
const MOST_NAME: usize = 0xffff;

const LOCAL: usize = 30;
const CENTRAL: usize = 46;
const END: usize = 22;

/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
/// What is needed to read it: version 2.0.
const VERSION: u16 = 20;
/// Made on a system with Unix modes.
const MADE_BY: u16 = 3 << 8 | VERSION;
/// A regular file that its owner may write and everybody may read.
const MODE: u32 = 0o100_644 << 16;

/// A file of an archive.
#[derive(Clone, Debug)]
pub(super) struct ZipFile {
    /// Where it is in the archive.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Their CRC-32.
    pub crc32: u32,
}

/// An archive, laid out.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    files: Vec<(ZipFile, u32)>,
    time: u16,
    date: u16,
    central_at: u32,
    central_len: u32,
}

impl Layout {
    /// Lays files out. `None`: the format has no room for them.
    pub fn of(files: Vec<ZipFile>, at: Micros) -> Option<Self> {
        if files.len() > MOST_FILES
            || files.iter().any(|file| file.path.len() > MOST_NAME || file.size > MOST)
        {
            return None;
        }
        let mut offset = 0u64;
        let mut central = 0u64;
        let mut placed = Vec::with_capacity(files.len());
        for file in files {
            let name = u64::try_from(file.path.len()).ok()?;
            let start = small(offset)?;
            offset = offset.checked_add(LOCAL as u64 + name)?.checked_add(file.size)?;
            central += CENTRAL as u64 + name;
            placed.push((file, start));
        }
        small(offset + central + END as u64)?;
        let (time, date) = dos_time(at);
        Some(Self { files: placed, time, date, central_at: small(offset)?, central_len: small(central)? })
    }

    /// Bytes of the archive.
    pub fn len(&self) -> u64 {
        u64::from(self.central_at) + u64::from(self.central_len) + END as u64
    }

    /// How many files it has.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// What stands before the bytes of a file.
    pub fn local(&self, at: usize) -> Vec<u8> {
        let (file, _) = &self.files[at];
        let mut out = Vec::with_capacity(LOCAL + file.path.len());
        out.extend_from_slice(b"PK\x03\x04");
        put(&mut out, VERSION);
        self.common(&mut out, file);
        put(&mut out, 0);
        out.extend_from_slice(file.path.as_bytes());
        out
    }

    /// Its line in the directory at the end.
    pub fn central(&self, at: usize) -> Vec<u8> {
        let (file, offset) = &self.files[at];
        let mut out = Vec::with_capacity(CENTRAL + file.path.len());
        out.extend_from_slice(b"PK\x01\x02");
        put(&mut out, MADE_BY);
        put(&mut out, VERSION);
        self.common(&mut out, file);
        // No extra field, no comment, disk 0, no internal attributes.
        for _ in 0..4 {
            put(&mut out, 0);
        }
        out.extend_from_slice(&MODE.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(file.path.as_bytes());
        out
    }

    /// What both headers of a file say: flags, stored as it is, when, checksum, sizes, length of the name.
    fn common(&self, out: &mut Vec<u8>, file: &ZipFile) {
        put(out, FLAGS);
        put(out, 0);
        put(out, self.time);
        put(out, self.date);
        let size = u32::try_from(file.size).unwrap_or(u32::MAX);
        for value in [file.crc32, size, size] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        put(out, u16::try_from(file.path.len()).unwrap_or(u16::MAX));
    }

    /// The last bytes.
    pub fn end(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(END);
        out.extend_from_slice(b"PK\x05\x06");
        let count = u16::try_from(self.files.len()).unwrap_or(u16::MAX);
        for value in [0, 0, count, count] {
            put(&mut out, value);
        }
        out.extend_from_slice(&self.central_len.to_le_bytes());
        out.extend_from_slice(&self.central_at.to_le_bytes());
        put(&mut out, 0);
        out
    }
}

fn put(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn small(value: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|value| u64::from(*value) <= MOST)
}

/// Time and date as archives have them, to two seconds; they begin in 1980.
fn dos_time(at: Micros) -> (u16, u16) {
    let iso = at.to_iso();
    let number = |from: usize, to: usize| iso.get(from..to).and_then(|text| text.parse::<u16>().ok());
    let read = || {
        let year = number(0, 4)?.checked_sub(1980).filter(|year| *year < 128)?;
        let date = year << 9 | number(5, 7)? << 5 | number(8, 10)?;
        let half = number(17, 19)? / 2;
        let time = number(11, 13)? << 11 | number(14, 16)? << 5 | half;
        Some((time, date))
    };
    read().unwrap_or((0, 1 << 5 | 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64) -> ZipFile {
        ZipFile { path: path.to_owned(), size, crc32: 7 }
    }

    #[test]
    fn the_length_is_that_of_what_is_written() {
        let files = vec![file("a", 3), file("b/ü", 0), file("c", 70_000)];
        let sizes: u64 = files.iter().map(|file| file.size).sum();
        let layout = Layout::of(files, Micros(1_700_000_000_000_000)).expect("room");
        let written = (0..layout.files()).map(|at| layout.local(at).len() + layout.central(at).len());
        let written = written.sum::<usize>() + layout.end().len();
        assert_eq!(layout.len(), u64::try_from(written).expect("small") + sizes);
        assert_eq!(Layout::of(Vec::new(), Micros(0)).expect("room").len(), 22);
    }

    #[test]
    fn what_the_format_has_no_room_for_is_refused() {
        let room = |files| Layout::of(files, Micros(0)).is_some();
        assert!(room(vec![file("a", MOST - 1000)]));
        assert!(!room(vec![file("a", MOST + 1)]));
        assert!(!room(vec![file("a", MOST / 2), file("b", MOST / 2), file("c", 100)]));
        assert!(!room(vec![file(&"x".repeat(65_536), 0)]));
        assert!(!room((0..65_535).map(|n| file(&n.to_string(), 0)).collect()));
        assert!(room((0..65_534).map(|n| file(&n.to_string(), 0)).collect()));
    }

    #[test]
    fn a_time_is_kept_to_two_seconds() {
        // 2023-11-14T22:13:20Z.
        let (time, date) = dos_time(Micros(1_700_000_000_000_000));
        assert_eq!((date >> 9, date >> 5 & 15, date & 31), (43, 11, 14));
        assert_eq!((time >> 11, time >> 5 & 63, (time & 31) * 2), (22, 13, 20));
        assert_eq!(dos_time(Micros(0)), (0, 33));
    }
}
