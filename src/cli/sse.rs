//! Reading a stream of server-sent events as it comes, in any pieces.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Where to resume after it.
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its lines joined.
    pub data: String,
}

/// Turns bytes into events.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
}

impl SseReader {
    /// Takes the next piece and gives the events that it completes.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
            if let Some(event) = self.take_line(&line) {
                events.push(event);
            }
        }
        events
    }

    fn take_line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            // A comment (an empty field name) keeps the connection alive and says nothing.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_from_any_pieces_and_comments_say_nothing() {
        let text = ": keepalive\n\nid: a\nevent: turn.completed\ndata: {\"x\":1}\n\nevent: p\r\ndata: 1\r\ndata: 2\r\n\r\n";
        for size in 1..text.len() {
            let mut reader = SseReader::default();
            let events: Vec<_> = text.as_bytes().chunks(size).flat_map(|piece| reader.push(piece)).collect();
            assert_eq!(events.len(), 2);
            assert_eq!(events[0].id.as_deref(), Some("a"));
            assert_eq!((events[0].name.as_str(), events[0].data.as_str()), ("turn.completed", "{\"x\":1}"));
            assert_eq!((events[1].id.as_deref(), events[1].data.as_str()), (None, "1\n2"));
        }
    }
}
