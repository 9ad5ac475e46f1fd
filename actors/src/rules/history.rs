//! The fold of a session's record, and the snapshots that bound it (spec: durability, section 13; DESIGN.md, section 5).
//!
//! A snapshot row is a piece: what the transcript has beyond `keep` entries of the piece before it. Pieces are written
//! only when no turn is open, so nothing that may be reverted is ever in one.

use crate::limits::RECORD_PAGE;
use crate::model::event::EventKind;
use crate::model::ids::SessionId;
use crate::model::json::{JsonText, decode};
use crate::model::transcript::{Edit, Entry, Fold, FoldStep};
use crate::ports::store::{FoldSnapshotRow, Reads, RecordRow, StoreError, StoreResult, Tx};

/// A fold and how far it has read the record.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// The fold.
    pub fold: Fold,
    /// Next `seq` to read.
    pub read_to: i64,
    /// Cursor of the last piece written down, -1 for none.
    pub piece: i64,
    /// Entries that the last piece and those before it hold.
    pub piece_len: usize,
    /// The shortest the transcript has been since that piece.
    pub piece_keep: usize,
    /// Edits read since that piece.
    pub edits_since: usize,
}

#[derive(serde::Deserialize)]
struct EditBody {
    payload: Edit,
}

impl Folded {
    /// Reads rows of the record, in order.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when an edit does not parse or fit.
    pub fn read(&mut self, rows: &[RecordRow]) -> StoreResult<()> {
        for row in rows {
            let step = match row.kind {
                EventKind::TranscriptUpdated => {
                    let body: EditBody = decode(row.body.as_bytes()).map_err(|e| corrupt(&e))?;
                    FoldStep::Edit(body.payload)
                }
                EventKind::TurnCancelled | EventKind::TurnFailed => FoldStep::Reverted,
                EventKind::TurnCompleted => FoldStep::Completed,
                _ => continue,
            };
            self.step(row.seq, row.turn_id.as_ref(), &step)?;
        }
        Ok(())
    }

    /// Reads one event that is known without its row.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when an edit does not fit.
    pub fn step(
        &mut self,
        seq: i64,
        turn: Option<&crate::model::ids::TurnId>,
        step: &FoldStep,
    ) -> StoreResult<()> {
        if let FoldStep::Edit(edit) = step {
            self.piece_keep = self.piece_keep.min(edit.keep);
            self.edits_since += 1;
        }
        self.fold.read(seq, turn, step).map_err(|e| corrupt(&e))?;
        self.piece_keep = self.piece_keep.min(self.fold.entries().len());
        self.read_to = seq + 1;
        Ok(())
    }

    /// The piece to write down now, if there is enough for one and no turn is open.
    #[must_use]
    pub fn next_piece(&self, session: &SessionId, every: usize) -> Option<FoldSnapshotRow> {
        if self.edits_since < every || self.fold.is_open() {
            return None;
        }
        let keep = self.piece_keep.min(self.piece_len);
        Some(FoldSnapshotRow {
            session_id: session.clone(),
            cursor: self.fold.cursor(),
            base: if keep == 0 { -1 } else { self.piece },
            keep: i64::try_from(keep).ok()?,
            entries: JsonText::of(&self.fold.entries()[keep..]),
        })
    }

    /// The piece was written.
    pub fn wrote_piece(&mut self, row: &FoldSnapshotRow) {
        self.piece = row.cursor;
        self.piece_len = self.fold.entries().len();
        self.piece_keep = self.piece_len;
        self.edits_since = 0;
    }

    /// A piece was lost: the next one builds on none.
    pub fn forget_pieces(&mut self) {
        self.piece = -1;
        self.piece_len = 0;
        self.piece_keep = 0;
    }

    /// The transcript.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        self.fold.entries()
    }
}

fn corrupt(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("a session's history does not fold: {error}"))
}

/// Folds a session's record from `from` (where its history starts) up to `to`, with the help of what was written down.
///
/// # Errors
/// [`StoreError::Corrupt`] when the record does not fold.
pub fn fold(reads: &mut dyn Reads, session: &SessionId, from: i64, to: i64) -> StoreResult<Folded> {
    let mut folded =
        from_pieces(reads, session, from, to)?.unwrap_or_else(|| Folded { piece: -1, ..Folded::default() });
    if folded.read_to < from {
        folded.read_to = from;
    }
    loop {
        let rows = reads.fold_record(session, folded.read_to, RECORD_PAGE)?;
        let full = rows.len() == RECORD_PAGE;
        folded.read(&rows)?;
        if !full {
            break;
        }
    }
    folded.read_to = folded.read_to.max(to);
    Ok(folded)
}

/// Joins the newest chain of pieces; `None` when there is none or it is broken (then the record is read whole).
fn from_pieces(
    reads: &mut dyn Reads,
    session: &SessionId,
    from: i64,
    to: i64,
) -> StoreResult<Option<Folded>> {
    let rows = reads.fold_snapshots(session, from, to)?;
    let Some(last) = rows.last() else { return Ok(None) };
    let mut chain = vec![last];
    while let Some(piece) = chain.last()
        && piece.base >= 0
    {
        let Some(before) = rows.iter().find(|r| r.cursor == piece.base) else { return Ok(None) };
        if before.cursor >= piece.cursor {
            return Ok(None);
        }
        chain.push(before);
    }
    let mut entries: Vec<Entry> = Vec::new();
    for piece in chain.iter().rev() {
        let keep = usize::try_from(piece.keep).unwrap_or(0);
        if keep > entries.len() {
            return Ok(None);
        }
        entries.truncate(keep);
        let more: Vec<Entry> = piece.entries.decode().map_err(|e| corrupt(&e))?;
        entries.extend(more);
    }
    let (cursor, length) = (last.cursor, entries.len());
    Ok(Some(Folded {
        fold: Fold::from_snapshot(entries, cursor),
        read_to: cursor + 1,
        piece: cursor,
        piece_len: length,
        piece_keep: length,
        edits_since: 0,
    }))
}

/// Writes a piece down. The fold is a copy of the record, so losing one costs only time.
///
/// # Errors
/// The store's.
pub fn write_piece(tx: &mut dyn Tx, row: &FoldSnapshotRow) -> StoreResult<()> {
    tx.put_fold_snapshot(row)
}
